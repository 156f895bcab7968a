//! Dialogues in a Milvus. It is asked now and then what the name stands for; what comes to it has its vectors when it is there.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{ChangeToken, Source, Those, filled};
use crate::{Opened, app::Asker, problem::Outcome, repeated::Answers};
use turnwise_core::error::Result;
use turnwise_corpus::walk::Plan;
use turnwise_milvus::{ChangeWatcher, Milvus, MilvusWriter, Target};
use turnwise_search::Searcher;
use turnwise_store::ingest::{DialogueSink, IngestOptions, Ingested};

/// How often it is asked at most.
const PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Far {
    target: Target,
    /// The connection by which it is asked; none if that broke.
    watch: Mutex<Option<ChangeWatcher>>,
    answers: Answers,
}

impl Far {
    pub(super) fn new(target: Target) -> Self {
        Far { target, watch: Mutex::default(), answers: Answers::in_memory() }
    }
}

impl Source for Far {
    fn kind(&self) -> &'static str {
        "milvus"
    }

    fn places(&self) -> Vec<String> {
        vec![self.target.to_string(), self.target.server()]
    }

    fn folder(&self) -> Option<&Path> {
        None
    }

    fn change_token(&self) -> Result<ChangeToken> {
        let mut kept = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let watch = match kept.take() {
            Some(watch) => watch,
            None => ChangeWatcher::open(&self.target)?,
        };
        let held = watch.look()?;
        *kept = Some(watch);
        Ok(ChangeToken::Milvus(Box::new(held)))
    }

    fn pause(&self) -> Duration {
        PAUSE
    }

    fn open(&self) -> Result<Searcher> {
        Ok(Searcher::of(Box::new(Milvus::open(&self.target)?)))
    }

    fn take_in(&self, plan: Plan, options: &IngestOptions, opened: &Opened) -> Outcome<Ingested> {
        let encoder = match opened.searcher.engine().recipe() {
            Some(_) => Some(opened.has_encoder()?.clone()),
            None => None,
        };
        let mut home = MilvusWriter::open_to_fill(&self.target, encoder)?;
        Ok(filled(&mut home, plan, options)?)
    }

    fn remove(&self, those: &Those, asker: &Asker) -> Result<usize> {
        let mut home = MilvusWriter::open(&self.target)?;
        let removed = match those {
            Those::One(id) => match home.get(id)?.filter(|dialogue| asker.may_see(dialogue)) {
                Some(_) => home.delete(std::slice::from_ref(id))?,
                None => 0,
            },
            Those::Fitting(filter) => match asker.with_own(Some(filter.clone()))? {
                Some(filter) => home.delete_fitting(&filter)?,
                None => 0,
            },
        };
        Ok(removed as usize)
    }

    fn answers(&self) -> &Answers {
        &self.answers
    }
}
