//! What may be said next: what was answered where something like it was said, or the best of given candidates.

use std::{collections::HashSet, time::Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Mode, SearchRequest, Searcher, query::weights};
use turnwise_core::{
    error::{Error, Result},
    vectors::cosine,
};
use turnwise_corpus::{Role, Turn, filter::Filter};
use turnwise_encoder::TextOptions;

/// A conversation that is to be gone on with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RespondRequest {
    /// What was said, in order; the last turn is the one to be answered.
    pub context: Vec<String>,
    /// What may be said; if nothing is given, what was said in the index.
    pub candidates: Vec<String>,
    /// How much less each turn of the context counts than the one after it.
    pub decay: f32,
    /// How many replies.
    pub k: usize,
    /// By what turns like the last one are found; as for searches, if it is not said.
    pub mode: Option<Mode>,
    /// Only answers to turns that fit.
    pub filter: Option<Filter>,
    /// Only what somebody in this role said.
    pub role: Option<Role>,
}

impl Default for RespondRequest {
    fn default() -> Self {
        RespondRequest {
            context: Vec::new(),
            candidates: Vec::new(),
            decay: 0.5,
            k: 5,
            mode: None,
            filter: None,
            role: None,
        }
    }
}

/// What may be said, best first.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Replies {
    /// `turnwise/respond/1`: fields are added to it, and none is taken away or changes its meaning.
    pub schema: &'static str,
    /// The replies.
    pub replies: Vec<Reply>,
    /// What should be known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// How long it took.
    pub milliseconds: f64,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Reply {
    /// What to say.
    pub text: String,
    /// Of a candidate, the cosine of it and the context; else how like the last turn of the context the turn is that it answered.
    pub score: f32,
    /// Which candidate it is, counted from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<usize>,
    /// Where it was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<Said>,
}

/// Where a reply was said.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Said {
    /// The dialogue.
    pub dialogue: String,
    /// The turn.
    pub turn: Turn,
    /// The turn that it answered.
    pub answered: Turn,
}

/// So many turns are looked at for each reply: not all were answered, and some were answered in the same words.
const LOOKED_AT: usize = 6;
/// Within so many turns an answer comes.
const WITHIN: usize = 3;
/// More replies than this nobody reads.
const MOST: usize = 1_000;

impl RespondRequest {
    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<()> {
        let wrong = |message: &str, hint: &str| {
            Err(Error::Input { message: message.to_owned(), hint: Some(hint.to_owned()) })
        };
        if self.context.iter().all(|turn| turn.trim().is_empty()) {
            return wrong("there is nothing to answer", "give what was said as `context`, a list of turns");
        }
        if self.k == 0 || self.k > MOST || self.candidates.len() > MOST {
            return wrong(
                &format!("1 to {MOST} replies and candidates are possible"),
                "it is 5 replies if not said",
            );
        }
        if !(0.0..=1.0).contains(&self.decay) {
            return wrong("the decay of a context is a number from 0 to 1", "it is 0.5 if not said");
        }
        if !self.candidates.is_empty()
            && (self.filter.is_some() || self.role.is_some() || self.mode.is_some())
        {
            return wrong(
                "`filter`, `role` and `mode` are for replies from the index",
                "leave them out, or the candidates",
            );
        }
        Ok(())
    }
}

impl Searcher {
    /// What may be said next.
    pub fn respond(&self, request: &RespondRequest) -> Result<Replies> {
        request.check()?;
        let started = Instant::now();
        let (replies, warnings) = match request.candidates.is_empty() {
            true => self.answers(request)?,
            false => (self.best_of(request)?, Vec::new()),
        };
        Ok(Replies {
            schema: "turnwise/respond/1",
            replies,
            warnings,
            milliseconds: started.elapsed().as_secs_f64() * 1e3,
        })
    }

    /// Candidates by their cosine with the context.
    fn best_of(&self, request: &RespondRequest) -> Result<Vec<Reply>> {
        let said: Vec<&str> =
            request.context.iter().map(String::as_str).filter(|turn| !turn.trim().is_empty()).collect();
        let options = TextOptions { prompt: self.recipe()?.prompt.clone() };
        let context = self.average(&said, &weights(said.len(), request.decay), &mut Vec::new())?;
        let texts: Vec<&str> = request.candidates.iter().map(String::as_str).collect();
        let vectors = self.encoder()?.encode(&texts, &options)?.vectors;
        let mut replies: Vec<Reply> = texts
            .iter()
            .zip(vectors.rows())
            .enumerate()
            .map(|(n, (text, row))| Reply {
                text: (*text).to_owned(),
                score: cosine(&context, row),
                candidate: Some(n),
                said: None,
            })
            .collect();
        replies.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.candidate.cmp(&b.candidate)));
        replies.truncate(request.k);
        Ok(replies)
    }

    /// What was answered to turns like the last one, in the light of those before it.
    fn answers(&self, request: &RespondRequest) -> Result<(Vec<Reply>, Vec<String>)> {
        let mut context: Vec<String> =
            request.context.iter().filter(|turn| !turn.trim().is_empty()).cloned().collect();
        let query = context.pop().unwrap_or_default();
        if request.mode == Some(Mode::Bm25) || self.engine.recipe().is_none() {
            // Words alone know nothing of what was said before.
            context.clear();
        }
        let found = self.search(&SearchRequest {
            query,
            context,
            decay: request.decay,
            mode: request.mode,
            filter: request.filter.clone(),
            k: request.k * LOOKED_AT,
            window: WITHIN,
            ..SearchRequest::default()
        })?;
        let mut said = HashSet::new();
        let mut replies = Vec::new();
        for hit in found.hits {
            let answers = |turn: &&Turn| {
                let another = turn.speaker != hit.turn.speaker || turn.role != hit.turn.role;
                another && request.role.as_ref().is_none_or(|role| turn.role.as_ref() == Some(role))
            };
            let Some(turn) = hit.after.iter().find(answers) else { continue };
            if turn.text.trim().is_empty() || !said.insert(turn.text.trim().to_lowercase()) {
                continue;
            }
            replies.push(Reply {
                text: turn.text.clone(),
                score: hit.score,
                candidate: None,
                said: Some(Said { dialogue: hit.dialogue, turn: turn.clone(), answered: hit.turn }),
            });
        }
        replies.truncate(request.k);
        Ok((replies, found.warnings))
    }

    /// Whether answering needs the encoder, and which.
    pub fn respond_needs_encoder(&self, request: &RespondRequest) -> bool {
        !request.candidates.is_empty() || request.mode != Some(Mode::Bm25) && self.engine.recipe().is_some()
    }
}
