//! What a filter admits, kept for the searches that follow with the same one.

use std::sync::{Arc, OnceLock, PoisonError};

use super::Embedded;
use crate::{Admitted, SearchModes, dense::Among, lexical::Selected, vectors::Kind};
use turnwise_core::error::Result;
use turnwise_corpus::filter::Filter;

/// So many filters are remembered.
const REMEMBERED: usize = 8;

/// What a filter admits of a kind, in the forms in which it is asked for.
pub struct Filtered {
    filter: String,
    kind: Kind,
    admitted: Arc<Admitted>,
    /// For the list by words, if the index could tell; else its hits are looked at one by one.
    selected: Option<Selected>,
    /// For the list by meaning, if that was ever asked for.
    among: OnceLock<Among>,
}

impl Filtered {
    /// What it admits.
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// The same as the index by words needs it, if that could tell.
    pub fn selected(&self) -> Option<&Selected> {
        self.selected.as_ref()
    }

    pub(super) fn among(&self) -> Option<&Among> {
        self.among.get()
    }
}

impl Embedded {
    /// What a filter admits.
    pub fn filtered(&self, filter: &Filter, kind: Kind, modes: SearchModes) -> Result<Arc<Filtered>> {
        let filtered = match self.remembered(filter, kind) {
            Some(known) => known,
            None => {
                let new = Arc::new(self.work_out(filter, kind, modes)?);
                let mut all = self.filters.lock().unwrap_or_else(PoisonError::into_inner);
                all.truncate(REMEMBERED - 1);
                all.insert(0, Arc::clone(&new));
                new
            }
        };
        if let (Some(dense), true) = (&self.dense, modes.dense) {
            filtered.among.get_or_init(|| dense.among(kind, Arc::clone(&filtered.admitted)));
        }
        Ok(filtered)
    }

    fn remembered(&self, filter: &Filter, kind: Kind) -> Option<Arc<Filtered>> {
        let mut all = self.filters.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|known| known.kind == kind && known.filter == filter.as_str())?;
        let known = all.remove(at);
        all.insert(0, Arc::clone(&known));
        Some(known)
    }

    fn work_out(&self, filter: &Filter, kind: Kind, modes: SearchModes) -> Result<Filtered> {
        let selected = match &self.lexical {
            Ok(lexical) => match lexical.select(&self.snapshot, filter, kind) {
                // Where the index by words is not needed, that it is damaged is no reason to give up.
                Err(_) if !modes.lexical => None,
                other => other?,
            },
            Err(_) => None,
        };
        let admitted = match &selected {
            Some(selected) => Arc::clone(&selected.admitted),
            None => Arc::new(Admitted::by_records(&self.snapshot, filter, kind)?),
        };
        Ok(Filtered { filter: filter.as_str().to_owned(), kind, admitted, selected, among: OnceLock::new() })
    }
}
