//! Supported architectures.

/// Architecture of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// BERT. Most MiniLM, E5 and BGE models have this architecture.
    Bert,
    /// RoBERTa.
    Roberta,
    /// XLM-RoBERTa.
    XlmRoberta,
    /// CamemBERT.
    Camembert,
    /// DistilBERT.
    DistilBert,
    /// MPNet, with a relative position bias.
    MpNet,
    /// ModernBERT: rotary positions, gated feed-forward blocks, and layers in which tokens attend only to their
    /// neighbours.
    ModernBert,
    /// NomicBERT: rotary positions and gated feed-forward blocks.
    NomicBert,
    /// GTE, by its name in the `transformers` library: rotary positions and gated feed-forward blocks.
    Gte,
    /// GTE, by its name in models with their own code, such as `Alibaba-NLP/gte-base-en-v1.5`.
    New,
    /// JinaBERT, such as jina-embeddings-v2: a BERT with a linear bias (ALiBi) and gated feed-forward blocks. Its
    /// `model_type` is that of BERT.
    JinaBert,
    /// Qwen3, a decoder: Qwen3-Embedding.
    Qwen3,
    /// Gemma 3, a decoder: EmbeddingGemma, in which tokens also attend to the tokens after them.
    Gemma3,
    /// Static embeddings: one vector for each token, without layers. Models of model2vec, and models with the module
    /// `StaticEmbedding` of sentence-transformers.
    Static,
}

impl Architecture {
    /// All supported architectures.
    pub const ALL: [Self; 14] = [
        Self::Bert,
        Self::Roberta,
        Self::XlmRoberta,
        Self::Camembert,
        Self::DistilBert,
        Self::MpNet,
        Self::ModernBert,
        Self::NomicBert,
        Self::Gte,
        Self::New,
        Self::JinaBert,
        Self::Qwen3,
        Self::Gemma3,
        Self::Static,
    ];

    /// Returns the architecture with this value of `model_type`; `None` if it is not supported.
    pub fn of_model_type(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.name() == name)
    }

    /// Returns the name: the value of `model_type` in `config.json`, except for JinaBERT and for static embeddings of
    /// sentence-transformers, which have no such file.
    pub const fn name(self) -> &'static str {
        match self {
            Architecture::Bert => "bert",
            Architecture::Roberta => "roberta",
            Architecture::XlmRoberta => "xlm-roberta",
            Architecture::Camembert => "camembert",
            Architecture::DistilBert => "distilbert",
            Architecture::MpNet => "mpnet",
            Architecture::ModernBert => "modernbert",
            Architecture::NomicBert => "nomic_bert",
            Architecture::Gte => "gte",
            Architecture::New => "new",
            Architecture::JinaBert => "jina_bert",
            Architecture::Qwen3 => "qwen3",
            Architecture::Gemma3 => "gemma3_text",
            Architecture::Static => "model2vec",
        }
    }

    /// Returns the name of the class in the `transformers` library that implements the network without a task head.
    pub const fn class(self) -> &'static str {
        match self {
            Architecture::Bert => "BertModel",
            Architecture::Roberta => "RobertaModel",
            Architecture::XlmRoberta => "XLMRobertaModel",
            Architecture::Camembert => "CamembertModel",
            Architecture::DistilBert => "DistilBertModel",
            Architecture::MpNet => "MPNetModel",
            Architecture::ModernBert => "ModernBertModel",
            Architecture::NomicBert => "NomicBertModel",
            Architecture::Gte => "GteModel",
            Architecture::New => "NewModel",
            Architecture::JinaBert => "JinaBertModel",
            Architecture::Qwen3 => "Qwen3Model",
            Architecture::Gemma3 => "Gemma3TextModel",
            Architecture::Static => "StaticModel",
        }
    }

    /// Returns the prefix that the names of the network's tensors have in a model with a task head.
    pub const fn prefix(self) -> &'static str {
        match self {
            Architecture::Bert | Architecture::JinaBert => "bert.",
            Architecture::DistilBert => "distilbert.",
            Architecture::MpNet => "mpnet.",
            Architecture::ModernBert | Architecture::Qwen3 | Architecture::Gemma3 => "model.",
            Architecture::NomicBert => "nomic_bert.",
            Architecture::Gte => "gte.",
            Architecture::New => "new.",
            // The classes of XLM-RoBERTa and CamemBERT use the name of RoBERTa.
            _ => "roberta.",
        }
    }

    /// Returns true if position ids start at the id of the padding token plus 1.
    pub const fn counts_from_padding(self) -> bool {
        matches!(
            self,
            Architecture::Roberta | Architecture::XlmRoberta | Architecture::Camembert | Architecture::MpNet
        )
    }

    /// Returns true if the architecture can be trained and saved. The others can only encode.
    pub const fn is_trainable(self) -> bool {
        matches!(
            self,
            Architecture::Bert
                | Architecture::Roberta
                | Architecture::XlmRoberta
                | Architecture::Camembert
                | Architecture::DistilBert
                | Architecture::MpNet
        )
    }

    /// Returns true if the network has segment embeddings.
    pub const fn has_segments(self) -> bool {
        matches!(
            self,
            Architecture::Bert
                | Architecture::Roberta
                | Architecture::XlmRoberta
                | Architecture::Camembert
                | Architecture::NomicBert
                | Architecture::Gte
                | Architecture::New
                | Architecture::JinaBert
        )
    }

    /// Returns true if the network has a relative position bias.
    pub const fn has_relative_bias(self) -> bool {
        matches!(self, Architecture::MpNet)
    }
}
