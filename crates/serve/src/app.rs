//! What all requests share: the indexes, the keys, the pool, the counts.

use std::{collections::HashSet, sync::Arc, time::Instant};

use super::{
    hosted::{Hosted, ServerHooks},
    keys::{Key, Keys},
    metrics::Metrics,
    options::{Limits, Options},
    pool::Pool,
    problem::{Outcome, Problem},
    source::Place,
    surveys::Surveys,
};
use turnwise_core::{
    error::{Class, Error, Result},
    ids::{DialogueId, Seq},
};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_encoder::Encoder;
use turnwise_index::{
    engine::{Ahead, Candidate},
    vectors::Kind,
};
use turnwise_search::{Replies, RespondRequest, Response, SearchRequest, Searcher};
use turnwise_store::Snapshot;

/// What a server is made of; cheap to clone.
#[derive(Clone)]
pub struct App {
    pub(super) indexes: Arc<[Arc<Hosted>]>,
    pub(super) hooks: Arc<dyn ServerHooks>,
    pub(super) keys: Arc<Keys>,
    pub(super) limits: Arc<Limits>,
    pub(super) pool: Pool,
    /// For what goes over a whole index: it uses all cores by itself, and must not stand in the way of searches.
    pub(super) surveying: Pool,
    pub(super) metrics: Arc<Metrics>,
    pub(super) begun: Instant,
    /// Whether nobody needs a key, and only this machine may ask.
    pub(super) loopback: bool,
}

impl App {
    /// Opens these indexes, each under a name.
    pub fn open(
        indexes: Vec<(String, Place)>,
        hooks: &Arc<dyn ServerHooks>,
        options: &Options,
    ) -> Result<Self> {
        options.check()?;
        let metrics = Arc::new(Metrics::new());
        let mut hosted: Vec<Arc<Hosted>> = Vec::with_capacity(indexes.len());
        for (name, place) in indexes {
            if hosted.iter().any(|other| other.name == name) {
                return Err(Error::input(format!("two indexes are called {name}")));
            }
            hosted.push(Arc::new(Hosted::open(name, place, hooks.clone(), metrics.clone())?));
        }
        options.keys.are_for(hosted.iter().map(|hosted| hosted.name.as_str()))?;
        Ok(App {
            indexes: hosted.into(),
            hooks: hooks.clone(),
            keys: Arc::new(options.keys.clone()),
            pool: Pool::new(options.limits.at_once, options.limits.waiting),
            surveying: Pool::new(1, options.limits.waiting),
            limits: Arc::new(options.limits.clone()),
            metrics,
            begun: Instant::now(),
            loopback: options.listen.ip().is_loopback() && options.keys.is_empty(),
        })
    }

    /// Each index's name, and what is open of it.
    pub fn opened(&self) -> Vec<(String, Arc<Opened>)> {
        self.indexes.iter().map(|hosted| (hosted.name.clone(), hosted.now())).collect()
    }

    /// With names in the place of where things lie, for whoever asks over the network.
    pub(super) fn hidden(&self, problem: Problem) -> Problem {
        self.indexes.iter().fold(problem, |problem, hosted| hosted.hidden(problem))
    }

    /// Looks whether other processes have changed an index, and opens it anew then.
    pub(super) fn follow(&self) {
        for hosted in self.indexes.iter() {
            // What cannot be opened leaves what is there, or says of itself that it is away; the next look may find it whole.
            let _ = hosted.follow();
        }
    }
}

/// Who asks: what the key allows.
#[derive(Debug, Clone, Default)]
pub(super) struct Asker(pub(super) Option<Key>);

impl Asker {
    /// The indexes that may be asked.
    pub(super) fn indexes<'a>(&self, app: &'a App) -> impl Iterator<Item = &'a Arc<Hosted>> {
        app.indexes.iter().filter(|hosted| self.0.as_ref().is_none_or(|key| key.is_for(&hosted.name)))
    }

    /// The index that is asked, if there is one of that name for this asker; unnamed, the only one.
    pub(super) fn index<'a>(&self, app: &'a App, name: Option<&str>) -> Outcome<&'a Arc<Hosted>> {
        let mut those = self.indexes(app);
        match name {
            Some(name) => {
                let all: Vec<&'a Arc<Hosted>> = those.collect();
                let names = all.iter().map(|hosted| hosted.name.as_str()).collect::<Vec<_>>().join(", ");
                all.into_iter().find(|hosted| hosted.name == name).ok_or_else(|| {
                    Problem::not_found(format!("there is no index `{name}` here"))
                        .param("index")
                        .hint(format!("there are: {names}"))
                })
            }
            None => match (those.next(), those.next()) {
                (Some(only), None) => Ok(only),
                (None, _) => Err(Problem::not_found("there is no index here")),
                (Some(_), Some(_)) => Err(Problem::request("there are several indexes here")
                    .param("index")
                    .hint("say which: ?index=NAME; GET /info names them")),
            },
        }
    }

    /// What is open of the index that is asked.
    pub(super) fn opened(&self, app: &App, name: Option<&str>) -> Outcome<Arc<Opened>> {
        self.index(app, name)?.at_hand()
    }

    /// Whether everything may be seen, of every index.
    pub(super) fn sees_all(&self) -> bool {
        self.0.as_ref().is_none_or(|key| key.filter.is_none() && key.indexes.is_empty())
    }

    /// All that may be seen.
    pub(super) fn filter(&self) -> Option<&Filter> {
        self.0.as_ref().and_then(|key| key.filter.as_ref())
    }

    /// What is asked for, of what may be seen.
    pub(super) fn with_own(&self, asked: Option<Filter>) -> Result<Option<Filter>> {
        Ok(match (self.filter(), asked) {
            (Some(own), Some(asked)) => Some(own.and(&asked)?),
            (own, asked) => asked.or_else(|| own.cloned()),
        })
    }

    /// Whether a dialogue may be seen.
    pub(super) fn may_see(&self, dialogue: &Dialogue) -> bool {
        self.filter().is_none_or(|filter| filter.matches(dialogue))
    }
}

/// An index as of one moment.
pub struct Opened {
    /// What answers.
    pub searcher: Searcher,
    /// What makes vectors of queries.
    pub encoder: Option<Arc<dyn Encoder>>,
    /// Why there is none although there are vectors.
    pub without_encoder: Option<Error>,
    pub(super) surveys: Surveys,
}

impl Opened {
    pub(super) fn new(
        searcher: Searcher,
        encoder: Option<Arc<dyn Encoder>>,
        without_encoder: Option<Error>,
    ) -> Self {
        Opened { searcher, encoder, without_encoder, surveys: Surveys::default() }
    }

    /// The records of an index on this machine; an error that names what is not possible elsewhere.
    pub(super) fn snapshot(&self, what: &str) -> Result<&Snapshot> {
        Ok(self.searcher.embedded(what)?.snapshot())
    }

    /// A dialogue as it is now.
    pub(super) fn dialogue(&self, id: &str) -> Result<Option<Dialogue>> {
        let found = self.searcher.engine().view().record(DialogueId::new(id)?.key())?;
        Ok(found.map(|(_, dialogue)| dialogue))
    }

    /// Answers, with what the asker may see.
    pub(super) fn search(&self, mut request: SearchRequest, asker: &Asker) -> Outcome<Response> {
        request.check()?;
        let view = self.searcher.engine().view();
        if let Some(id) = &request.like {
            let hidden = || Problem::not_found(format!("there is no `{id}`")).param("like");
            let (dialogue, _) = view.find(id).map_err(|e| match e.class() {
                Class::Input => hidden(),
                _ => e.into(),
            })?;
            if !asker.may_see(&dialogue) {
                return Err(hidden());
            }
        }
        request.filter = asker.with_own(request.filter)?;
        if self.searcher.needs_encoder(&request)?.is_some() {
            self.has_encoder()?;
        }
        let mut found = self.searcher.search(&request)?;
        if asker.filter().is_some() {
            let ids = found.hits.iter().map(|hit| hit.dialogue.as_str());
            let may = self.visible(ids, asker)?;
            found.hits.retain(|hit| may.contains(&hit.dialogue));
        }
        Ok(found)
    }

    /// Those of these dialogues that the asker may see: what a turn says of itself does not make its dialogue somebody's.
    fn visible<'a>(&self, ids: impl Iterator<Item = &'a str>, asker: &Asker) -> Result<HashSet<String>> {
        let view = self.searcher.engine().view();
        let ids: HashSet<&str> = ids.collect();
        let ids = ids.into_iter().map(DialogueId::new).collect::<Result<Vec<DialogueId>>>()?;
        let named =
            |id: &DialogueId| Candidate { dialogue: id.key(), seq: Seq::default(), turn: None, score: 0.0 };
        let all: Vec<Candidate> = ids.iter().map(named).collect();
        view.ahead(Kind::Dialogues, &all, Ahead::Records)?;
        let mut may = HashSet::new();
        for id in &ids {
            if view.record(id.key())?.is_some_and(|(_, dialogue)| asker.may_see(&dialogue)) {
                may.insert(id.to_string());
            }
        }
        Ok(may)
    }

    /// What may be said next, of what the asker may see.
    pub(super) fn respond(&self, mut request: RespondRequest, asker: &Asker) -> Outcome<Replies> {
        request.check()?;
        if request.candidates.is_empty() {
            request.filter = asker.with_own(request.filter)?;
        }
        if self.searcher.respond_needs_encoder(&request) {
            self.has_encoder()?;
        }
        let mut found = self.searcher.respond(&request)?;
        if asker.filter().is_some() {
            let said = found.replies.iter().filter_map(|reply| reply.said.as_ref());
            let may = self.visible(said.map(|said| said.dialogue.as_str()), asker)?;
            found.replies.retain(|reply| reply.said.as_ref().is_none_or(|said| may.contains(&said.dialogue)));
        }
        Ok(found)
    }

    /// The encoder, or why there is none.
    pub(super) fn has_encoder(&self) -> Outcome<&Arc<dyn Encoder>> {
        match (&self.encoder, &self.without_encoder) {
            (Some(encoder), _) => Ok(encoder),
            (None, Some(why)) => Err(no_encoder(why)),
            (None, None) => Err(self.without_vectors()),
        }
    }
}

impl Opened {
    /// That there are none, with how to get some.
    pub(super) fn without_vectors(&self) -> Problem {
        let problem = Problem::unavailable("this index has no vectors");
        match self.searcher.engine().without_vectors().hint() {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

/// A search by meaning where the model is missing.
pub(super) fn no_encoder(why: &Error) -> Problem {
    let problem = Problem::unavailable(format!("the model of this index is missing: {why}"));
    let words = "ask with \"mode\": \"bm25\" to search by words alone";
    problem.hint(match why.hint() {
        Some(hint) => format!("{hint}; or {words}"),
        None => words.to_owned(),
    })
}
