//! Tests of tokenizers from `tokenizer.json` and from vocabulary files, of truncation, and of mismatched tokenizers.

use serde_json::{Value, json};

use crate::folder::{Tokenizer, tests::*};

/// Returns the ids of the given tokens, which must be in [`VOCABULARY`].
fn ids(tokens: &[&str]) -> Vec<u32> {
    tokens.iter().map(|t| VOCABULARY.iter().position(|v| v == t).unwrap() as u32).collect()
}

fn open(builder: &mut Builder) -> Tokenizer {
    builder.open().unwrap().tokenizer().unwrap()
}

fn pieces(settings: Value, text: &str) -> Vec<u32> {
    let mut builder = Builder::bert();
    builder.json("tokenizer_config.json", &settings);
    open(&mut builder).pieces(text).unwrap()
}

/// Returns the tokenizer of a model in the format of `tokenizer.json`.
fn as_json(builder: &mut Builder) -> Value {
    serde_json::from_str(&open(builder).to_json().unwrap()).unwrap()
}

#[test]
fn a_vocabulary_becomes_word_pieces() {
    let tokenizer = open(&mut Builder::bert());
    let text = tokenizer.encode("Hello worlds, ABC [SEP] x").unwrap();
    let expected = ["[CLS]", "hello", "world", "##s", "[UNK]", "a", "##b", "##c", "[SEP]", "[UNK]", "[SEP]"];
    assert_eq!((text.ids, text.cut), (ids(&expected), 0));
    assert_eq!(tokenizer.pieces("hello").unwrap(), ids(&["hello"]));
    assert_eq!(tokenizer.encode("").unwrap().ids, ids(&["[CLS]", "[SEP]"]));
    let specials = tokenizer.specials();
    assert_eq!(
        [specials.pad, specials.cls, specials.sep, specials.mask],
        [Some(0), Some(2), Some(3), Some(4)]
    );
    assert_eq!((tokenizer.before(), tokenizer.after()), (&[2][..], &[3][..]));
    assert_eq!(
        (tokenizer.vocabulary(), tokenizer.id("好"), tokenizer.token(5).unwrap()),
        (20, Some(17), "hello".into())
    );
}

#[test]
fn settings_of_the_class_are_applied() {
    assert_eq!(pieces(json!({}), "Hello é 你好"), ids(&["hello", "e", "你", "好"]));
    assert_eq!(pieces(json!({ "do_lower_case": false }), "Hello é"), ids(&["Hello", "é"]));
    assert_eq!(pieces(json!({ "strip_accents": false }), "É"), ids(&["é"]));
    assert_eq!(
        pieces(json!({ "do_lower_case": false, "strip_accents": true }), "Hello é"),
        ids(&["Hello", "e"])
    );
    assert_eq!(pieces(json!({ "tokenize_chinese_chars": false }), "你好"), ids(&["[UNK]"]));
}

#[test]
fn settings_override_the_file_with_a_notice() {
    let mut builder = Builder::bert();
    let file = as_json(&mut builder);
    builder.json("tokenizer.json", &file);
    builder.json(
        "tokenizer_config.json",
        &json!({ "do_lower_case": false, "tokenizer_class": "BertTokenizerFast" }),
    );
    let tokenizer = open(&mut builder);
    assert_eq!(tokenizer.pieces("Hello").unwrap(), ids(&["Hello"]));
    assert!(tokenizer.notices()[0].contains("differ in lower-casing"), "{:?}", tokenizer.notices());
    // `PreTrainedTokenizerFast` reads only `tokenizer.json`.
    builder.json(
        "tokenizer_config.json",
        &json!({ "do_lower_case": false, "tokenizer_class": "PreTrainedTokenizerFast" }),
    );
    assert_eq!(open(&mut builder).pieces("Hello").unwrap(), ids(&["hello"]));
}

#[test]
fn lower_casing_of_sentence_transformers_comes_first() {
    let mut builder = Builder::bert();
    builder.sentence(&json!({ "do_lower_case": true }));
    builder.json("tokenizer_config.json", &json!({ "do_lower_case": false }));
    assert_eq!(open(&mut builder).pieces("Hello É").unwrap(), ids(&["hello", "é"]));
}

#[test]
fn padding_and_truncation_in_the_file_are_ignored() {
    let mut builder = Builder::bert();
    let plain = as_json(&mut builder);
    let mut file = plain.clone();
    file["padding"] = json!({ "strategy": { "Fixed": 12 }, "direction": "Right", "pad_to_multiple_of": null,
                              "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]" });
    file["truncation"] =
        json!({ "max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right" });
    builder.json("tokenizer.json", &file);
    assert_eq!(open(&mut builder).encode("a b c a b c").unwrap().ids.len(), 8);
    assert_eq!(as_json(&mut builder), plain);
}

#[test]
fn long_texts_are_cut_and_counted() {
    let mut builder = Builder::bert();
    builder.sentence(&json!({ "max_seq_length": 5 }));
    let cut = open(&mut builder).encode("a b c a b c").unwrap();
    assert_eq!((cut.ids, cut.cut), (ids(&["[CLS]", "a", "b", "c", "[SEP]"]), 3));
    let whole = open(&mut builder).encode("a b c").unwrap();
    assert_eq!((whole.ids.len(), whole.cut), (5, 0));
    builder.json("tokenizer_config.json", &json!({ "truncation_side": "left" }));
    let cut = open(&mut builder).encode("a b c a b hello").unwrap();
    assert_eq!((cut.ids, cut.cut), (ids(&["[CLS]", "a", "b", "hello", "[SEP]"]), 3));
    builder.sentence(&json!({ "max_seq_length": 2 }));
    builder.refused(&["2 special tokens", "no space"]);
}

#[test]
fn bytes_and_merges() {
    let mut builder = Builder::roberta();
    let tokenizer = open(&mut builder);
    // The tokens are `<s>`, `hell`, `o`, `Ġ`, `hell`, `a` and `</s>`.
    assert_eq!(tokenizer.encode("hello hella").unwrap().ids, [0, 12, 8, 9, 12, 13, 2]);
    let specials = tokenizer.specials();
    assert_eq!(
        [specials.cls, specials.sep, specials.pad, specials.mask],
        [Some(0), Some(2), Some(1), Some(4)]
    );
    assert_eq!(tokenizer.pieces("a<mask>").unwrap(), [13, 4]);
    builder.json("tokenizer_config.json", &json!({ "add_prefix_space": true }));
    assert_eq!(open(&mut builder).pieces("hello").unwrap(), [9, 12, 8]);
    builder.remove("merges.txt");
    builder.refused(&["merges.txt is missing"]);
}

#[test]
fn pieces_of_sentences() {
    let mut builder = Builder::roberta();
    builder.set("model_type", json!("xlm-roberta"));
    builder.remove("vocab.json");
    builder.refused(&["contains no tokenizer.json"]);
    let pieces =
        ["<s>", "<pad>", "</s>", "<unk>", "▁", "h", "e", "l", "o", "▁hello", "▁a", "a", "b", "<mask>"];
    let pieces: Vec<(&str, f64)> = pieces.into_iter().zip((0..).map(|n| -f64::from(n))).collect();
    builder.json(
        "tokenizer.json",
        &json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": { "type": "NFKC" },
            "pre_tokenizer": { "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true },
            "post_processor": null, "decoder": null, "model": { "type": "Unigram", "unk_id": 3, "vocab": pieces },
        }),
    );
    let tokenizer = open(&mut builder);
    // The file has no rule for special tokens, so the rule of the class applies.
    assert_eq!(tokenizer.encode("hello a").unwrap().ids, [0, 9, 10, 2]);
    assert!(tokenizer.notices()[0].contains("transformers 5 ignores it"), "{:?}", tokenizer.notices());
    builder.json("tokenizer_config.json", &json!({ "tokenizer_class": "PreTrainedTokenizerFast" }));
    let tokenizer = open(&mut builder);
    assert_eq!(tokenizer.encode("hello a").unwrap().ids, [9, 10]);
    assert!(tokenizer.notices()[0].contains("no special tokens"), "{:?}", tokenizer.notices());
}

#[test]
fn tokenizers_of_other_models() {
    let with = |vocabulary: &[String]| {
        let builder = Builder::bert();
        builder.write("vocab.txt", &vocabulary.join("\n"));
        builder
    };
    let own: Vec<String> = VOCABULARY.map(str::to_owned).into();
    let many: Vec<String> = own.iter().cloned().chain((0..5).map(|n| format!("more{n}"))).collect();
    with(&many).refused(&["has 25 tokens", "only 24 word embeddings"]);
    with(&own[..10]).refused(&["only 10 tokens", "has 24 word embeddings"]);
    with(&own[..12]).open().unwrap().tokenizer().unwrap();
    let unframed: Vec<String> = own.iter().map(|t| t.replace("[SEP]", "[END]")).collect();
    with(&unframed).refused(&["the special token `[SEP]`"]);
    let mut builder = Builder::roberta();
    builder.set("pad_token_id", json!(3));
    builder.refused(&["padding id of the tokenizer is 1", "`pad_token_id` in config.json is 3"]);
    // One id has no embedding, although the vocabulary is not larger than the embedding table.
    let mut builder = Builder::bert();
    let mut file = as_json(&mut builder);
    file["model"]["vocab"]["world"] = json!(24);
    builder.json("tokenizer.json", &file);
    let tokenizer = open(&mut builder);
    assert!(tokenizer.encode("hello").is_ok());
    let error = tokenizer.encode("world").unwrap_err().to_string();
    assert!(error.contains("id 24") && error.contains("24 word embeddings"), "{error}");
}

#[test]
fn invalid_tokenizer_files() {
    let mut builder = Builder::bert();
    builder.write("tokenizer.json", "{\n\"version\": \"1.0\",\n");
    builder.refused(&["tokenizer.json:", "invalid tokenizer"]);
    builder.write("tokenizer.json", "{\"version\": \"1.0\", \"model\": 3}");
    builder.refused(&["tokenizer.json:1", "invalid tokenizer"]);
    builder.remove("tokenizer.json");
    builder.remove("vocab.txt");
    builder.refused(&["contains no tokenizer.json and no vocab.txt"]);
    builder.write("sentencepiece.bpe.model", "");
    let hint = builder.refused(&["contains no tokenizer.json"]);
    assert!(hint.contains("AutoTokenizer"), "{hint}");
}
