//! Two thousand texts: unusual texts of every kind, and turns of the sample corpus. Many of the turns are cut,
//! joined or changed.

use std::{collections::HashSet, fs, path::Path};

use serde_json::Value;

/// Number of texts.
pub const COUNT: usize = 2000;

/// Number of texts with stored vectors.
pub const STORED: usize = 300;

/// Returns all texts. They are the same in every call; the unusual texts come first.
pub fn all() -> Vec<String> {
    let mut texts = odd();
    let turns = samples();
    let mut draw = Draw(7);
    let mut seen: HashSet<String> = texts.iter().cloned().collect();
    while texts.len() < COUNT {
        let text = made(&turns, &mut draw);
        if seen.insert(text.clone()) {
            texts.push(text);
        }
    }
    texts
}

/// Returns the texts with stored vectors: all unusual texts and some of the others.
pub fn stored() -> Vec<String> {
    let all = all();
    let odd = odd().len();
    let others = STORED - odd;
    let step = (all.len() - odd) / others;
    let chosen = (0..odd).chain((0..others).map(|n| odd + n * step));
    chosen.map(|n| all[n].clone()).collect()
}

/// Returns the turns of the sample corpus.
fn samples() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/support");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "jsonl"));
    files.sort();
    let mut turns = Vec::new();
    for file in files {
        for line in fs::read_to_string(file).unwrap().lines() {
            let dialogue: Value = serde_json::from_str(line).unwrap();
            let texts = dialogue["turns"].as_array().unwrap().iter();
            turns.extend(texts.map(|turn| turn["text"].as_str().unwrap().to_owned()));
        }
    }
    turns
}

/// Generates a text from turns: whole, cut, joined or reversed, sometimes in uppercase or with inserted characters.
fn made(turns: &[String], draw: &mut Draw) -> String {
    let turn = &turns[draw.below(turns.len())];
    let chars: Vec<char> = turn.chars().collect();
    let text: String = match draw.below(20) {
        0..=6 => turn.clone(),
        // Cut at any position, also within a word or before a combining mark.
        7..=12 => {
            let from = draw.below(chars.len());
            let length = 1 + draw.below((chars.len() - from).min(60));
            chars[from..from + length].iter().collect()
        }
        13..=15 => turn.split_whitespace().take(1 + draw.below(3)).collect::<Vec<_>>().join(" "),
        16..=18 => (0..2 + draw.below(3))
            .map(|_| turns[draw.below(turns.len())].as_str())
            .collect::<Vec<_>>()
            .join(" "),
        // A few texts that are longer than the maximum of every model. Only a few, because they are slow.
        _ => match draw.below(4) {
            0 => (0..25).map(|_| turns[draw.below(turns.len())].as_str()).collect::<Vec<_>>().join("\n"),
            _ => chars.iter().rev().collect(),
        },
    };
    match draw.below(8) {
        0 => text.to_uppercase(),
        1 => disturbed(&text, draw),
        _ => text,
    }
}

/// Inserts a few unusual characters.
fn disturbed(text: &str, draw: &mut Draw) -> String {
    const STRANGERS: [&str; 16] = [
        "😀",
        "👩‍🔧",
        "\u{200b}",
        "\u{0}",
        "\u{7}",
        "\t",
        "\u{ad}",
        "\u{301}",
        "中",
        "\u{feff}",
        "\u{202e}",
        "  ",
        "\u{a0}",
        "ﬁ",
        "\r\n",
        "\u{fffd}",
    ];
    let mut chars: Vec<String> = text.chars().map(String::from).collect();
    for _ in 0..1 + draw.below(4) {
        let place = draw.below(chars.len() + 1);
        chars.insert(place, STRANGERS[draw.below(STRANGERS.len())].to_owned());
    }
    chars.concat()
}

/// Pseudo-random number generator (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % end as u64).unwrap()
    }
}

/// Returns the unusual texts.
fn odd() -> Vec<String> {
    const PLAIN: &[&str] = &[
        // Empty or nearly empty texts.
        "",
        " ",
        "    ",
        "\t",
        "\n",
        "\r\n\r\n",
        "\u{a0}",
        "\u{3000}",
        "\u{200b}",
        "\u{200b}\u{200d}\u{feff}",
        "\u{0}",
        "\u{1}\u{2}\u{1f}",
        "\u{7f}",
        "\u{85}",
        "\u{2028}",
        "\u{ad}",
        "\u{fffd}",
        "\u{e000}",
        "\u{10ffff}",
        "\u{301}",
        // A single character or word.
        "a",
        "I",
        "7",
        ".",
        "?",
        "-",
        "…",
        "“",
        "€",
        "hello",
        "Hello",
        "HELLO",
        " hello",
        "hello ",
        "\thello\n",
        "ok",
        "no!",
        "yes",
        "é",
        "ß",
        "İ",
        "ı",
        "ſ",
        "Σ",
        "ς",
        "ǆ",
        "ﬁ",
        "½",
        "①",
        "ª",
        "中",
        "あ",
        "한",
        "ก",
        "א",
        "ب",
        "अ",
        "𝔘",
        "𠀀",
        "😀",
        // Emoji, also with joiners.
        "👍🏽",
        "👩‍👩‍👧‍👦",
        "🏳️‍🌈",
        "🇩🇪🇯🇵",
        "1️⃣2️⃣",
        "great 😀 thanks 🙏",
        "😀😀😀😀😀😀",
        "❤️",
        "❤",
        "☎ 030 1234",
        // Non-Latin scripts.
        "我的包裹还没有到",
        "请问 order 4417 什么时候到？",
        "注文をキャンセルしたいです。",
        "カタカナと漢字とひらがな",
        "환불은 언제 되나요?",
        "Где мой заказ?",
        "Πού είναι η παραγγελία μου;",
        "מתי מגיע המשלוח?",
        "أين طلبي من فضلك؟",
        "मेरा ऑर्डर कहाँ है?",
        "ออเดอร์ของฉันอยู่ที่ไหน",
        "Đơn hàng của tôi đâu?",
        "Wo bleibt mein Päckchen, Herr Weiß?",
        "¿Dónde está mi pedido, señor?",
        "Çok teşekkürler, İstanbul'a gönderin",
        "où est-ce que ça coûte 5 € ?",
        "Žluťoučký kůň",
        "mixed 中文 и русский and العربية in one",
        // Different encodings of the same letters.
        "cafe\u{301}",
        "café",
        "Å Å Å",
        "ＦＵＬＬ ｗｉｄｔｈ １２３",
        "𝐛𝐨𝐥𝐝 𝒊𝒕𝒂𝒍𝒊𝒄",
        "ⅷ Ⅷ",
        "한국",
        "\u{1112}\u{1161}\u{11ab}",
        "z\u{335}a\u{310}l\u{35c}g\u{489}o",
        "naïve naïve NAÏVE",
        "ﬀ ﬃ ﬄ",
        "Ǆungla ǅ ǆ",
        "ΟΔΥΣΣΕΥΣ",
        "STRASSE straße",
        // Invisible characters between letters.
        "zero\u{200b}width",
        "joined\u{200d}letters",
        "soft\u{ad}hyphen",
        "\u{feff}mark in front",
        "\u{202e}backwards\u{202c} again",
        "a\u{0}b",
        "bell\u{7}bell",
        "line\nbreak",
        "line\r\nbreak",
        "line\u{2028}separator",
        "next\u{85}line",
        "tab\tstop",
        "form\u{c}feed",
        "esc\u{1b}[31mred",
        "non\u{a0}breaking",
        "thin\u{2009}space",
        "del\u{7f}ete",
        "var\u{fe0f}iation",
        "tag\u{e0041}ged",
        // Special tokens of tokenizers.
        "[CLS]",
        "[SEP]",
        "[PAD]",
        "[UNK]",
        "[MASK]",
        "[CLS] twice [SEP]",
        "ask [SEP] answer",
        "[PAD] [PAD] [PAD]",
        "a [MASK] day",
        "<s>",
        "</s>",
        "<pad>",
        "<unk>",
        "<mask>",
        "<s> within </s> text",
        "##ing",
        "## ing ##",
        "▁low line",
        "Ġspace",
        "@@",
        "[unused7]",
        "[cls]",
        // Numbers, addresses, code and punctuation.
        "1234567890",
        "3.14159",
        "1,000,000.00",
        "€5",
        "50%",
        "+49 (30) 901820",
        "2025-05-14T06:52:00Z",
        "12:30",
        "ann@example.org",
        "https://example.org/a?b=c&d=e#f",
        "C:\\Users\\ann\\file.txt",
        "{\"id\": 7, \"ok\": true}",
        "if (a && b) { return a->b; }",
        "SELECT * FROM turns;",
        "<b>bold</b> &amp; more",
        "a_b-c.d/e\\f",
        "!!!???...",
        "----------",
        "(((((())))))",
        "'''\"\"\"```",
        "~!@#$%^&*()_+",
        "don't can't won't it's",
        "don’t can’t",
        "e.g. i.e. etc.",
        "semi;colon:comma,dot.",
        "¡¿§¶†‡•",
        "→ ← ↑ ↓",
        "∑∫√∞≠",
        "™®©",
        "«quoted» „quoted“ ‚quoted‘",
        "–—―",
        "   spaces   between   words   ",
        "UPPER lower MiXeD cAsE",
        "ALLCAPS!!!",
        "x",
        "x x x x x x x x",
        "no no no no no no no no no no no no",
    ];
    let mut texts: Vec<String> = PLAIN.iter().map(|text| (*text).to_owned()).collect();
    // Words around the maximum length of WordPiece, and much longer words.
    texts.extend([99, 100, 101, 200, 5000].map(|n| "a".repeat(n)));
    texts.extend([100, 101].map(|n| format!("before {} after", "é".repeat(n))));
    texts.push("Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen".repeat(3));
    texts.push("中".repeat(600));
    texts.push("😀".repeat(300));
    texts.push("7".repeat(90));
    // Texts around the maximum length of the model (256 with the two special tokens) and around 512, its number of
    // positions.
    texts.extend([252, 253, 254, 255, 256, 509, 510, 511, 2000].map(|n| vec!["word"; n].join(" ")));
    texts.extend([1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144].map(|n| vec!["again and"; n].join(" ")));
    texts.push(vec!["[SEP]"; 300].join(" "));
    texts.push(format!("{}needle", " ".repeat(3000)));
    texts
}

#[test]
fn the_texts_have_their_declared_properties() {
    let texts = all();
    assert_eq!(texts.len(), COUNT);
    assert_eq!(texts, all());
    let different: HashSet<&String> = texts.iter().collect();
    assert_eq!(different.len(), COUNT, "some texts are duplicates");
    let stored = stored();
    assert_eq!(stored.len(), STORED);
    assert!(odd().len() < STORED - 50, "{} odd texts leave too little room for others", odd().len());
    assert!(stored.iter().all(|text| different.contains(text)));
    for (what, fits) in [
        ("empty", (|t: &str| t.is_empty()) as fn(&str) -> bool),
        ("emoji", |t| t.contains('😀')),
        ("Chinese", |t| t.contains('的')),
        ("control characters", |t| t.contains('\u{7}')),
        ("over-long", |t| t.split_whitespace().count() > 400),
    ] {
        assert!(texts.iter().filter(|t| fits(t)).count() > usize::from(what != "empty"), "no text is {what}");
    }
}
