//! Dialogues in a Milvus server. Changes are detected by polling. New dialogues are written together with their
//! vectors.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{ChangeToken, Selection, Source, filled};
use crate::{OpenIndex, app::Client, problem::Outcome, stored_responses::IdempotentResponses};
use turnwise_core::error::Result;
use turnwise_corpus::walk::Plan;
use turnwise_milvus::{ChangeWatcher, Milvus, MilvusWriter, Target};
use turnwise_search::Searcher;
use turnwise_store::ingest::{DialogueSink, IngestOptions, Ingested};

/// Shortest interval between polls.
const PAUSE: Duration = Duration::from_secs(2);

pub(super) struct MilvusSource {
    target: Target,
    /// Connection for polling; `None` if it is broken.
    watch: Mutex<Option<ChangeWatcher>>,
    answers: IdempotentResponses,
}

impl MilvusSource {
    pub(super) fn new(target: Target) -> Self {
        MilvusSource { target, watch: Mutex::default(), answers: IdempotentResponses::in_memory() }
    }
}

impl Source for MilvusSource {
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

    fn ingest_plan(&self, plan: Plan, options: &IngestOptions, opened: &OpenIndex) -> Outcome<Ingested> {
        let encoder = match opened.searcher.engine().recipe() {
            Some(_) => Some(opened.has_encoder()?.clone()),
            None => None,
        };
        let mut writer = MilvusWriter::open_to_fill(&self.target, encoder)?;
        Ok(filled(&mut writer, plan, options)?)
    }

    fn remove(&self, selection: &Selection, client: &Client) -> Result<usize> {
        let mut writer = MilvusWriter::open(&self.target)?;
        let removed = match selection {
            Selection::One(id) => match writer.get(id)?.filter(|dialogue| client.can_see(dialogue)) {
                Some(_) => writer.delete(std::slice::from_ref(id))?,
                None => 0,
            },
            Selection::Matching(filter) => match client.restrict(Some(filter.clone()))? {
                Some(filter) => writer.delete_fitting(&filter)?,
                None => 0,
            },
        };
        Ok(removed as usize)
    }

    fn answers(&self) -> &IdempotentResponses {
        &self.answers
    }
}
