//! Cache of filter results, reused by later searches with the same filter.

use std::sync::{Arc, OnceLock, PoisonError};

use super::Embedded;
use crate::{Admitted, SearchModes, dense::NodeFilter, lexical::Selected, vectors::Kind};
use turnwise_core::error::Result;
use turnwise_corpus::filter::Filter;

const CACHE_SIZE: usize = 8;

/// Result of a filter for one kind, in the form that each search mode needs.
pub struct Filtered {
    filter: String,
    kind: Kind,
    admitted: Arc<Admitted>,
    /// Filter result for the lexical search; `None` if the lexical index cannot evaluate the filter. Then each hit of
    /// the search is looked up in `admitted`.
    selected: Option<Selected>,
    /// Filter result for the dense search, computed when it is first needed.
    among: OnceLock<NodeFilter>,
}

impl Filtered {
    /// Returns the set of accepted items.
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// Returns the filter result for the lexical search; `None` if the lexical index cannot evaluate the filter.
    pub fn selected(&self) -> Option<&Selected> {
        self.selected.as_ref()
    }

    pub(super) fn among(&self) -> Option<&NodeFilter> {
        self.among.get()
    }
}

impl Embedded {
    /// Returns the result of a filter, from the cache if possible.
    pub fn filtered(&self, filter: &Filter, kind: Kind, modes: SearchModes) -> Result<Arc<Filtered>> {
        let filtered = match self.cached(filter, kind) {
            Some(known) => known,
            None => {
                let new = Arc::new(self.evaluate(filter, kind, modes)?);
                let mut all = self.filters.lock().unwrap_or_else(PoisonError::into_inner);
                all.truncate(CACHE_SIZE - 1);
                all.insert(0, Arc::clone(&new));
                new
            }
        };
        if let (Some(dense), true) = (&self.dense, modes.dense) {
            filtered.among.get_or_init(|| dense.among(kind, Arc::clone(&filtered.admitted)));
        }
        Ok(filtered)
    }

    fn cached(&self, filter: &Filter, kind: Kind) -> Option<Arc<Filtered>> {
        let mut all = self.filters.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|known| known.kind == kind && known.filter == filter.as_str())?;
        let known = all.remove(at);
        all.insert(0, Arc::clone(&known));
        Some(known)
    }

    fn evaluate(&self, filter: &Filter, kind: Kind, modes: SearchModes) -> Result<Filtered> {
        let selected = match &self.lexical {
            Ok(lexical) => match lexical.select(&self.snapshot, filter, kind) {
                // A damaged lexical index must not fail a search that does not need it.
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
