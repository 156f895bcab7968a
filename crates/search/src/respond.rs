//! Response suggestion. Suggests replies to a conversation: answers to similar turns in the index, or the best replies
//! from a list of candidates in the request.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Instant,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Hit, Mode, SearchRequest, Searcher, query::weights};
use turnwise_core::{Error, Result, numbers::counted, vectors::cosine};
use turnwise_corpus::{Role, Turn, filter::Filter};
use turnwise_encoder::{TextOptions, selector::Selector};
use turnwise_text::words_key;

/// A request for replies to a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RespondRequest {
    /// Turns of the conversation, in order. The last turn is the one to answer.
    pub context: Vec<String>,
    /// Candidate replies to rank. If absent, replies are taken from the index.
    pub candidates: Option<Vec<String>>,
    /// Weight of each context turn relative to the next turn, from 0 to 1.
    pub decay: f32,
    /// Maximum number of replies.
    pub k: usize,
    /// Search mode used to find turns similar to the last turn. The default is the same as for searches.
    pub mode: Option<Mode>,
    /// Filter for the turns in the index. Only answers to turns that match it are used.
    pub filter: Option<Filter>,
    /// Whether a selector chooses the replies. It reads the whole conversation together with each reply. By default, the
    /// selector is used if there is one. Without a selector, replies from the index are ordered by the search scores of all
    /// turns that got them, and candidates by their cosines with the context.
    pub select: Option<bool>,
    /// Role of the speaker of the answers. Answers by speakers with other roles are not used.
    pub role: Option<Role>,
}

impl Default for RespondRequest {
    fn default() -> Self {
        RespondRequest {
            context: Vec::new(),
            candidates: None,
            decay: 0.5,
            k: 5,
            mode: None,
            filter: None,
            select: None,
            role: None,
        }
    }
}

/// Response to a request for replies: the suggested replies.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Replies {
    /// Name and version of the response schema: `turnwise/respond/1`. New fields may be added in this version. Existing
    /// fields are not removed, and their meaning does not change.
    pub schema: &'static str,
    /// The replies, best first.
    pub replies: Vec<Reply>,
    /// Warnings, for example about parts of the index that were not searched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Total time of the request in milliseconds.
    pub milliseconds: f64,
}

/// A suggested reply.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Reply {
    /// Text of the reply.
    pub text: String,
    /// Score of the reply. For a reply from the index, it is the share of the reply among the answers that were found: the
    /// shares of all answers sum to 1. For a candidate, it is the score of the selector, usually from 0 to 1, or the
    /// cosine with the context if there is no selector.
    pub score: f32,
    /// Index of the candidate in the request, starting at 0. Absent for a reply from the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<usize>,
    /// Location of the reply in the index. Absent for a candidate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<ReplySource>,
}

/// Location of a reply in the index: the turn that contains the reply, and the turn that it answers.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ReplySource {
    /// Id of the dialogue.
    pub dialogue: String,
    /// The turn that contains the reply.
    pub turn: Turn,
    /// The turn that the reply answers.
    pub answered: Turn,
}

/// Number of hits to fetch for each reply. One hit is not enough, because some hits have no answer and some answers have
/// the same words.
const HITS_PER_REPLY: usize = 2;
/// If there are too few replies, the search is repeated with this factor more hits, up to [`MAX_HITS`].
const MORE_HITS: usize = 4;
/// Maximum number of hits to fetch.
const MAX_HITS: usize = 5_000;
/// Minimum number of replies from which the best are chosen.
const CHOSEN_FROM: usize = 50;
/// Number of turns after a hit that can contain its answer.
const ANSWER_WINDOW: usize = 3;
/// Maximum number of replies, and also the maximum number of candidates.
const MAX_REPLIES: usize = 1_000;

impl RespondRequest {
    /// Returns an error if the request is invalid.
    pub fn check(&self) -> Result<()> {
        let wrong = |message: &str, hint: &str| Err(Error::input(message).with_hint(hint));
        if self.context.iter().all(|turn| turn.trim().is_empty()) {
            let hint = "give at least one turn with text";
            return wrong("there is nothing to answer", hint);
        }
        let candidates = self.candidates.as_deref();
        if candidates.is_some_and(|candidates| candidates.iter().all(|text| text.trim().is_empty())) {
            return wrong(
                "there are no candidates with text",
                "give at least one candidate, or leave out `candidates` to get replies from the index",
            );
        }
        if self.k == 0 || self.k > MAX_REPLIES || candidates.is_some_and(|all| all.len() > MAX_REPLIES) {
            let message = format!("k must be from 1 to {MAX_REPLIES}, with at most {MAX_REPLIES} candidates");
            return wrong(&message, "the default is 5 replies");
        }
        if !(0.0..=1.0).contains(&self.decay) {
            return wrong("the context decay must be a number from 0 to 1", "the default is 0.5");
        }
        if candidates.is_some() && (self.filter.is_some() || self.role.is_some() || self.mode.is_some()) {
            return wrong(
                "`filter`, `role` and `mode` apply only to replies from the index",
                "remove them, or remove the candidates",
            );
        }
        Ok(())
    }
}

/// Ranks the candidates of a request by a selector. No index is needed. Returns an error if the request is invalid.
pub fn rank_replies(selector: &Selector, request: &RespondRequest) -> Result<Replies> {
    timed(request, || select_candidates(selector, request))
}

/// Checks a request, finds the replies and their warnings by `find`, and measures the time.
fn timed(
    request: &RespondRequest,
    find: impl FnOnce() -> Result<(Vec<Reply>, Vec<String>)>,
) -> Result<Replies> {
    request.check()?;
    let started = Instant::now();
    let (replies, warnings) = find()?;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    Ok(Replies { schema: "turnwise/respond/1", replies, warnings, milliseconds })
}

/// Number of characters that a warning shows of a candidate.
const SHOWN_CHARACTERS: usize = 40;

/// Ranks the given candidates by a selector. Also returns warnings about texts that are too long.
fn select_candidates(selector: &Selector, request: &RespondRequest) -> Result<(Vec<Reply>, Vec<String>)> {
    let candidates = request.candidates.iter().flatten().enumerate();
    let candidate = |(n, text): (usize, &String)| Reply {
        text: text.clone(),
        score: 0.0,
        candidate: Some(n),
        said: None,
    };
    let candidates: Vec<Reply> = candidates.map(candidate).collect();
    let (outputs, warnings) = outputs(selector, request, &candidates)?;
    let mut replies = best(request, outputs.into_iter().zip(candidates).collect());
    replies.iter_mut().for_each(|reply| reply.score = selector.activation().apply(reply.score));
    Ok((replies, warnings))
}

/// A reply that was found in the index.
struct Found {
    reply: Reply,
    /// Sum of the weights of the answers with the same words. The weight of an answer is at most 1; it is smaller if the
    /// turn that it answers is less similar to the last turn of the context.
    weight: f32,
}

/// Decrease of the weight of an answer with the search score of the turn that it answers: the weight is *e* to the power of
/// this number times (score / best score − 1). See "Suggested replies" in benchmarks/README.md.
const SCORE_DECAY: f32 = 15.0;
/// Weight of the selector's output, compared with the logarithm of a reply's weight. It is less than 1, because a selector
/// is trained with random wrong replies, so its outputs differ too much among answers to similar turns.
const SELECTOR_WEIGHT: f32 = 0.5;

/// Scores replies from the index by their weights and the selector, and returns the best. Also returns warnings about texts
/// that are too long.
///
/// A selector learns how much more probable a reply is after this context than after others. This must be combined with how
/// probable the reply is at all: a frequent reply, such as "You're welcome.", is probable after many contexts. The answers
/// to similar turns estimate this probability.
fn choose(
    selector: Option<&Selector>,
    request: &RespondRequest,
    found: Vec<Found>,
) -> Result<(Vec<Reply>, Vec<String>)> {
    let (replies, weights): (Vec<Reply>, Vec<f32>) =
        found.into_iter().map(|found| (found.reply, found.weight)).unzip();
    let (outputs, warnings) = match selector {
        Some(selector) => outputs(selector, request, &replies)?,
        None => (vec![0.0; replies.len()], Vec::new()),
    };
    let combined =
        outputs.iter().zip(&weights).map(|(output, weight)| SELECTOR_WEIGHT * output + weight.ln());
    let scores = softmax(&combined.collect::<Vec<f32>>());
    Ok((best(request, scores.into_iter().zip(replies).collect()), warnings))
}

fn softmax(values: &[f32]) -> Vec<f32> {
    let greatest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = values.iter().map(|value| (value - greatest).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// Returns the best `k` replies, with their scores.
fn best(request: &RespondRequest, mut scored: Vec<(f32, Reply)>) -> Vec<Reply> {
    // A stable sort keeps the order of equal scores. An empty reply is never the best one.
    let is_blank = |reply: &Reply| reply.text.trim().is_empty();
    scored.sort_by(|a, b| is_blank(&a.1).cmp(&is_blank(&b.1)).then(b.0.total_cmp(&a.0)));
    scored.truncate(request.k);
    scored.into_iter().map(|(score, reply)| Reply { score, ..reply }).collect()
}

/// Returns the outputs of a selector for replies. Also returns warnings about texts that are too long.
fn outputs(
    selector: &Selector,
    request: &RespondRequest,
    replies: &[Reply],
) -> Result<(Vec<f32>, Vec<String>)> {
    if replies.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let context: Vec<&str> = request.context.iter().map(String::as_str).collect();
    let texts: Vec<&str> = replies.iter().map(|reply| reply.text.as_str()).collect();
    let selected = selector.select(&context, &texts)?;
    let cut: Vec<&str> = selected.cut_responses.iter().map(|n| texts[*n]).collect();
    let warnings = cut.first().map(|first| {
        format!(
            "the selector read only the beginning of {}, because {}: {}…",
            counted(cut.len() as u64, "candidate"),
            if cut.len() == 1 { "it is too long" } else { "they are too long; the first one" },
            first
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .chars()
                .take(SHOWN_CHARACTERS)
                .collect::<String>()
        )
    });
    Ok((selected.outputs, Vec::from_iter(warnings)))
}

/// Returns the answers to the turns that were found. Of the answers with the same words, the first one is returned. Also
/// returns the roles of the turns after those that were found, if a role is requested.
fn answers(request: &RespondRequest, hits: Vec<Hit>) -> (Vec<Found>, BTreeSet<Role>) {
    // A reply that was already given is no suggestion.
    let said: HashSet<String> = request.context.iter().map(|turn| words_key(turn)).collect();
    let (mut replies, mut roles): (Vec<Found>, _) = (Vec::new(), BTreeSet::new());
    let mut places: HashMap<String, usize> = HashMap::new();
    // The hits are in the order of their scores.
    let greatest = hits.first().map_or(0.0, |hit| hit.score);
    let weight = |score: f32| match greatest > 0.0 {
        true => (SCORE_DECAY * (score / greatest - 1.0)).exp(),
        false => 1.0,
    };
    for hit in hits {
        if request.role.is_some() {
            roles.extend(hit.after.iter().filter_map(|turn| turn.role.clone()));
        }
        let answers = |turn: &&Turn| {
            let other_speaker = turn.speaker != hit.turn.speaker || turn.role != hit.turn.role;
            other_speaker && request.role.as_ref().is_none_or(|role| turn.role.as_ref() == Some(role))
        };
        let Some(turn) = hit.after.iter().find(answers) else { continue };
        let key = words_key(&turn.text);
        if turn.text.trim().is_empty() || said.contains(&key) {
            continue;
        }
        if let Some(place) = places.get(&key) {
            replies[*place].weight += weight(hit.score);
            continue;
        }
        places.insert(key, replies.len());
        let source = ReplySource { dialogue: hit.dialogue, turn: turn.clone(), answered: hit.turn };
        let reply = Reply { text: turn.text.clone(), score: hit.score, candidate: None, said: Some(source) };
        replies.push(Found { reply, weight: weight(hit.score) });
    }
    (replies, roles)
}

impl Searcher {
    /// Suggests replies to a conversation. Returns an error if the request is invalid, if the index cannot be
    /// searched in the requested mode, or if candidates are given and the index has no vectors.
    pub fn respond(&self, request: &RespondRequest) -> Result<Replies> {
        let find = || match request.candidates.is_none() {
            true => self.find_answers(request),
            false if self.selects(request) => select_candidates(self.selector()?, request),
            false => Ok((self.rank_candidates(request)?, Vec::new())),
        };
        timed(request, find)
    }

    /// Returns true if a selector chooses the replies.
    fn selects(&self, request: &RespondRequest) -> bool {
        request.select.unwrap_or(self.selector.is_some())
    }

    /// Ranks the given candidates by their cosine with the context.
    fn rank_candidates(&self, request: &RespondRequest) -> Result<Vec<Reply>> {
        let turns: Vec<&str> =
            request.context.iter().map(String::as_str).filter(|turn| !turn.trim().is_empty()).collect();
        let options = TextOptions { prompt: self.recipe()?.prompt.clone() };
        let context = self.average(&turns, &weights(turns.len(), request.decay), &mut Vec::new())?;
        let texts: Vec<&str> = request.candidates.iter().flatten().map(String::as_str).collect();
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

    /// Finds turns that are similar to the last turn, given its context, and returns the answers to these turns. Also
    /// returns the warnings of the search.
    fn find_answers(&self, request: &RespondRequest) -> Result<(Vec<Reply>, Vec<String>)> {
        let mut context: Vec<String> =
            request.context.iter().filter(|turn| !turn.trim().is_empty()).cloned().collect();
        let query = context.pop().unwrap_or_default();
        let selector = if self.selects(request) { Some(self.selector()?) } else { None };
        let chosen_from = request.k.max(CHOSEN_FROM);
        // A selector needs replies to choose from.
        let wanted = if selector.is_some() { chosen_from } else { request.k };
        if request.mode == Some(Mode::Bm25) || self.engine.recipe().is_none() {
            // Lexical search does not use the context.
            context.clear();
        }
        let mut search = SearchRequest {
            query,
            context,
            decay: request.decay,
            mode: request.mode,
            filter: request.filter.clone(),
            k: chosen_from * HITS_PER_REPLY,
            window: ANSWER_WINDOW,
            ..SearchRequest::default()
        };
        let (mut replies, roles, warnings) = loop {
            let found = self.search(&search)?;
            let (hits, warnings) = (found.hits.len(), found.warnings);
            let (replies, roles) = answers(request, found.hits);
            // Most hits can be without an answer by this role: the speakers with this role ask similar questions, too.
            if replies.len() >= wanted || hits < search.k || search.k >= MAX_HITS {
                break (replies, roles, warnings);
            }
            search.k = (search.k * MORE_HITS).min(MAX_HITS);
        };
        replies.truncate(chosen_from);
        let mut warnings = warnings;
        if let Some(role) = request.role.as_ref().filter(|role| !roles.is_empty() && !roles.contains(*role)) {
            let known: Vec<String> = roles.iter().map(Role::to_string).collect();
            warnings.push(format!(
                "no answer is by a speaker with the role {role}; the roles in these dialogues: {}",
                known.join(", ")
            ));
        }
        let (replies, more) = choose(selector, request, replies)?;
        Ok((replies, [warnings, more].concat()))
    }

    /// Returns whether the request needs the encoder.
    pub fn respond_needs_encoder(&self, request: &RespondRequest) -> bool {
        (request.candidates.is_some() && !self.selects(request))
            || (request.candidates.is_none()
                && request.mode != Some(Mode::Bm25)
                && self.engine.recipe().is_some())
    }
}
