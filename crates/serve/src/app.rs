//! State that all requests share: indexes, API keys, thread pools and metrics.

use std::{collections::HashSet, sync::Arc, time::Instant};

use super::{
    hosted::{HostedIndex, ServerHooks},
    keys::{Key, Keys},
    metrics::Metrics,
    options::{Limits, Options},
    pool::Pool,
    problem::{Outcome, Problem},
    stored_responses::ResponseCache,
};
use turnwise_core::{
    error::{Class, Error, Result},
    ids::DialogueId,
};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_encoder::Encoder;
use turnwise_index::{
    engine::{Candidate, Prefetch, Version},
    location::Location,
    vectors::Kind,
};
use turnwise_search::{Replies, ReplySource, RespondRequest, Response, SearchRequest, Searcher};
use turnwise_store::Snapshot;

/// Shared state of a server. Cheap to clone.
#[derive(Clone)]
pub struct App {
    pub(super) indexes: Arc<[Arc<HostedIndex>]>,
    pub(super) hooks: Arc<dyn ServerHooks>,
    pub(super) keys: Arc<Keys>,
    pub(super) limits: Arc<Limits>,
    pub(super) pool: Pool,
    /// Pool for surveys: operations that read the records of a whole index, such as clustering. It runs one survey at a
    /// time, because most surveys use all cores. Searches run in `pool` instead.
    pub(super) survey_pool: Pool,
    pub(super) metrics: Arc<Metrics>,
    pub(super) started: Instant,
    /// Whether the server has no API keys and listens on a loopback address. If so, the Host header of a request must
    /// be a local name.
    pub(super) loopback: bool,
}

impl App {
    /// Opens the indexes, which are pairs of a name and a location. Returns an error if two indexes have the same name,
    /// if the options are invalid, or if an index cannot be opened.
    pub fn open(
        indexes: Vec<(String, Box<dyn Location>)>,
        hooks: &Arc<dyn ServerHooks>,
        options: &Options,
    ) -> Result<Self> {
        options.check()?;
        let metrics = Arc::new(Metrics::new());
        let mut hosted: Vec<Arc<HostedIndex>> = Vec::with_capacity(indexes.len());
        for (name, location) in indexes {
            if hosted.iter().any(|other| other.name == name) {
                return Err(Error::input(format!("two indexes have the name {name}")));
            }
            hosted.push(Arc::new(HostedIndex::open(name, location, hooks.clone(), metrics.clone())?));
        }
        options.keys.check_indexes(hosted.iter().map(|hosted| hosted.name.as_str()))?;
        Ok(App {
            indexes: hosted.into(),
            hooks: hooks.clone(),
            keys: Arc::new(options.keys.clone()),
            pool: Pool::new(options.limits.max_concurrent, options.limits.max_queue),
            survey_pool: Pool::new(1, options.limits.max_queue),
            limits: Arc::new(options.limits.clone()),
            metrics,
            started: Instant::now(),
            loopback: options.listen.ip().is_loopback() && options.keys.is_empty(),
        })
    }

    /// Returns the name and the current state of each index.
    pub fn opened(&self) -> Vec<(String, Arc<OpenIndex>)> {
        self.indexes.iter().map(|hosted| (hosted.name.clone(), hosted.current())).collect()
    }

    /// Replaces the paths and addresses of indexes in an error response with the index names, so that clients do not
    /// see the paths and addresses.
    pub(super) fn hidden(&self, problem: Problem) -> Problem {
        self.indexes.iter().fold(problem, |problem, hosted| hosted.hidden(problem))
    }

    /// Reloads indexes that other processes have changed.
    pub(super) fn follow(&self) {
        for hosted in self.indexes.iter() {
            // If an index cannot be reloaded, its old state stays in use, or the index is marked as unavailable. The
            // next call retries.
            let _ = hosted.follow();
        }
    }
}

/// Client of a request, with the permissions of its key. `None` if the request needs no key.
#[derive(Debug, Clone, Default)]
pub(super) struct Client(pub(super) Option<Key>);

impl Client {
    /// Returns the indexes that the client may access.
    pub(super) fn indexes<'a>(&self, app: &'a App) -> impl Iterator<Item = &'a Arc<HostedIndex>> {
        app.indexes.iter().filter(|hosted| self.0.as_ref().is_none_or(|key| key.allows_index(&hosted.name)))
    }

    /// Returns the index with this name, or an error if the client may not access it. If `name` is `None`, returns the
    /// only index that the client may access, or an error if the client may access several indexes or none.
    pub(super) fn index<'a>(&self, app: &'a App, name: Option<&str>) -> Outcome<&'a Arc<HostedIndex>> {
        let mut allowed = self.indexes(app);
        match name {
            Some(name) => {
                let all: Vec<&'a Arc<HostedIndex>> = allowed.collect();
                let names = all.iter().map(|hosted| hosted.name.as_str()).collect::<Vec<_>>().join(", ");
                all.into_iter().find(|hosted| hosted.name == name).ok_or_else(|| {
                    Problem::not_found(format!("index `{name}` does not exist"))
                        .param("index")
                        .hint(format!("available indexes: {names}"))
                })
            }
            None => match (allowed.next(), allowed.next()) {
                (Some(only), None) => Ok(only),
                (None, _) => Err(Problem::not_found("no index is available")),
                (Some(_), Some(_)) => {
                    Err(Problem::request("the request does not specify one of several indexes")
                        .param("index")
                        .hint("add ?index=NAME; GET /info lists the names"))
                }
            },
        }
    }

    /// Returns the current state of an index. Returns an error if the client may not access the index, or if its engine
    /// is unavailable.
    pub(super) fn opened(&self, app: &App, name: Option<&str>) -> Outcome<Arc<OpenIndex>> {
        self.index(app, name)?.available()
    }

    /// Returns whether the client may see all dialogues of every index.
    pub(super) fn is_unrestricted(&self) -> bool {
        self.0.as_ref().is_none_or(|key| key.filter.is_none() && key.indexes.is_empty())
    }

    /// Returns the filter for the dialogues that the client may see. Returns `None` if the client may see all
    /// dialogues.
    pub(super) fn filter(&self) -> Option<&Filter> {
        self.0.as_ref().and_then(|key| key.filter.as_ref())
    }

    /// Combines a requested filter with the filter of the client's key. Returns `None` if neither filter exists.
    pub(super) fn restrict(&self, requested: Option<Filter>) -> Result<Option<Filter>> {
        Ok(match (self.filter(), requested) {
            (Some(own), Some(requested)) => Some(own.and(&requested)?),
            (own, requested) => requested.or_else(|| own.cloned()),
        })
    }

    /// Returns whether the client may see a dialogue.
    pub(super) fn can_see(&self, dialogue: &Dialogue) -> bool {
        self.filter().is_none_or(|filter| filter.matches(dialogue))
    }
}

/// State of an open index at one point in time. A reload of the index creates a new state.
pub struct OpenIndex {
    /// Searcher over this state of the index.
    pub searcher: Searcher,
    /// Encoder for queries. `None` if the index has no vectors or the encoder is not available.
    pub encoder: Option<Arc<dyn Encoder>>,
    /// Error that occurred when the encoder was opened. `None` if the encoder is open or the index has no vectors.
    pub without_encoder: Option<Error>,
    pub(super) surveys: ResponseCache,
}

impl OpenIndex {
    pub(super) fn new(
        searcher: Searcher,
        encoder: Option<Arc<dyn Encoder>>,
        without_encoder: Option<Error>,
    ) -> Self {
        OpenIndex { searcher, encoder, without_encoder, surveys: ResponseCache::default() }
    }

    /// Returns the snapshot of a local index, which contains its records. Returns an error if the engine is remote. The
    /// error message names `what` as the unsupported operation.
    pub(super) fn snapshot(&self, what: &str) -> Result<&Snapshot> {
        Ok(self.searcher.embedded(what)?.snapshot())
    }

    /// Reads a dialogue. Returns `None` if it does not exist.
    pub(super) fn dialogue(&self, id: &str) -> Result<Option<Dialogue>> {
        let found = self.searcher.engine().view().record(DialogueId::new(id)?.key())?;
        Ok(found.map(|(_, dialogue)| dialogue))
    }

    /// Runs a search over the dialogues that the client may see.
    pub(super) fn search(&self, mut request: SearchRequest, client: &Client) -> Outcome<Response> {
        request.check()?;
        let view = self.searcher.engine().view();
        if let Some(id) = &request.like {
            let hidden = || Problem::not_found(format!("`{id}` does not exist")).param("like");
            let (dialogue, _) = view.find(id).map_err(|e| match e.class() {
                Class::Input => hidden(),
                _ => e.into(),
            })?;
            if !client.can_see(&dialogue) {
                return Err(hidden());
            }
        }
        request.filter = client.restrict(request.filter)?;
        if self.searcher.needs_encoder(&request)?.is_some() {
            self.encoder()?;
        }
        let mut found = self.searcher.search(&request)?;
        if client.filter().is_some() {
            let ids = found.hits.iter().map(|hit| hit.dialogue.as_str());
            let visible = self.visible(ids, client)?;
            found.hits.retain(|hit| visible.contains(&hit.dialogue));
        }
        Ok(found)
    }

    /// Returns the ids of those dialogues in `ids` that the client may see. A search filter can match a single turn of
    /// a hidden dialogue, so this function checks each dialogue as a whole.
    fn visible<'a>(&self, ids: impl Iterator<Item = &'a str>, client: &Client) -> Result<HashSet<String>> {
        let view = self.searcher.engine().view();
        let ids: HashSet<&str> = ids.collect();
        let ids = ids.into_iter().map(DialogueId::new).collect::<Result<Vec<DialogueId>>>()?;
        let version = Version::default();
        let candidate =
            |id: &DialogueId| Candidate { dialogue: id.key(), version, turn: None, score: 0.0, terms: None };
        let all: Vec<Candidate> = ids.iter().map(candidate).collect();
        view.prefetch(Kind::Dialogues, &all, Prefetch::Records)?;
        let mut visible = HashSet::new();
        for id in &ids {
            if view.record(id.key())?.is_some_and(|(_, dialogue)| client.can_see(&dialogue)) {
                visible.insert(id.to_string());
            }
        }
        Ok(visible)
    }

    /// Finds replies to a conversation. Replies from the index come only from dialogues that the client may see.
    pub(super) fn respond(&self, mut request: RespondRequest, client: &Client) -> Outcome<Replies> {
        request.check()?;
        if request.candidates.is_none() {
            request.filter = client.restrict(request.filter)?;
        }
        if self.searcher.respond_needs_encoder(&request) {
            self.encoder()?;
        }
        let mut found = self.searcher.respond(&request)?;
        if client.filter().is_some() {
            let sources = found.replies.iter().filter_map(|reply| reply.said.as_ref());
            let visible = self.visible(sources.map(|source| source.dialogue.as_str()), client)?;
            let is_visible = |source: &ReplySource| visible.contains(&source.dialogue);
            found.replies.retain(|reply| reply.said.as_ref().is_none_or(is_visible));
        }
        Ok(found)
    }

    /// Returns the encoder that made the vectors. If it is not available, returns an error with the reason.
    pub(super) fn encoder(&self) -> Outcome<&Arc<dyn Encoder>> {
        match (&self.encoder, &self.without_encoder) {
            (Some(encoder), _) => Ok(encoder),
            (None, Some(why)) => Err(no_encoder(why)),
            (None, None) => Err(self.no_vectors_error()),
        }
    }

    /// Creates the error for an index without vectors. Its hint explains how to create them.
    fn no_vectors_error(&self) -> Problem {
        let hint = self.searcher.engine().no_vectors_error().hint();
        Problem { hint, ..Problem::unavailable("this index has no vectors") }
    }
}

/// Creates the error for a request that needs the model of an index, if the model is not available. `why` is the error
/// that occurred when the model was opened.
pub(super) fn no_encoder(why: &Error) -> Problem {
    let problem = Problem::unavailable(format!("the model of this index is not available: {why}"));
    let lexical = "use \"mode\": \"bm25\" for a search without the model";
    problem.hint(match why.hint() {
        Some(hint) => format!("{hint}; or {lexical}"),
        None => lexical.to_owned(),
    })
}
