//! Files of a tokenizer: `tokenizer.json`, or the vocabulary files of older models.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};
use tokenizers::{
    NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    models::ModelWrapper,
    normalizers::{Lowercase, Sequence},
};
use turnwise_core::error::{Error, IoContext, Result};

use crate::folder::{
    config::{self, Architecture, Config, Object},
    static_embedding,
    tokenizer::{Parts, Specials, Tokenizer},
    vocabulary,
};

/// Contents of the small files of a tokenizer. The vocabulary is read later, by [`TokenizerFiles::load`].
#[derive(Debug)]
pub struct TokenizerFiles {
    /// Path of `tokenizer.json`, or of the vocabulary file.
    path: PathBuf,
    settings: Object,
    /// Maps each role (`cls_token`, …) to its special token, such as `[CLS]`.
    names: BTreeMap<String, String>,
    family: Family,
    lowercase: bool,
    /// True if unknown tokens are removed from texts.
    pub skips_unknown: bool,
}

/// Family of tokenizer classes. The family determines settings that `tokenizer.json` does not contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// WordPiece with BERT's normalizer.
    Bert,
    /// Byte-level BPE.
    Roberta,
    /// Unigram with SentencePiece's normalizer.
    SentencePiece,
    /// WordPiece with BERT's normalizer, and special tokens like RoBERTa's.
    MpNet,
    /// Any other class. It adds no settings.
    Other,
}

/// Roles of the special tokens, each with its default token in BERT and its default token in RoBERTa.
const ROLES: [(&str, &str, &str); 5] = [
    ("pad_token", "[PAD]", "<pad>"),
    ("unk_token", "[UNK]", "<unk>"),
    ("cls_token", "[CLS]", "<s>"),
    ("sep_token", "[SEP]", "</s>"),
    ("mask_token", "[MASK]", "<mask>"),
];

impl TokenizerFiles {
    /// Reads the configuration files of the tokenizer. Fails if the folder has neither `tokenizer.json` nor a supported
    /// vocabulary file.
    pub fn open(
        folder: &Path,
        architecture: Architecture,
        sentence: config::SentenceSettings,
    ) -> Result<Self> {
        let read = |name: &str| match architecture {
            // The libraries of static embeddings read only `tokenizer.json`.
            Architecture::Static => Ok(Object::default()),
            _ => Ok::<_, Error>(Object::read(&folder.join(name))?.unwrap_or_default()),
        };
        let (settings, map) = (read("tokenizer_config.json")?, read("special_tokens_map.json")?);
        let class = settings.text("tokenizer_class")?.map(|c| c.strip_suffix("Fast").unwrap_or(c));
        let family = match (class, architecture) {
            (Some("BertTokenizer" | "DistilBertTokenizer"), _)
            | (
                None,
                Architecture::Bert
                | Architecture::DistilBert
                | Architecture::NomicBert
                | Architecture::JinaBert,
            ) => Family::Bert,
            (Some("MPNetTokenizer"), _) | (None, Architecture::MpNet) => Family::MpNet,
            (Some("RobertaTokenizer"), _) | (None, Architecture::Roberta) => Family::Roberta,
            (Some("XLMRobertaTokenizer" | "CamembertTokenizer"), _)
            | (None, Architecture::XlmRoberta | Architecture::Camembert) => Family::SentencePiece,
            _ => Family::Other,
        };
        let bert = match family {
            Family::Other => matches!(architecture, Architecture::Bert | Architecture::DistilBert),
            family => family == Family::Bert,
        };
        let names = ROLES.map(|(role, in_bert, in_roberta)| {
            let named = |file: &Object| match file.get(role) {
                Some(Value::String(token)) => Some(token.clone()),
                Some(Value::Object(token)) => token.get("content")?.as_str().map(str::to_owned),
                _ => None,
            };
            let unknown_of_mpnet = family == Family::MpNet && role == "unk_token";
            let usual = if bert || unknown_of_mpnet { in_bert } else { in_roberta };
            let name = named(&settings).or_else(|| named(&map)).unwrap_or_else(|| usual.to_owned());
            (role.to_owned(), name)
        });
        let (path, lowercase) = (source(folder, family)?, sentence.lowercase);
        Ok(TokenizerFiles { path, settings, names: names.into(), family, lowercase, skips_unknown: false })
    }

    /// Returns the maximum number of tokens per text in the tokenizer's settings; `None` if there is no limit.
    pub fn max_tokens(&self) -> Result<Option<usize>> {
        // transformers writes a very large number, such as 1e30, if there is no limit.
        let limit = self.settings.number("model_max_length")?;
        Ok(limit.filter(|n| *n >= 1.0 && *n < 1e9).map(|n| n as usize))
    }

    /// Returns true if the tokenizer class of the `transformers` library returns segments.
    fn has_segments(&self) -> bool {
        let is_segments = |name: &Value| name == "token_type_ids";
        match (self.settings.get("model_input_names"), self.family) {
            (Some(Value::Array(names)), _) => names.iter().any(is_segments),
            (_, Family::Bert) => true,
            (_, Family::Roberta | Family::SentencePiece | Family::MpNet) => false,
            // This class exists since version 5, which has no segments by default.
            (_, Family::Other) => {
                self.settings.get("tokenizer_class").is_none_or(|class| class != "TokenizersBackend")
            }
        }
    }

    fn prefix_space(&self) -> Result<bool> {
        Ok(self.settings.flag("add_prefix_space")?.unwrap_or(false))
    }

    /// Builds the tokenizer. Fails if a file is damaged or the tokenizer does not match the network.
    pub fn load(&self, config: &Config, max_tokens: usize) -> Result<Tokenizer> {
        let path = &self.path;
        let mut notices = Vec::new();
        let (mut inner, side) = match path.extension().is_some_and(|e| e == "txt") {
            true => (vocabulary::word_pieces(path, &self.names)?, None),
            false if path.ends_with("vocab.json") => {
                (vocabulary::byte_pairs(path, &self.names, self.prefix_space()?)?, None)
            }
            false => {
                let inner = from_file(path)?;
                let side = inner.get_truncation().map(|t| t.direction);
                (inner, side)
            }
        };
        self.apply_class(&mut inner, &mut notices)?;
        self.apply_lowercase(&mut inner)?;
        self.frame(&mut inner)?;
        let is_static = config.architecture == Architecture::Static;
        if is_static {
            // Static embeddings are the mean of the tokens of the text alone.
            inner.with_post_processor(None::<PostProcessorWrapper>);
        }
        let skipped = if self.skips_unknown { static_embedding::unknown_token(&inner)? } else { None };
        let id = |role: &str| self.names.get(role).and_then(|token| inner.token_to_id(token));
        let specials = Specials {
            cls: id("cls_token"),
            sep: id("sep_token"),
            pad: id("pad_token"),
            mask: id("mask_token"),
            unknown: id("unk_token"),
        };
        self.check(&inner, config, specials)?;
        let cut_front = match self.settings.text("truncation_side")? {
            Some(side) => side == "left",
            None => side == Some(tokenizers::TruncationDirection::Left),
        };
        let settings = self.own_settings(&inner);
        let parts = Parts {
            inner,
            specials,
            max_tokens,
            words: config.words,
            cut_front,
            lowercase: self.lowercase,
            has_segments: self.has_segments(),
            needs_specials: !is_static,
            skipped,
            settings,
            notices,
        };
        // All errors of `new` are data errors without a hint, so it is enough to add the path.
        Tokenizer::new(parts).map_err(|e| Error::data(format!("{}: {e}", path.display())))
    }

    /// Applies settings of `tokenizer_config.json`. The tokenizer classes of the `transformers` library use these
    /// settings instead of the settings in `tokenizer.json`, so these settings affect the vectors of the model.
    fn apply_class(&self, inner: &mut tokenizers::Tokenizer, notices: &mut Vec<String>) -> Result<()> {
        let file = self.path.file_name().unwrap_or_default().display();
        let ignored = format!(
            "using the normalizer in {file}, although transformers 5 ignores it for this tokenizer class"
        );
        let differ = |what: &str| {
            format!("tokenizer_config.json and {file} differ in {what}: using the first, like transformers")
        };
        match (self.family, inner.get_model()) {
            (Family::Bert | Family::MpNet, ModelWrapper::WordPiece(_)) => {
                let Some(NormalizerWrapper::BertNormalizer(old)) = inner.get_normalizer() else {
                    notices.push(ignored);
                    return Ok(());
                };
                let mut new = *old;
                new.lowercase = self.settings.flag("do_lower_case")?.unwrap_or(true);
                new.handle_chinese_chars = self.settings.flag("tokenize_chinese_chars")?.unwrap_or(true);
                new.strip_accents = self.settings.flag("strip_accents")?;
                if new.lowercase != old.lowercase {
                    notices.push(differ("lower-casing"));
                }
                let strips =
                    |n: &tokenizers::normalizers::BertNormalizer| n.strip_accents.unwrap_or(n.lowercase);
                if strips(&new) != strips(old) {
                    notices.push(differ("accents"));
                }
                if new.handle_chinese_chars != old.handle_chinese_chars {
                    notices.push(differ("Chinese characters"));
                }
                normalize(&self.path, inner, NormalizerWrapper::BertNormalizer(new))
            }
            (Family::Roberta, ModelWrapper::BPE(_)) => {
                let space = self.prefix_space()?;
                if let Some(PreTokenizerWrapper::ByteLevel(old)) = inner.get_pre_tokenizer()
                    && old.add_prefix_space != space
                {
                    notices.push(differ("the space before a text"));
                    let new = old.add_prefix_space(space);
                    inner.with_pre_tokenizer(Some(new));
                }
                Ok(())
            }
            (Family::SentencePiece, ModelWrapper::Unigram(_)) => {
                let precompiled = |n: &NormalizerWrapper| matches!(n, NormalizerWrapper::Precompiled(_));
                let usual = match inner.get_normalizer() {
                    Some(NormalizerWrapper::Sequence(all)) => all.as_ref().iter().any(precompiled),
                    one => one.is_some_and(precompiled),
                };
                if !usual {
                    notices.push(ignored);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn apply_lowercase(&self, inner: &mut tokenizers::Tokenizer) -> Result<()> {
        if !self.lowercase {
            return Ok(());
        }
        let first = NormalizerWrapper::Lowercase(Lowercase);
        let all = match inner.get_normalizer().cloned() {
            None => vec![first],
            Some(NormalizerWrapper::Lowercase(_)) => return Ok(()),
            Some(NormalizerWrapper::Sequence(old)) => {
                let old: &[NormalizerWrapper] = old.as_ref();
                if old.iter().any(|n| matches!(n, NormalizerWrapper::Lowercase(_))) {
                    return Ok(());
                }
                std::iter::once(first).chain(old.iter().cloned()).collect()
            }
            Some(old) => vec![first, old],
        };
        normalize(&self.path, inner, NormalizerWrapper::Sequence(Sequence::new(all)))
    }

    /// If the tokenizer's file has no rule for special tokens, configures the tokenizer to add the special tokens that
    /// are usual for the tokenizer class.
    fn frame(&self, inner: &mut tokenizers::Tokenizer) -> Result<()> {
        if self.family == Family::Other || inner.get_post_processor().is_some() {
            return Ok(());
        }
        let special = |role: &str| {
            let token = self.names.get(role).cloned().unwrap_or_default();
            let id = inner.token_to_id(&token);
            id.map(|id| (token.clone(), id)).ok_or_else(|| lacks(&self.path, role, &token))
        };
        let (cls, sep) = (special("cls_token")?, special("sep_token")?);
        match self.family {
            Family::Bert => {
                inner.with_post_processor(Some(tokenizers::processors::bert::BertProcessing::new(sep, cls)))
            }
            _ => inner
                .with_post_processor(Some(tokenizers::processors::roberta::RobertaProcessing::new(sep, cls))),
        };
        Ok(())
    }

    /// Returns an error if the tokenizer does not match the network. Not every mismatch can be detected.
    fn check(&self, inner: &tokenizers::Tokenizer, config: &Config, specials: Specials) -> Result<()> {
        let size = inner.get_vocab_size(true);
        let added = inner.get_added_tokens_decoder().keys().max().map_or(0, |id| *id as usize + 1);
        let wrong = |what: String| {
            Error::data(format!("{}: {what}", self.path.display())).with_hint(
                "the tokenizer does not belong to this model; download all files of the model again",
            )
        };
        if size.max(added) > config.words {
            return Err(wrong(format!(
                "the tokenizer has {} tokens, but the model has only {} word embeddings",
                size.max(added),
                config.words
            )));
        }
        // Some models pad the embedding table to a round size, but padding alone never doubles the size.
        if size * 2 < config.words {
            return Err(wrong(format!(
                "the tokenizer has only {size} tokens, but the model has {} word embeddings",
                config.words
            )));
        }
        for (role, id) in [("cls_token", specials.cls), ("sep_token", specials.sep)] {
            let name = self.names.get(role).map_or("", String::as_str);
            let named = self.family != Family::Other || self.settings.get(role).is_some();
            if id.is_none() && named {
                return Err(lacks(&self.path, role, name));
            }
        }
        match (specials.pad, config.padding) {
            (Some(pad), Some(expected)) if config.architecture.counts_from_padding() && pad != expected => {
                Err(wrong(format!(
                    "the padding id of the tokenizer is {pad}, but `pad_token_id` in config.json is {expected}"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Returns the contents of `tokenizer_config.json`, with all special tokens that are in the vocabulary. Keys such
    /// as file locations and truncation are removed.
    fn own_settings(&self, inner: &tokenizers::Tokenizer) -> Map<String, Value> {
        const REMOVED_KEYS: [&str; 12] = [
            "name_or_path",
            "special_tokens_map_file",
            "tokenizer_file",
            "vocab_file",
            "merges_file",
            "is_local",
            "local_files_only",
            "max_length",
            "stride",
            "truncation_strategy",
            "pad_to_multiple_of",
            "auto_map",
        ];
        let mut settings = self.settings.values.clone();
        settings.retain(|key, _| !REMOVED_KEYS.contains(&key.as_str()));
        for (role, name) in self.names.iter().filter(|(_, name)| inner.token_to_id(name).is_some()) {
            settings.entry(role.clone()).or_insert_with(|| json!(name));
        }
        settings
    }
}

/// Returns the file with the vocabulary of a tokenizer: `tokenizer.json`, or the vocabulary file of an older model.
fn source(folder: &Path, family: Family) -> Result<PathBuf> {
    let files: &[&str] = match family {
        Family::Bert | Family::MpNet => &["tokenizer.json", "vocab.txt"],
        Family::Roberta => &["tokenizer.json", "vocab.json"],
        Family::SentencePiece | Family::Other => &["tokenizer.json"],
    };
    let found = files.iter().map(|f| folder.join(f)).find(|f| f.exists());
    found.ok_or_else(|| {
            let error = Error::data(format!("{} contains no {}", folder.display(), files.join(" and no ")));
            let piece = ["sentencepiece.bpe.model", "spiece.model"].iter().any(|f| folder.join(f).exists());
            match piece {
                true => error.with_hint(format!(
                    "its tokenizer is a SentencePiece model; convert it to a tokenizer.json with Python: \
                     from transformers import AutoTokenizer as T; T.from_pretrained({0:?}).save_pretrained({0:?})",
                    folder.display().to_string()
                )),
                false => error.with_hint("download all files of the model again"),
            }
        })
}

fn normalize(path: &Path, inner: &mut tokenizers::Tokenizer, new: NormalizerWrapper) -> Result<()> {
    let changed = inner.with_normalizer(Some(new));
    changed.map(|_| ()).map_err(|e| Error::data(format!("{}: {e}", path.display())))
}

fn lacks(path: &Path, role: &str, token: &str) -> Error {
    Error::data(format!("{}: the special token `{token}` ({role}) is not in the vocabulary", path.display()))
        .with_hint("the tokenizer does not belong to this model; download all files of the model again")
}

fn from_file(path: &Path) -> Result<tokenizers::Tokenizer> {
    let bytes = fs::read(path).at("read", path)?;
    serde_json::from_slice(&bytes).map_err(|e| {
        Error::data(format!("{}:{}: invalid tokenizer: {e}", path.display(), e.line()))
            .with_hint("the file is damaged or truncated; download the model again")
    })
}
