//! Threads: dialogues that belong together, such as all conversations of one customer. The thread of a dialogue is its
//! metadata value `thread`.

use super::{SearchRequest, Searcher};
use turnwise_core::{Error, Result, error::closest_name};
use turnwise_corpus::{
    Dialogue,
    filter::{FactNames, Filter},
};
use turnwise_index::{SearchModes, engine::Bookmark, vectors::Kind};

/// Number of dialogues that a remote engine is asked for at a time.
const STEP: usize = 1_000;

impl Searcher {
    /// Returns all dialogues of a thread, in the order of time. Dialogues without a time are last, sorted by id. Returns
    /// only dialogues that match `filter`. The list is empty if there is no such thread.
    ///
    /// A local index finds the dialogues by their stored field values, and reads only their records.
    pub fn thread(&self, name: &str, filter: Option<&Filter>) -> Result<Vec<Dialogue>> {
        let of_thread = Filter::of_thread(name)?;
        let wanted = match filter {
            Some(filter) => filter.and(&of_thread)?,
            None => of_thread,
        };
        let mut dialogues = match self.engine.local("reading a thread") {
            Ok(index) => {
                let modes = SearchModes { dense: false, lexical: false };
                let filtered = index.filtered(&wanted, Kind::Dialogues, modes)?;
                let mut dialogues = Vec::new();
                for (seq, id) in index.snapshot().live() {
                    if filtered.admitted().holds(seq, None)
                        && let Some((_, dialogue)) = index.snapshot().record(id)?
                    {
                        dialogues.push(dialogue);
                    }
                }
                dialogues
            }
            Err(_) => {
                let view = self.engine.view();
                let (mut dialogues, mut at) = (Vec::new(), Some(Bookmark::Beginning));
                while let Some(from) = at {
                    let (found, next) = view.list_dialogues(from, Some(&wanted), STEP)?;
                    dialogues.extend(found);
                    at = next;
                }
                dialogues
            }
        };
        dialogues.sort_by(Dialogue::compare_in_thread);
        Ok(dialogues)
    }

    /// Returns the error for a thread that does not exist. The hint names a similar thread, if there is one among the
    /// dialogues that match `filter`.
    pub fn unknown_thread(&self, name: &str, filter: Option<&Filter>) -> Result<Error> {
        let matching = if filter.is_some() { " that matches the filter" } else { "" };
        let error = Error::input(format!("no dialogue{matching} has the thread `{name}`"));
        Ok(match self.similar_thread(name, filter)? {
            Some(near) => error.with_hint(format!("did you mean `{near}`?")),
            None => error.with_hint("the thread of a dialogue is its metadata value `thread`"),
        })
    }

    /// Returns the name of a thread that is similar to `name`. Considers only dialogues that match `filter`. Returns
    /// `None` if there is none, or if the lexical index cannot list the threads.
    fn similar_thread(&self, name: &str, filter: Option<&Filter>) -> Result<Option<String>> {
        let Ok(index) = self.engine.local("listing threads") else { return Ok(None) };
        let Ok(lexical) = index.lexical() else { return Ok(None) };
        let modes = SearchModes { dense: false, lexical: true };
        let filtered = filter.map(|filter| index.filtered(filter, Kind::Dialogues, modes)).transpose()?;
        let selected = filtered.as_deref().and_then(|filtered| filtered.selected());
        if filter.is_some() && selected.is_none() {
            return Ok(None);
        }
        let counts = lexical.facets(index.snapshot(), &[FactNames::of("thread")?], selected)?;
        let names = counts.iter().flatten().flat_map(|threads| threads.keys().map(String::as_str));
        Ok(closest_name(name, names).map(str::to_owned))
    }

    /// Returns a warning if no item is accepted by the filter of a request with a thread because the thread does not
    /// exist. `admitted` is the number of accepted items.
    pub(super) fn thread_warning(
        &self,
        request: &SearchRequest,
        admitted: Option<u64>,
    ) -> Result<Option<String>> {
        let (Some(name), Some(0)) = (&request.thread, admitted) else { return Ok(None) };
        let filter = request.filter.as_ref();
        // The filter can hide dialogues from a client. The warning must not reveal whether hidden dialogues exist.
        if filter.is_some() && !self.thread(name, filter)?.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.unknown_thread(name, filter)?.message_and_hint()))
    }
}
