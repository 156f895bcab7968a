use super::*;

/// Ten sentences of each language, in the order of [`LANGUAGES`].
const SENTENCES: [[&str; 10]; LANGUAGES.len()] = [
    [
        "Hej, jeg har stadig ikke fået min pakke fra jer.",
        "Hvad er nummeret på din ordre, så kigger jeg på det?",
        "Jeg ved ikke, hvor jeg kan finde det nummer.",
        "Det står i den mail, som vi sendte til dig.",
        "Tak, nu kan jeg se, at den bliver leveret efter weekenden.",
        "Hvornår får jeg mine penge tilbage, hvis jeg sender skoene retur?",
        "Vi skal bruge noget tid, før vi kan svare dig.",
        "Der er desværre en fejl ved betalingen, og kortet blev afvist.",
        "Kan du hjælpe mig med at ændre adressen?",
        "Ja, det kan vi godt gøre for dig, men først skal jeg bruge dit navn.",
    ],
    [
        "Guten Tag, mein Paket ist immer noch nicht da.",
        "Können Sie mir bitte die Nummer der Bestellung nennen?",
        "Ich weiß nicht, wo ich die finden kann.",
        "Sie steht in der E-Mail, die wir Ihnen geschickt haben.",
        "Wann bekomme ich mein Geld zurück, wenn ich die Schuhe zurückschicke?",
        "Das dauert leider ein paar Tage, weil wir die Ware prüfen müssen.",
        "Die Zahlung mit der Karte wurde abgelehnt, und jetzt geht gar nichts mehr.",
        "Haben Sie es schon mit einer anderen Karte versucht?",
        "Ich möchte meine Adresse ändern, weil ich umgezogen bin.",
        "Das kann ich gern für Sie machen, wie lautet die neue Anschrift?",
    ],
    [
        "Hello, I am still waiting for my parcel from last week.",
        "Could you tell me the number of your order, please?",
        "I don't know where to find it.",
        "It is in the email that we sent to you on Monday.",
        "When will I get my money back if I return the shoes?",
        "It takes a few days because we have to check the goods first.",
        "The payment with my card was declined and now nothing works.",
        "Have you tried it with another card?",
        "I would like to change my address, as I have moved to a new flat.",
        "I can do that for you, what is the new address?",
    ],
    [
        "Hola, todavía no me ha llegado el paquete de la semana pasada.",
        "¿Me puede decir cuál es el número de su pedido?",
        "No sé dónde puedo encontrarlo.",
        "Está en el correo que le enviamos el lunes.",
        "¿Cuándo me devuelven el dinero si devuelvo los zapatos?",
        "Tarda unos días porque primero tenemos que revisar la mercancía.",
        "El pago con mi tarjeta fue rechazado y ahora no funciona nada.",
        "¿Lo ha intentado con otra tarjeta?",
        "Quiero cambiar mi dirección, ya que me he mudado a otra ciudad.",
        "Eso lo puedo hacer yo, ¿cuál es la nueva dirección?",
    ],
    [
        "Hei, en ole vieläkään saanut viime viikon pakettia.",
        "Voisitko kertoa, mikä on tilauksesi numero?",
        "En tiedä, mistä sen voi löytää.",
        "Se on siinä viestissä, jonka lähetimme sinulle maanantaina.",
        "Milloin saan rahani takaisin, jos minä palautan kengät?",
        "Siihen menee pari päivää, koska meidän on ensin tarkistettava ne.",
        "Maksu kortilla ei onnistunut, ja nyt mikään ei toimi.",
        "Oletko jo kokeillut, toimiiko se toisella kortilla?",
        "Haluaisin muuttaa osoitteen, sillä olen muuttanut.",
        "Voin tehdä sen, mutta mikä on se uusi osoite?",
    ],
    [
        "Bonjour, je n'ai toujours pas reçu le colis de la semaine dernière.",
        "Pouvez-vous me donner le numéro de votre commande ?",
        "Je ne sais pas où je peux le trouver.",
        "Il est dans le courriel que nous vous avons envoyé lundi.",
        "Quand est-ce que je serai remboursé si je renvoie les chaussures ?",
        "Cela prend quelques jours, parce que nous devons vérifier les articles.",
        "Le paiement par carte a été refusé et maintenant plus rien ne marche.",
        "Avez-vous essayé avec une autre carte ?",
        "Je voudrais changer mon adresse, car j'ai déménagé.",
        "Je peux le faire pour vous, quelle est la nouvelle adresse ?",
    ],
    [
        "Jó napot, még mindig nem érkezett meg a csomag a múlt hétről.",
        "Meg tudja mondani, hogy mi a rendelés száma?",
        "Nem tudom, hogy hol lehet megtalálni.",
        "Az benne van abban a levélben, amit hétfőn küldtünk önnek.",
        "Mikor kapom vissza a pénzt, ha visszaküldöm a cipőt?",
        "Ez eltart pár napig, mert előtte meg kell nézni az árut.",
        "A fizetés a kártyával nem sikerült, és most semmi sem működik.",
        "Próbálta már egy másik kártyával is?",
        "Szeretném megváltoztatni a címet, mert már nem ott lakom.",
        "Ezt meg tudom csinálni, de mi az új cím?",
    ],
    [
        "Buongiorno, non mi è ancora arrivato il pacco della settimana scorsa.",
        "Mi può dire qual è il numero del suo ordine?",
        "Non so dove lo posso trovare.",
        "È nella mail che le abbiamo mandato lunedì.",
        "Quando riavrò i soldi se rimando le scarpe?",
        "Ci vogliono alcuni giorni, perché prima si deve controllare la merce.",
        "Il pagamento con la carta è stato rifiutato e adesso non va più nulla.",
        "Ha già provato con un'altra carta?",
        "Vorrei cambiare il mio indirizzo, perché ho traslocato in un altro paese.",
        "Questo lo posso fare io, qual è quello nuovo?",
    ],
    [
        "Hallo, ik heb het pakket van vorige week nog steeds niet ontvangen.",
        "Kunt u mij het nummer van uw bestelling geven?",
        "Ik weet niet waar ik dat kan vinden.",
        "Het staat in de mail die wij u maandag hebben gestuurd.",
        "Wanneer krijg ik mijn geld terug als ik de schoenen terugstuur?",
        "Dat duurt een paar dagen, omdat we de spullen eerst moeten nakijken.",
        "De betaling met mijn kaart is geweigerd en nu doet niets het meer.",
        "Heeft u het al met een andere kaart geprobeerd?",
        "Ik wil mijn adres wijzigen, want ik ben verhuisd.",
        "Dat kan ik voor u doen, wat is het nieuwe adres?",
    ],
    [
        "Hei, jeg har fortsatt ikke fått pakken min fra dere.",
        "Hva er nummeret på bestillingen din, så ser jeg på det?",
        "Jeg vet ikke hvor jeg kan finne det nummeret.",
        "Det står i den e-posten som vi sendte til deg.",
        "Takk, nå kan jeg se at den blir levert etter helgen.",
        "Når får jeg pengene mine tilbake hvis jeg sender skoene i retur?",
        "Vi trenger litt tid før vi kan svare deg.",
        "Det er dessverre noe feil ved betalingen, og kortet ble avvist.",
        "Kan du hjelpe meg med å endre adressen?",
        "Ja, det kan vi gjøre for deg, men først må jeg ha navnet ditt.",
    ],
    [
        "Olá, ainda não recebi a encomenda da semana passada.",
        "Pode me dizer qual é o número do seu pedido?",
        "Não sei onde é que posso encontrar isso.",
        "Está no e-mail que nós lhe enviamos na segunda.",
        "Quando recebo o meu dinheiro se devolver os sapatos?",
        "Isso demora uns dias, porque primeiro temos que ver os artigos.",
        "O pagamento com o meu cartão foi recusado e agora não funciona nada.",
        "Você já tentou com outro cartão?",
        "Quero mudar a minha morada, pois já não vivo nessa cidade.",
        "Isso eu posso fazer, qual é a nova morada?",
    ],
    [
        "Bună ziua, nu am primit încă pachetul de săptămâna trecută.",
        "Îmi puteți spune care este numărul comenzii?",
        "Nu știu unde pot să îl găsesc.",
        "Este în mesajul pe care vi l-am trimis luni.",
        "Când îmi primesc banii dacă trimit pantofii înapoi?",
        "Durează câteva zile, deoarece mai întâi trebuie să verificăm marfa.",
        "Plata cu cardul meu a fost respinsă și acum nu mai merge nimic.",
        "Ați încercat deja cu un alt card?",
        "Aș vrea să îmi schimb adresa, pentru că m-am mutat.",
        "Asta se poate face, care este adresa cea nouă?",
    ],
    [
        "Hej, jag har fortfarande inte fått mitt paket från er.",
        "Vad är numret på din beställning, så tittar jag på det?",
        "Jag vet inte var jag kan hitta det numret.",
        "Det står i det mejl som vi skickade till dig.",
        "Tack, nu ser jag att det kommer efter helgen.",
        "När får jag mina pengar om jag skickar tillbaka skorna?",
        "Vi behöver lite tid innan vi kan svara dig.",
        "Tyvärr blev det något fel vid betalningen och kortet nekades.",
        "Kan du hjälpa mig att ändra adressen?",
        "Ja, det kan vi göra åt dig, men först måste jag ha ditt namn.",
    ],
    [
        "Merhaba, geçen haftaki paket bana hâlâ gelmedi.",
        "Siparişin numarası nedir, bunu bana söyler misiniz?",
        "Onu nerede bulacağımı bilmiyorum ama bir bakarım.",
        "Pazartesi günü size gelen mesajın içinde var.",
        "Ayakkabıları geri verirsem para bana ne zaman gelir?",
        "Önce ürüne bakmak gerektiği için bu biraz daha sürer.",
        "Kart ile ödeme olmadı ve artık hiç bir şey çalışmıyor.",
        "Başka bir kart ile de denediniz mi?",
        "Evim değişti, bu yüzden adres de değişecek, çünkü orada kimse yok.",
        "Bunu sizin için ben yaparım, yeni adres ne?",
    ],
];

fn detect(texts: &[&str]) -> String {
    Analyzer::detect(texts).to_string()
}

fn of(code: &str) -> [&'static str; 10] {
    SENTENCES[LANGUAGES.iter().position(|language| language.0 == code).unwrap()]
}

#[test]
fn every_language_is_detected() {
    for ((code, ..), sentences) in LANGUAGES.iter().zip(SENTENCES) {
        assert_eq!(detect(&sentences), format!("mixed-1+stem-{code}"));
        // Either half is enough: about 40 words.
        for half in sentences.chunks(5) {
            assert_eq!(detect(half), format!("mixed-1+stem-{code}"), "{half:?}");
        }
        let upper: Vec<String> = sentences.iter().map(|text| text.to_uppercase()).collect();
        // In Turkish, the lower case of I is not i.
        assert!(*code == "tr" || Analyzer::detect(upper).language().is_some(), "{code}");
    }
}

#[test]
fn casual_english_is_detected() {
    let chat = [
        "ok",
        "lol",
        "lol ok u there?",
        "yeah brb",
        "thx!!! gonna grab food lol",
        "ok cool, did you get the tickets",
        "nah not yet, gonna do it tonight",
        "omg ok ok. send me the link when ur done",
        "k",
        "haha yeah that was so funny, I can't even",
        "lol same",
        "btw what time are we meeting tomorrow",
        "idk, whenever, maybe after work?",
        "ok np c u then",
    ];
    assert_eq!(detect(&chat), "mixed-1+stem-en");
}

#[test]
fn codes_and_numbers_have_no_language() {
    let codes = ["SKU AB-1234, XK 99", "ref QZ/77/B", "A12-B13-C14", "TRK 00128 GLS", "ERR_CONN_RESET 404"];
    let many: Vec<&str> = codes.into_iter().cycle().take(200).collect();
    assert_eq!(detect(&many), "mixed-1");
    // Codes within sentences do not change the language.
    let with_codes = of("en").map(|text| format!("{text} AB-1234 0815/77-X"));
    assert_eq!(Analyzer::detect(with_codes).to_string(), "mixed-1+stem-en");
}

#[test]
fn too_few_words_have_no_language() {
    assert_eq!(detect(&[]), "mixed-1");
    assert_eq!(detect(&["where is my parcel", "it is on the way"]), "mixed-1");
    // Enough words, but always the same ones.
    assert_eq!(detect(&["is it there"; 50]), "mixed-1");
}

#[test]
fn other_scripts_have_no_language() {
    let chinese = ["你好，我的包裹还没有到。", "请告诉我您的订单号。", "我不知道在哪里可以找到。"];
    let russian = ["Здравствуйте, моя посылка ещё не пришла.", "Скажите, пожалуйста, номер заказа."];
    assert_eq!(detect(&chinese.repeat(20)), "mixed-1");
    assert_eq!(detect(&russian.repeat(20)), "mixed-1");
    let with_english = [&chinese.repeat(10)[..], &of("en")[..3]].concat();
    assert_eq!(detect(&with_english), "mixed-1");
    let mainly_english = [&chinese[..1], &of("en")].concat();
    assert_eq!(detect(&mainly_english), "mixed-1+stem-en");
}

/// Languages that cannot be stemmed share some function words with others.
#[test]
fn languages_without_a_stemmer_are_not_detected() {
    let polish = [
        "Dzień dobry, nadal nie dostałem paczki z zeszłego tygodnia.",
        "Czy może mi pan podać numer zamówienia?",
        "Nie wiem, gdzie go znaleźć, a na stronie go nie ma.",
        "Jest w wiadomości, którą wysłaliśmy do pana w poniedziałek.",
        "Kiedy dostanę pieniądze, jeśli odeślę buty?",
        "To potrwa kilka dni, bo najpierw musimy sprawdzić towar.",
    ];
    let czech = [
        "Dobrý den, pořád mi nepřišel balík z minulého týdne.",
        "Můžete mi říct číslo objednávky?",
        "Nevím, kde ho najdu, a na stránce to není.",
        "Je v e-mailu, který jsme vám poslali v pondělí.",
        "Kdy dostanu peníze, když boty pošlu zpět?",
        "To bude trvat několik dní, protože zboží musíme nejdřív zkontrolovat.",
    ];
    let indonesian = [
        "Halo, paket saya dari minggu lalu belum sampai juga.",
        "Boleh saya tahu nomor pesanan Anda?",
        "Saya tidak tahu di mana saya bisa menemukannya.",
        "Nomor itu ada di surel yang kami kirim hari Senin.",
        "Kapan uang saya kembali kalau sepatunya saya kirim balik?",
        "Itu butuh beberapa hari karena barangnya harus kami periksa dulu.",
    ];
    let estonian = [
        "Tere, ma ei ole ikka veel eelmise nädala pakki saanud.",
        "Kas te saaksite mulle öelda oma tellimuse numbri?",
        "Ma ei tea, kust ma selle leian.",
        "See on kirjas, mille me teile esmaspäeval saatsime.",
        "Millal ma raha tagasi saan, kui kingad tagasi saadan?",
        "See võtab paar päeva, sest me peame kauba enne üle vaatama.",
    ];
    let catalan = [
        "Hola, encara no m'ha arribat el paquet de la setmana passada.",
        "Em pot dir quin és el número de la comanda?",
        "No sé on el puc trobar.",
        "És al correu que us vam enviar dilluns.",
        "Quan em tornaran els diners si retorno les sabates?",
        "Triga uns dies perquè primer hem de revisar la mercaderia.",
    ];
    for texts in [polish, czech, indonesian, estonian, catalan] {
        assert_eq!(detect(&texts.repeat(5)), "mixed-1", "{texts:?}");
    }
}

#[test]
fn mixed_languages_need_a_main_language() {
    for (a, b) in [("en", "de"), ("no", "da"), ("es", "pt"), ("fr", "it"), ("sv", "en")] {
        assert_eq!(detect(&[of(a), of(b)].concat()), "mixed-1", "{a} {b}");
    }
    let thirds = [of("en"), of("de"), of("fr")].concat();
    assert_eq!(detect(&thirds), "mixed-1");
    let mainly_english = [&of("en")[..], &of("de")[..2]].concat();
    assert_eq!(detect(&mainly_english), "mixed-1+stem-en");
    let mainly_danish = [&of("da")[..], &of("no")[..2]].concat();
    assert_eq!(detect(&mainly_danish), "mixed-1+stem-da");
}

#[test]
fn only_the_first_texts_are_read() {
    let english = of("en").into_iter().cycle().take(MAX_TEXTS);
    let german = of("de").into_iter().cycle().take(10 * MAX_TEXTS);
    assert_eq!(Analyzer::detect(english.chain(german)).to_string(), "mixed-1+stem-en");
    let long = of("en").join(" ").repeat(1 + MAX_BYTES / of("en").join(" ").len());
    let mut read = 0;
    let texts = (0..3).map(|_| &long).inspect(|_| read += 1);
    assert_eq!(Analyzer::detect(texts).to_string(), "mixed-1+stem-en");
    assert_eq!(read, 1);
}
