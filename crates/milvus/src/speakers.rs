//! Names of speakers, which queries mention. They have a collection of their own, because Milvus cannot list the
//! different values of a column.
//!
//! A name stays in the collection when the last dialogue of the speaker is deleted. This does not matter: a search for a
//! speaker without turns has no effect.

use std::collections::BTreeSet;

use super::{
    connection::Connection,
    generations::Manifest,
    names,
    reading::{DEEPEST, columns},
};
use turnwise_core::error::Result;
use turnwise_corpus::Dialogue;
use turnwise_index::speakers::called;

/// Maximum number of bytes of a name, also in lower case. Longer names cannot be looked up.
pub(super) const LONGEST_NAME: usize = 256;
/// Number of names in one request.
const NAMES: usize = 1_000;

/// Names of the speakers in dialogues, in ascending order. Names that are too long are left out.
pub(super) fn of<'a>(dialogues: impl Iterator<Item = &'a Dialogue>) -> BTreeSet<&'a str> {
    let speakers = dialogues.flat_map(|dialogue| dialogue.turns.iter().map(|turn| turn.speaker.as_str()));
    let fits = |name: &&str| !name.is_empty() && name.len().max(names::folded(name).len()) <= LONGEST_NAME;
    speakers.filter(fits).collect()
}

impl Connection {
    /// Returns, for each of the names, at most `most` speakers with this name; see [`called`].
    pub(super) fn speakers(
        &self,
        manifest: &Manifest,
        names: &[&str],
        most: usize,
    ) -> Result<Vec<Vec<String>>> {
        let mut lists = Vec::with_capacity(names.len());
        for some in names.chunks(NAMES) {
            let limit = (most * some.len()).min(DEEPEST);
            let all = self.names_of_speakers(manifest, &condition(some), limit)?;
            for name in some {
                // The speakers with one of the names may fill the response. The others are then missing.
                let own = match all.len() < limit || some.len() == 1 {
                    true => None,
                    false => Some(self.names_of_speakers(manifest, &condition(&[name]), most)?),
                };
                lists.push(called(own.as_ref().unwrap_or(&all), name, most));
            }
        }
        Ok(lists)
    }

    /// Returns the names of all speakers, sorted. If there are more than `most`, returns `most` of them.
    pub(super) fn all_speakers(&self, manifest: &Manifest, most: usize) -> Result<Vec<String>> {
        let mut all = self.names_of_speakers(manifest, "id != \"\"", most)?;
        all.sort_unstable();
        Ok(all)
    }

    fn names_of_speakers(&self, manifest: &Manifest, filter: &str, most: usize) -> Result<Vec<String>> {
        let found = self.first_rows(&manifest.speakers(&self.target.name), filter, &["id"], most)?;
        Ok(columns(&found).texts("id").to_vec())
    }
}

/// Returns the condition that a speaker is called by one of the names.
fn condition(names: &[&str]) -> String {
    let called = |name: &&str| {
        let name = names::folded(name);
        let (whole, start) = (names::quoted(&name), names::quoted(&format!("{name} %")));
        format!("folded == {whole} or folded like {start}")
    };
    names.iter().map(called).collect::<Vec<_>>().join(" or ")
}
