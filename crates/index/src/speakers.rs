//! Names of speakers, which a query can mention.

use std::sync::OnceLock;

use turnwise_core::error::Result;

/// Maximum number of speakers whose names are kept in memory.
const CACHED: usize = 100;

/// Returns whether the name of a speaker is `name`, or begins with the words of `name`: "Ann Smith" is called "ann".
pub fn is_called(speaker: &str, name: &str) -> bool {
    let speaker = speaker.to_lowercase();
    speaker.strip_prefix(&name.to_lowercase()).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// Returns the first `most` of the speakers that are called by a name.
pub fn called<'a>(speakers: impl IntoIterator<Item = &'a String>, name: &str, most: usize) -> Vec<String> {
    speakers.into_iter().filter(|speaker| is_called(speaker, name)).take(most).cloned().collect()
}

/// Names of all speakers of an index with few speakers, read at the first use.
#[derive(Debug, Default)]
pub struct SpeakerCache(OnceLock<Option<Vec<String>>>);

impl SpeakerCache {
    /// Returns the names of all speakers; `None` if there are too many to keep them. `read` reads a number of names from
    /// the index.
    pub fn all(&self, read: impl FnOnce(usize) -> Result<Vec<String>>) -> Result<Option<&[String]>> {
        let all = match self.0.get() {
            Some(all) => all,
            None => {
                let all = read(CACHED + 1)?;
                self.0.get_or_init(|| Some(all).filter(|all| all.len() <= CACHED))
            }
        };
        Ok(all.as_deref())
    }
}

/// Returns the usual spellings of a name. An index with many speakers is searched for each of them.
pub(crate) fn spellings(name: &str) -> Vec<String> {
    let lower = name.to_lowercase();
    let mut spellings = vec![name.to_owned(), capitalized(&lower), name.to_uppercase(), lower];
    spellings.sort_unstable();
    spellings.dedup();
    spellings
}

/// Returns a name with the first letter of each word in upper case.
fn capitalized(name: &str) -> String {
    let mut start = true;
    let mut capitalized = String::with_capacity(name.len());
    for c in name.chars() {
        if start {
            capitalized.extend(c.to_uppercase());
        } else {
            capitalized.push(c);
        }
        start = !c.is_alphanumeric();
    }
    capitalized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_whole_name_or_its_first_words() {
        for (speaker, name, expected) in [
            ("Ann Smith", "ann", true),
            ("Ann Smith", "ANN SMITH", true),
            ("Annabel", "Ann", false),
            ("Ann", "Ann Smith", false),
            ("Şule", "şule", true),
        ] {
            assert_eq!(is_called(speaker, name), expected, "{speaker}: {name}");
        }
        assert_eq!(spellings("aNN lee"), ["ANN LEE", "Ann Lee", "aNN lee", "ann lee"]);
        assert_eq!(spellings("anne-marie")[1], "Anne-Marie");
    }

    #[test]
    fn many_speakers_are_not_kept() {
        let names = |count: usize| move |most: usize| Ok(vec!["Ann".to_owned(); count.min(most)]);
        let (few, many) = (SpeakerCache::default(), SpeakerCache::default());
        assert_eq!(few.all(names(100)).unwrap().map(<[String]>::len), Some(100));
        assert_eq!(few.all(|_| panic!("it reads again")).unwrap().map(<[String]>::len), Some(100));
        assert_eq!(many.all(names(101)).unwrap(), None);
        assert_eq!(many.all(|_| panic!("it reads again")).unwrap(), None);
    }
}
