//! Adapter from [`Analyzer`] to Tantivy's tokenizer interface.

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

use turnwise_text as text;
use turnwise_text::Analyzer;

#[derive(Clone)]
pub(super) struct Analyzed {
    analyzer: Analyzer,
    tokens: Vec<text::Token>,
    token: Token,
}

impl Analyzed {
    pub(super) fn by(analyzer: Analyzer) -> Self {
        Analyzed { analyzer, tokens: Vec::new(), token: Token::default() }
    }
}

pub(super) struct AnalyzedStream<'a> {
    analyzed: &'a mut Analyzed,
    next: usize,
}

impl Tokenizer for Analyzed {
    type TokenStream<'a> = AnalyzedStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> AnalyzedStream<'a> {
        self.tokens = self.analyzer.analyze(text);
        AnalyzedStream { analyzed: self, next: 0 }
    }
}

impl TokenStream for AnalyzedStream<'_> {
    fn advance(&mut self) -> bool {
        let position = self.next;
        self.next += 1;
        let Analyzed { tokens, token, .. } = &mut *self.analyzed;
        let Some(found) = tokens.get_mut(position) else { return false };
        token.position = position;
        token.offset_from = found.range.start;
        token.offset_to = found.range.end;
        token.text = std::mem::take(&mut found.term);
        true
    }

    fn token(&self) -> &Token {
        &self.analyzed.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.analyzed.token
    }
}
