//! Function words of the languages that can be stemmed: articles, pronouns, auxiliary verbs, prepositions,
//! conjunctions, question words and particles. They occur in almost every text, so queries drop them, and they identify
//! the language of a text.
//!
//! The words are in the form of the analyzer before stemming: in lower case, and without apostrophes (`dont`). Words
//! that are also frequent content words are left out, such as the English `may` and the French `été`. So are numbers.

/// Function words by language, in the order of [`LANGUAGES`](crate::stem::LANGUAGES). Each list is sorted.
pub(super) const FUNCTION_WORDS: [&[&str]; 14] = [DA, DE, EN, ES, FI, FR, HU, IT, NL, NO, PT, RO, SV, TR];

/// Danish.
#[rustfmt::skip]
const DA: &[&str] = &[
    "af", "al", "alle", "alt", "altså", "andet", "andre", "at", "bare", "blev", "blevet", "blive", "bliver",
    "burde", "både", "bør", "da", "de", "dem", "den", "denne", "der", "deres", "derfor", "det", "dette", "dig",
    "din", "dine", "disse", "dit", "dog", "du", "efter", "eller", "en", "end", "endnu", "enten", "er", "et",
    "for", "fordi", "fra", "før", "gennem", "haft", "ham", "han", "hans", "har", "havde", "have", "hende",
    "hendes", "her", "hos", "hun", "hvad", "hvem", "hver", "hvert", "hvilke", "hvilken", "hvilket", "hvis",
    "hvor", "hvordan", "hvorfor", "hvornår", "i", "ikke", "ind", "indtil", "ingen", "intet", "jeg", "jer",
    "jeres", "jo", "kan", "kun", "kunne", "man", "med", "meget", "mellem", "men", "mens", "mere", "mig", "min",
    "mine", "mit", "mod", "må", "måtte", "nogen", "noget", "nogle", "nu", "når", "og", "også", "om", "op", "os",
    "over", "på", "selv", "selvom", "siden", "sig", "sin", "sine", "sit", "skal", "skulle", "som", "så", "til",
    "ud", "uden", "under", "var", "ved", "vi", "vil", "ville", "vor", "vores", "være", "været",
];

/// German.
#[rustfmt::skip]
const DE: &[&str] = &[
    "aber", "als", "also", "am", "an", "auch", "auf", "aus", "bei", "beim", "bevor", "bin", "bis", "bist", "da",
    "damit", "dann", "darf", "das", "dass", "daß", "dein", "deine", "deinen", "dem", "den", "denn", "der",
    "des", "dich", "die", "diese", "diesem", "diesen", "dieser", "dieses", "dir", "doch", "dort", "du", "durch",
    "dürfen", "ein", "eine", "einem", "einen", "einer", "eines", "er", "es", "etwas", "euch", "euer", "eure",
    "für", "gegen", "habe", "haben", "habt", "hast", "hat", "hatte", "hatten", "hier", "hätte", "hätten", "ich",
    "ihm", "ihn", "ihnen", "ihr", "ihre", "ihrem", "ihren", "ihrer", "im", "in", "ins", "ist", "kann", "kannst",
    "kein", "keine", "keinem", "keinen", "keiner", "konnte", "konnten", "können", "könnte", "könnten", "mal",
    "man", "mein", "meine", "meinem", "meinen", "meiner", "mich", "mir", "mit", "muss", "möchte", "möchten",
    "müssen", "nach", "nachdem", "nicht", "nichts", "noch", "nun", "nur", "ob", "obwohl", "oder", "ohne",
    "schon", "sehr", "seid", "sein", "seine", "seinem", "seinen", "seiner", "seit", "sich", "sie", "sind", "so",
    "soll", "sollen", "sollte", "sondern", "um", "und", "uns", "unser", "unsere", "unserem", "unseren", "unter",
    "vom", "von", "vor", "wann", "war", "waren", "warum", "was", "weil", "welche", "welchen", "welcher",
    "welches", "wem", "wen", "wenn", "wer", "werde", "werden", "wie", "will", "wir", "wird", "wirst", "wo",
    "wollen", "wollte", "wurde", "wurden", "während", "wäre", "wären", "würde", "würden", "zu", "zum", "zur",
    "zwischen", "über",
];

/// English.
#[rustfmt::skip]
const EN: &[&str] = &[
    "a", "about", "above", "after", "against", "all", "also", "although", "am", "among", "an", "and", "another",
    "any", "anyone", "anything", "are", "arent", "as", "at", "be", "because", "been", "before", "being",
    "below", "between", "both", "but", "by", "can", "cannot", "cant", "could", "couldnt", "did", "didnt", "do",
    "does", "doesnt", "doing", "dont", "during", "each", "either", "even", "ever", "every", "for", "from",
    "had", "hadnt", "has", "hasnt", "have", "havent", "having", "he", "her", "here", "heres", "hers", "herself",
    "hes", "him", "himself", "his", "how", "i", "if", "im", "in", "into", "is", "isnt", "it", "itll", "its",
    "itself", "ive", "just", "lets", "many", "me", "might", "more", "most", "much", "must", "my", "myself",
    "neither", "no", "nor", "not", "of", "on", "only", "onto", "or", "other", "our", "ourselves", "out", "over",
    "shall", "she", "shes", "should", "shouldnt", "since", "so", "some", "someone", "something", "such", "than",
    "that", "thats", "the", "their", "them", "themselves", "then", "there", "theres", "these", "they", "theyd",
    "theyll", "theyre", "theyve", "this", "those", "though", "through", "to", "too", "under", "unless", "until",
    "up", "upon", "us", "very", "was", "wasnt", "we", "were", "werent", "weve", "what", "whats", "when",
    "where", "wheres", "whether", "which", "while", "who", "whom", "whos", "whose", "why", "will", "with",
    "within", "without", "wont", "would", "wouldnt", "yet", "you", "youd", "youll", "your", "youre", "yours",
    "yourself", "youve",
];

/// Spanish.
#[rustfmt::skip]
const ES: &[&str] = &[
    "a", "ahí", "al", "algo", "alguien", "alguna", "alguno", "algunos", "allí", "aquel", "aquella", "aquí",
    "así", "aunque", "aún", "cada", "como", "con", "conmigo", "contigo", "contra", "cual", "cuales", "cuando",
    "cuanto", "cuál", "cuáles", "cuándo", "cuánto", "cuántos", "cómo", "de", "del", "desde", "donde", "dónde",
    "e", "el", "ella", "ellas", "ellos", "en", "entonces", "entre", "era", "eran", "eres", "es", "esa", "esas",
    "ese", "eso", "esos", "esta", "estaba", "estaban", "estamos", "estar", "estas", "este", "esto", "estos",
    "estoy", "está", "están", "estás", "fue", "fueron", "fui", "ha", "haber", "había", "habían", "hacia", "han",
    "has", "hasta", "hay", "haya", "he", "hemos", "la", "las", "le", "les", "lo", "los", "mas", "me", "mi",
    "mientras", "mis", "muy", "más", "mí", "ni", "ningún", "no", "nos", "nosotras", "nosotros", "nuestra",
    "nuestras", "nuestro", "nuestros", "o", "os", "otra", "otras", "otro", "otros", "para", "pero", "podemos",
    "podría", "por", "porque", "puede", "pueden", "puedes", "puedo", "pues", "que", "quien", "quién", "qué",
    "se", "sea", "sean", "según", "ser", "sería", "si", "sido", "siendo", "sin", "sino", "sobre", "solo",
    "somos", "son", "soy", "su", "sus", "sí", "sólo", "tambien", "también", "tampoco", "te", "tenemos", "tengo",
    "ti", "tiene", "tienen", "tienes", "toda", "todas", "todavía", "todo", "todos", "tu", "tus", "tú", "u",
    "un", "una", "unas", "unos", "usted", "ustedes", "va", "vamos", "van", "vosotros", "voy", "y", "ya", "yo",
    "él",
];

/// Finnish.
#[rustfmt::skip]
const FI: &[&str] = &[
    "asti", "ei", "eikö", "eivät", "eli", "emme", "en", "ennen", "et", "ette", "että", "he", "heidän", "heille",
    "heillä", "heitä", "hän", "hänelle", "hänen", "häntä", "ihan", "ilman", "itse", "ja", "jo", "johon",
    "joita", "joka", "jokin", "joku", "jonka", "jos", "jossa", "josta", "jota", "jotain", "jotka", "jotta",
    "jälkeen", "kaikki", "kanssa", "kenen", "koska", "kuin", "kuka", "kukaan", "kumpi", "kun", "me", "meidän",
    "meille", "meillä", "meitä", "mihin", "miksi", "mikä", "milloin", "minkä", "minua", "minulla", "minulle",
    "minun", "minä", "missä", "mistä", "miten", "mitä", "mitään", "mulla", "mulle", "mutta", "myös", "mä", "ne",
    "niiden", "niin", "niitä", "näitä", "nämä", "ole", "olemme", "olen", "olet", "oletko", "olette", "oli",
    "oliko", "olimme", "olin", "olisi", "olisin", "olisivat", "olit", "olivat", "olla", "ollut", "on", "onko",
    "ovat", "se", "sekä", "sen", "siellä", "siihen", "siinä", "siis", "siitä", "sille", "sillä", "sinne",
    "sinua", "sinulla", "sinulle", "sinun", "sinä", "sitten", "sitä", "sä", "tai", "te", "teidän", "teille",
    "teillä", "teitä", "tuo", "tuon", "tuota", "tähän", "tällä", "tämä", "tämän", "tänne", "tässä", "tästä",
    "tätä", "täällä", "vaan", "vaikka", "vain", "varten", "vielä", "voiko", "voimme", "voin", "voinko", "voisi",
    "voisin", "voit", "voitko", "voitte", "voivat", "älä",
];

/// French.
#[rustfmt::skip]
const FR: &[&str] = &[
    "a", "afin", "ai", "allez", "alors", "après", "as", "au", "aujourdhui", "aura", "aurait", "aussi", "aux",
    "avaient", "avais", "avait", "avant", "avec", "avez", "avoir", "avons", "ca", "ce", "ceci", "cela", "celle",
    "celui", "ces", "cest", "cet", "cette", "ceux", "chez", "combien", "comme", "comment", "contre", "cétait",
    "dans", "de", "depuis", "des", "devez", "dois", "doit", "donc", "dont", "du", "dun", "dune", "déjà", "elle",
    "elles", "en", "encore", "entre", "es", "est", "et", "eu", "eux", "ici", "il", "ils", "jai", "je", "jusque",
    "jusquà", "la", "le", "les", "leur", "leurs", "lon", "lorsque", "lui", "là", "ma", "mais", "me", "mes",
    "moi", "mon", "même", "nai", "ne", "nest", "ni", "nos", "notre", "nous", "on", "ont", "ou", "où", "par",
    "parce", "pas", "pendant", "peut", "peuvent", "peux", "plus", "pour", "pourquoi", "pourrais", "pourrait",
    "pourriez", "pouvez", "pouvons", "puisque", "quand", "que", "quel", "quelle", "quelles", "quels", "qui",
    "quil", "quils", "quoi", "quon", "quun", "quune", "sa", "sans", "se", "sera", "serai", "serait", "seront",
    "ses", "si", "sil", "sils", "soit", "sommes", "son", "sont", "sous", "suis", "sur", "ta", "te", "tes",
    "toi", "ton", "tous", "tout", "toute", "toutes", "très", "tu", "un", "une", "va", "vais", "vers", "veut",
    "veux", "vont", "vos", "votre", "voudrais", "voulez", "vous", "y", "à", "ça", "étaient", "étais", "était",
    "êtes", "être",
];

/// Hungarian.
#[rustfmt::skip]
const HU: &[&str] = &[
    "a", "abban", "ahhoz", "ahogy", "ahol", "aki", "akik", "akit", "akkor", "alatt", "amely", "ami", "amikor",
    "amit", "annak", "arra", "az", "azok", "azonban", "azt", "azzal", "be", "benne", "bár", "csak", "de",
    "ebben", "egy", "ehhez", "el", "ellen", "előtt", "engem", "ennek", "erre", "ez", "ezek", "ezt", "ezzel",
    "fel", "felé", "fog", "ha", "hanem", "hogy", "hogyan", "hol", "honnan", "hova", "ide", "illetve", "ilyen",
    "is", "itt", "kell", "ki", "kit", "között", "le", "legyen", "lehet", "lenne", "lenni", "lesz", "leszek",
    "majd", "meg", "mellett", "mely", "melyik", "mennyi", "mert", "mi", "miatt", "mikor", "milyen", "mind",
    "minden", "minket", "mint", "mit", "mivel", "miért", "már", "még", "míg", "ne", "neked", "nekem", "neki",
    "nekik", "nektek", "nekünk", "nem", "nincs", "nélkül", "oda", "olyan", "ott", "pedig", "rá", "rám", "s",
    "se", "sem", "semmi", "senki", "szerint", "te", "tehát", "ti", "téged", "ugye", "után", "vagy", "vagyok",
    "vagyunk", "valaki", "valami", "valamint", "van", "vannak", "vele", "velem", "volna", "volt", "voltak",
    "voltam", "által", "át", "én", "és", "így", "óta", "ön", "önnek", "önök", "úgy", "ő", "ők", "őket", "őt",
];

/// Italian.
#[rustfmt::skip]
const IT: &[&str] = &[
    "a", "abbiamo", "ad", "agli", "ai", "al", "alla", "alle", "allo", "allora", "altra", "altre", "altri",
    "altro", "anche", "ancora", "avere", "avete", "aveva", "avevo", "avuto", "che", "chi", "ci", "ciò", "col",
    "come", "comè", "con", "cosè", "così", "cui", "cè", "da", "dai", "dal", "dalla", "dalle", "degli", "dei",
    "del", "della", "delle", "dello", "deve", "devo", "di", "dopo", "dove", "dovè", "e", "ed", "era", "erano",
    "ero", "essere", "fino", "fra", "già", "gli", "ha", "hai", "hanno", "ho", "i", "il", "in", "io", "la", "le",
    "lei", "lo", "loro", "lui", "lì", "ma", "me", "mentre", "mi", "mia", "mie", "miei", "mio", "molto", "ne",
    "nei", "nel", "nella", "nelle", "nello", "nessuno", "noi", "non", "nostra", "nostre", "nostri", "nostro",
    "né", "o", "ogni", "per", "perche", "perché", "però", "più", "poi", "possiamo", "posso", "possono",
    "potete", "potrebbe", "potrei", "puoi", "può", "qua", "qualche", "quale", "quali", "quando", "quanta",
    "quanti", "quanto", "quel", "quella", "quelle", "quelli", "quello", "questa", "queste", "questi", "questo",
    "qui", "quindi", "sarebbe", "sarà", "se", "senza", "si", "sia", "siamo", "siano", "siete", "solo", "sono",
    "sta", "stanno", "stata", "stato", "sto", "su", "sua", "sue", "sui", "sul", "sulla", "sulle", "suo", "suoi",
    "te", "ti", "tra", "tu", "tua", "tue", "tuo", "tuoi", "tutta", "tutte", "tutti", "tutto", "un", "una",
    "uno", "verso", "vi", "voi", "vorrei", "vostra", "vostro", "è",
];

/// Dutch.
#[rustfmt::skip]
const NL: &[&str] = &[
    "aan", "al", "alle", "alleen", "als", "andere", "ben", "bent", "bij", "daar", "daarom", "daarvoor", "dan",
    "dat", "de", "deze", "die", "dit", "door", "dus", "een", "eens", "elk", "elke", "en", "er", "eraan", "erop",
    "ervan", "geen", "gehad", "geweest", "geworden", "haar", "had", "hadden", "heb", "hebben", "hebt", "heeft",
    "hem", "hen", "het", "hier", "hiervoor", "hij", "hoe", "hoewel", "hun", "ieder", "iemand", "iets", "ik",
    "in", "is", "je", "jij", "jou", "jouw", "jullie", "kan", "kon", "konden", "kun", "kunnen", "kunt", "maar",
    "mag", "me", "meer", "men", "met", "mij", "mijn", "moest", "moet", "moeten", "mogen", "na", "naar",
    "niemand", "niet", "niets", "nog", "nou", "of", "om", "omdat", "onder", "ons", "onze", "ook", "op", "over",
    "sinds", "te", "tegen", "ten", "ter", "terwijl", "tijdens", "toch", "toen", "tot", "tussen", "u", "uit",
    "uw", "van", "voor", "waar", "waarom", "waarvoor", "wanneer", "want", "waren", "was", "wat", "we", "wel",
    "welk", "welke", "werd", "werden", "wie", "wij", "wil", "willen", "wilt", "word", "worden", "wordt", "zal",
    "ze", "zelf", "zich", "zij", "zijn", "zo", "zodat", "zonder", "zou", "zouden", "zullen", "zult",
];

/// Norwegian.
#[rustfmt::skip]
const NO: &[&str] = &[
    "alle", "alt", "andre", "annet", "at", "av", "bare", "ble", "bli", "blir", "blitt", "burde", "både", "bør",
    "da", "de", "deg", "dem", "den", "denne", "der", "dere", "deres", "derfor", "det", "dette", "di", "din",
    "dine", "disse", "ditt", "du", "ei", "eller", "en", "enda", "enn", "ennå", "er", "et", "etter", "for",
    "fordi", "fra", "før", "gjennom", "ha", "hadde", "ham", "han", "hans", "har", "hatt", "heller", "henne",
    "hennes", "her", "hos", "hun", "hva", "hvem", "hver", "hvert", "hvilke", "hvilken", "hvilket", "hvis",
    "hvor", "hvordan", "hvorfor", "i", "ikke", "ingen", "ingenting", "inn", "jeg", "jo", "kan", "kunne", "man",
    "med", "meg", "mellom", "men", "mens", "mer", "mi", "min", "mine", "mitt", "mot", "må", "måtte", "noe",
    "noen", "nå", "når", "og", "også", "om", "opp", "oss", "over", "på", "seg", "selv", "selvom", "siden",
    "sin", "sine", "sitt", "skal", "skulle", "som", "så", "til", "under", "ut", "uten", "var", "ved", "veldig",
    "vi", "vil", "ville", "vår", "våre", "vårt", "være", "vært",
];

/// Portuguese.
#[rustfmt::skip]
const PT: &[&str] = &[
    "a", "ainda", "algo", "algum", "alguma", "alguém", "ali", "ao", "aos", "aquela", "aquele", "aqui", "aquilo",
    "as", "assim", "até", "aí", "cada", "com", "como", "contra", "da", "das", "de", "dela", "delas", "dele",
    "deles", "desde", "do", "dos", "e", "ela", "elas", "ele", "eles", "em", "embora", "enquanto", "entre",
    "então", "era", "eram", "essa", "essas", "esse", "esses", "esta", "estamos", "estar", "estas", "estava",
    "estavam", "este", "estes", "estou", "está", "estão", "eu", "foi", "foram", "fui", "havia", "há", "isso",
    "isto", "já", "lhe", "lhes", "lá", "mais", "mas", "me", "meu", "meus", "mim", "minha", "minhas", "muito",
    "na", "nao", "nas", "nem", "no", "nos", "nossa", "nossas", "nosso", "nossos", "num", "numa", "não", "nós",
    "o", "onde", "os", "ou", "outra", "outras", "outro", "outros", "para", "pela", "pelas", "pelo", "pelos",
    "pode", "podem", "podemos", "poderia", "pois", "por", "porque", "posso", "pra", "quais", "qual", "quando",
    "quanta", "quanto", "quantos", "que", "quem", "quê", "se", "seja", "sejam", "sem", "sendo", "ser", "seria",
    "seu", "seus", "si", "sido", "sob", "sobre", "somos", "sou", "sua", "suas", "são", "só", "tambem", "também",
    "te", "tem", "temos", "tenho", "ter", "teu", "teve", "ti", "tinha", "tinham", "toda", "todas", "todo",
    "todos", "tu", "tua", "tudo", "tá", "têm", "um", "uma", "umas", "uns", "vai", "vamos", "voce", "você",
    "vocês", "vou", "vão", "à", "às", "é",
];

/// Romanian.
#[rustfmt::skip]
const RO: &[&str] = &[
    "a", "aceasta", "această", "aceea", "acel", "acela", "acele", "acest", "acesta", "aceste", "acești",
    "acolo", "ai", "aici", "al", "ale", "alt", "alte", "altă", "am", "ar", "are", "asta", "atunci", "au",
    "avea", "aveam", "avem", "aveți", "avut", "aş", "aţi", "aș", "așa", "ați", "ca", "cand", "care", "cat",
    "ce", "cea", "cei", "cel", "cele", "ceva", "ci", "cine", "cineva", "cu", "cui", "cum", "când", "cât",
    "câte", "câți", "că", "daca", "dacă", "dar", "de", "deja", "deoarece", "despre", "deși", "din", "dintre",
    "doar", "dumneavoastră", "după", "e", "ea", "ei", "el", "ele", "era", "eram", "erau", "este", "eu", "eşti",
    "ești", "fi", "fie", "fiecare", "foarte", "fost", "fără", "iar", "imi", "in", "iti", "la", "le", "lor",
    "lui", "lângă", "ma", "mai", "mea", "mei", "mele", "meu", "mi", "mie", "mă", "ne", "nici", "nimic", "niște",
    "noastre", "noastră", "noi", "nostru", "nu", "o", "pe", "pentru", "peste", "poate", "pot", "poți", "prin",
    "putem", "puteți", "până", "sa", "sale", "sau", "se", "si", "spre", "sub", "sunt", "suntem", "sunteți",
    "să", "său", "ta", "tale", "te", "tine", "toate", "tot", "toți", "tu", "tău", "un", "unde", "unei", "unui",
    "va", "vei", "veți", "voastră", "voi", "vom", "vor", "vostru", "vă", "îi", "îl", "îmi", "în", "însă",
    "între", "îţi", "își", "îți", "şi", "și",
];

/// Swedish.
#[rustfmt::skip]
const SV: &[&str] = &[
    "alla", "allt", "annan", "annat", "att", "av", "bara", "blev", "bli", "blir", "blivit", "borde", "både",
    "bör", "de", "dem", "den", "denna", "deras", "dessa", "det", "detta", "dig", "din", "dina", "dit", "ditt",
    "dom", "du", "där", "därför", "då", "efter", "eftersom", "ej", "eller", "en", "er", "era", "ert", "ett",
    "från", "får", "för", "före", "genom", "ha", "hade", "haft", "han", "hans", "har", "henne", "hennes", "hit",
    "hon", "honom", "hos", "hur", "här", "i", "in", "inga", "ingen", "inget", "innan", "inte", "jag", "ju",
    "kan", "kunde", "man", "med", "medan", "mej", "mellan", "men", "mer", "mig", "min", "mina", "mitt", "mot",
    "må", "måste", "ni", "nu", "när", "någon", "något", "några", "och", "också", "om", "oss", "på", "sedan",
    "sig", "sin", "sina", "sitt", "själv", "ska", "skall", "skulle", "som", "så", "till", "under", "upp", "ur",
    "ut", "utan", "vad", "var", "vara", "varför", "varit", "varje", "vem", "vi", "vid", "vilka", "vilken",
    "vilket", "vill", "ville", "väl", "vår", "våra", "vårt", "än", "ännu", "är", "åt", "över",
];

/// Turkish.
#[rustfmt::skip]
const TR: &[&str] = &[
    "ama", "ancak", "artık", "bana", "bazı", "ben", "bende", "benden", "beni", "benim", "benimle", "beri",
    "bile", "bir", "biz", "bize", "bizi", "bizim", "bu", "buna", "bunlar", "bunu", "bunun", "burada", "böyle",
    "bütün", "cok", "da", "daha", "de", "degil", "değil", "diye", "en", "eğer", "fakat", "gibi", "göre",
    "hangi", "hem", "hep", "her", "herkes", "hiç", "hâlâ", "icin", "idi", "ile", "ise", "için", "içinde",
    "kadar", "karşı", "kaç", "kendi", "kendim", "ki", "kim", "kime", "kimin", "mi", "misin", "misiniz", "miyim",
    "mu", "musun", "musunuz", "mü", "müsün", "müsünüz", "mı", "mısın", "mısınız", "mıyım", "nasıl", "ne",
    "neden", "nerede", "nereden", "nereye", "niye", "niçin", "o", "olacak", "olan", "olarak", "oldu", "olması",
    "olsa", "olur", "ona", "onlar", "onlara", "onları", "onların", "onu", "onun", "orada", "rağmen", "sadece",
    "sana", "sen", "seni", "senin", "siz", "size", "sizi", "sizin", "sizinle", "sonra", "tüm", "var", "vardı",
    "ve", "veya", "ya", "yani", "yok", "yoksa", "yoktu", "çok", "çünkü", "önce", "öyle", "üzere", "üzerinde",
    "şey", "şu", "şunu", "şöyle",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{analyze, stem::LANGUAGES};

    #[test]
    fn the_words_are_sorted_tokens_without_duplicates() {
        for ((code, ..), words) in LANGUAGES.iter().zip(FUNCTION_WORDS) {
            assert!((60..=180).contains(&words.len()), "{code}: {}", words.len());
            assert!(words.is_sorted_by(|a, b| a < b), "{code}");
            for word in words {
                let terms: Vec<String> = analyze(word).into_iter().map(|token| token.term).collect();
                assert_eq!(terms, [*word], "{code}");
            }
        }
    }

    #[test]
    fn contractions_are_in_the_form_of_the_analyzer() {
        let is_listed = |code: &str, text: &str| {
            let n = LANGUAGES.iter().position(|language| language.0 == code).unwrap();
            analyze(text).iter().all(|token| FUNCTION_WORDS[n].contains(&token.term.as_str()))
        };
        assert!(is_listed("en", "I'm don’t what's IT'S"));
        assert!(is_listed("fr", "C'est qu’il n'est J'ai"));
        assert!(is_listed("it", "C'è dov’è"));
        assert!(!is_listed("en", "deliveries") && !is_listed("fr", "l'eau"));
    }
}
