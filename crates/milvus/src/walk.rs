//! Iteration over all dialogues of a generation and their vectors. A generation is one version of all collections.

use std::collections::HashMap;

use super::{
    connection::Connection,
    generations::Manifest,
    names,
    reading::{DEEPEST, columns},
    rows::{Answer, key_of, row_id},
    target::Target,
};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_corpus::Dialogue;
use turnwise_index::{engine::Version, vectors::Kind};

const PART: u64 = 250;
const DIGITS: usize = 32;

/// A dialogue with its vectors. A vector is `None` if it is zero or vectors are not read.
pub struct Moved {
    /// The dialogue.
    pub dialogue: Dialogue,
    /// Vector of the whole dialogue.
    pub whole: Option<Vec<f32>>,
    /// Vectors of the turns, in the order of the turns.
    pub turns: Vec<Option<Vec<f32>>>,
}

/// Iterator over all dialogues of a generation, in key order. It returns the dialogues in parts. A part consists of all
/// dialogues whose keys begin with the same hexadecimal digits. These digits are the name of the part.
pub struct Walk {
    connection: Connection,
    manifest: Manifest,
    /// Number of dialogues at the time when the iterator was opened.
    dialogues: u64,
    with_vectors: bool,
    /// Names of the remaining parts, in reverse order.
    parts: Vec<String>,
}

impl Walk {
    /// Opens an iterator over the generation to which the name in `target` refers. Returns an error if the name does
    /// not exist.
    pub fn over(target: &Target) -> Result<Self> {
        let (connection, manifest) = Connection::open_loaded(target)?;
        Walk::of(connection, manifest)
    }

    /// Opens an iterator over a generation that the server has loaded.
    pub(super) fn of(connection: Connection, manifest: Manifest) -> Result<Self> {
        let rows = connection.count(&manifest.rows(&connection.target.name, Kind::Dialogues))?;
        let digits = (0..4).find(|digits| 16u64.pow(*digits) * PART >= rows).unwrap_or(4);
        let mut parts = vec![String::new()];
        for _ in 0..digits {
            parts = parts.iter().flat_map(|part| subparts(part)).collect();
        }
        parts.reverse();
        let with_vectors = manifest.recipe.is_some();
        Ok(Walk { connection, manifest, dialogues: rows, with_vectors, parts })
    }

    /// Changes the iterator so that it reads no vectors.
    pub fn without_vectors(self) -> Self {
        Walk { with_vectors: false, ..self }
    }

    /// Returns the number of dialogues at the time when the iterator was opened.
    pub fn dialogues(&self) -> u64 {
        self.dialogues
    }

    /// Returns the manifest of the generation.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Changes the iterator so that it skips all dialogues up to the end of the part with the name `done`. To resume an
    /// interrupted iteration, pass the name of the last part that the earlier iterator returned.
    pub fn resume_after(mut self, done: &str) -> Self {
        self.parts = std::mem::take(&mut self.parts).into_iter().flat_map(|part| rest(part, done)).collect();
        self
    }

    /// Returns the name and the dialogues of the next part. Returns `None` if there are no further parts. Returns an
    /// error if rows are missing, which means that another process is writing.
    pub fn next_part(&mut self) -> Result<Option<(String, Vec<Moved>)>> {
        loop {
            let Some(part) = self.parts.pop() else { return Ok(None) };
            let Some(keys) = self.keys(&part)? else {
                self.parts.extend(subparts(&part).rev());
                continue;
            };
            return Ok(Some((part, self.read(&keys)?)));
        }
    }

    /// Reads the keys of the dialogues in a part. Returns `None` if the keys do not fit into one response.
    fn keys(&self, part: &str) -> Result<Option<Vec<IdKey>>> {
        let filter = match part {
            "" => "piece == 0".to_owned(),
            part => format!(
                "piece == 0 and key >= {} and key < {}",
                names::quoted(part),
                // `g` sorts after every hexadecimal digit.
                names::quoted(&format!("{part}g"))
            ),
        };
        let records = self.manifest.records(&self.connection.target.name);
        let found = self.connection.rows(&records, &filter, &["key"])?;
        let mut keys: Vec<IdKey> =
            columns(&found).texts("key").iter().filter_map(|key| key_of(key)).collect();
        if keys.len() >= DEEPEST && part.len() < DIGITS {
            return Ok(None);
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(Some(keys))
    }

    fn read(&self, keys: &[IdKey]) -> Result<Vec<Moved>> {
        let mut read = self.connection.dialogues(&self.manifest, keys)?;
        let mut names: [Vec<String>; 2] = Default::default();
        if self.with_vectors {
            for (key, (version, dialogue)) in &read {
                names[0].extend(dialogue.turns.iter().map(|turn| row_id(*key, *version, Some(turn.number))));
                names[1].push(row_id(*key, *version, None));
            }
        }
        let mut vectors = HashMap::new();
        for kind in Kind::ALL {
            self.vectors(kind, &names[kind as usize], &mut vectors)?;
        }
        let mut take = |key: IdKey, version: Version, dialogue: Dialogue| Moved {
            whole: vectors.remove(&row_id(key, version, None)),
            turns: dialogue
                .turns
                .iter()
                .map(|turn| vectors.remove(&row_id(key, version, Some(turn.number))))
                .collect(),
            dialogue,
        };
        let moved = |key: &IdKey| read.remove(key).map(|(version, dialogue)| take(*key, version, dialogue));
        Ok(keys.iter().filter_map(moved).collect())
    }

    fn vectors(&self, kind: Kind, of: &[String], vectors: &mut HashMap<String, Vec<f32>>) -> Result<()> {
        let collection = self.manifest.rows(&self.connection.target.name, kind);
        let mut rows = 0;
        let mut visit = |answer: &Answer<'_>| {
            rows += answer.texts("id").len();
            vectors.extend(answer.vectors().map(|(id, vector)| (id.clone(), vector.clone())));
            Ok(())
        };
        self.connection.rows_by(&collection, "id", of, &["id", "vector", "directed"], &mut visit)?;
        if rows != of.len() {
            let (missing, all, kind) = (of.len().saturating_sub(rows), of.len(), kind.name());
            let message =
                format!("{}: {missing} of {all} rows of {kind} are missing", self.connection.target);
            let hint = "another process is writing; try again when it has finished";
            return Err(Error::unavailable(message).with_hint(hint));
        }
        Ok(())
    }
}

/// Returns the names of the 16 parts into which a part can be split, one for each next hexadecimal digit.
fn subparts(part: &str) -> impl DoubleEndedIterator<Item = String> {
    let part = part.to_owned();
    "0123456789abcdef".chars().map(move |digit| format!("{part}{digit}"))
}

/// Splits `part` if needed, and returns the names of the parts that come after the part `done`, in reverse order.
fn rest(part: String, done: &str) -> Vec<String> {
    if done.len() > part.len() && done.starts_with(&part) {
        return subparts(&part).rev().flat_map(|part| rest(part, done)).collect();
    }
    match part.as_str() > done && !part.starts_with(done) {
        true => vec![part],
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divided_parts_are_sorted_and_below_the_upper_bound() {
        let parts: Vec<String> = subparts("3f").collect();
        assert_eq!((parts.len(), parts[0].as_str(), parts[15].as_str()), (16, "3f0", "3ff"));
        let rest = |part: &str, done| rest(part.to_owned(), done);
        assert_eq!(rest("3", "35"), ["3f", "3e", "3d", "3c", "3b", "3a", "39", "38", "37", "36"]);
        assert!(
            [rest("35", "3"), rest("35", "35"), rest("2", "35"), rest("", "f")].iter().all(Vec::is_empty)
        );
        assert_eq!((rest("4", "35"), rest("36", "35")), (vec!["4".to_owned()], vec!["36".to_owned()]));
        assert!(parts.is_sorted() && parts.iter().all(|part| **part < *"3fg" && **part >= *"3f"));
    }
}
