//! Names of speakers, which a query can mention.

use std::sync::OnceLock;

use turnwise_core::error::Result;

/// Returns whether the name of a speaker is `name`, or begins with the words of `name`: "Ann Smith" is called "ann".
pub fn is_called(speaker: &str, name: &str) -> bool {
    is_name(&speaker.to_lowercase(), &name.to_lowercase())
}

/// Like [`is_called`], for names in lower case.
fn is_name(speaker: &str, name: &str) -> bool {
    speaker.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// Returns the first `most` of the speakers that are called by a name.
pub fn called<'a>(speakers: impl IntoIterator<Item = &'a String>, name: &str, most: usize) -> Vec<String> {
    speakers.into_iter().filter(|speaker| is_called(speaker, name)).take(most).cloned().collect()
}

/// Names of all speakers of an index, read at the first use. If there are too many, the index is searched for each name.
#[derive(Debug)]
pub struct SpeakerCache {
    most: usize,
    all: OnceLock<Option<Names>>,
}

#[derive(Debug)]
struct Names {
    names: Vec<String>,
    /// The names in lower case, sorted, with their index in `names`.
    folded: Vec<(String, usize)>,
}

impl SpeakerCache {
    /// Creates a cache of at most `most` names.
    pub fn new(most: usize) -> Self {
        SpeakerCache { most, all: OnceLock::new() }
    }

    /// Returns for each of the names the speakers that are called so, at most `most`. `read_all` reads a number of names from
    /// the index. `look_up` searches the index; it is called only if there are too many names to keep them.
    pub fn called(
        &self,
        names: &[&str],
        most: usize,
        read_all: impl FnOnce(usize) -> Result<Vec<String>>,
        look_up: impl FnOnce() -> Result<Vec<Vec<String>>>,
    ) -> Result<Vec<Vec<String>>> {
        match self.all(read_all)? {
            Some(all) => Ok(names.iter().map(|name| all.called(name, most)).collect()),
            None => look_up(),
        }
    }

    /// Returns the first `most` of all names. `read_all` reads a number of names from the index.
    pub fn first(&self, most: usize, read_all: impl Fn(usize) -> Result<Vec<String>>) -> Result<Vec<String>> {
        match self.all(&read_all)? {
            Some(all) => Ok(all.names.iter().take(most).cloned().collect()),
            None => read_all(most),
        }
    }

    fn all(&self, read_all: impl FnOnce(usize) -> Result<Vec<String>>) -> Result<Option<&Names>> {
        let all = match self.all.get() {
            Some(all) => all,
            None => {
                let all = read_all(self.most + 1)?;
                self.all.get_or_init(|| Some(all).filter(|all| all.len() <= self.most).map(Names::of))
            }
        };
        Ok(all.as_ref())
    }
}

impl Names {
    fn of(names: Vec<String>) -> Self {
        let folded = names.iter().enumerate().map(|(n, name)| (name.to_lowercase(), n));
        let mut folded: Vec<(String, usize)> = folded.collect();
        folded.sort_unstable();
        Names { names, folded }
    }

    fn called(&self, name: &str, most: usize) -> Vec<String> {
        let name = name.to_lowercase();
        // Only names that start with a character below the space are between the name itself and those with more words.
        let from = self.folded.partition_point(|(folded, _)| *folded < name);
        let starting = self.folded[from..].iter().take_while(|(folded, _)| folded.starts_with(&name));
        let called = starting.filter(|(folded, _)| is_name(folded, &name));
        let mut called: Vec<usize> = called.map(|(_, n)| *n).collect();
        called.sort_unstable();
        called.into_iter().take(most).map(|n| self.names[n].clone()).collect()
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
    fn kept_names_are_those_that_is_called_accepts() {
        let all: Vec<String> =
            ["Ann", "Ann Lee", "Ann Smith", "Anna", "ann smith", "ann\tb", "Bo", "Şule", "Ｂo"]
                .map(str::to_owned)
                .into();
        let kept = Names::of(all.clone());
        for name in ["ann", "ANN", "Ann Smith", "ann s", "anna", "b", "bo", "şule", "", "zoe"] {
            assert_eq!(kept.called(name, 9), called(&all, name, 9), "{name}");
            assert_eq!(kept.called(name, 2), called(&all, name, 2), "{name}");
        }
    }

    #[test]
    fn many_speakers_are_not_kept() {
        let names = |count: usize| move |most: usize| Ok(vec!["Ann".to_owned(); count.min(most)]);
        let (few, many) = (SpeakerCache::new(100), SpeakerCache::new(100));
        let count = |found: Vec<Vec<String>>| found.iter().map(Vec::len).collect::<Vec<_>>();
        let looked_up = || Ok(vec![Vec::new()]);
        assert_eq!(count(few.called(&["ann"], 999, names(100), looked_up).unwrap()), [100]);
        assert_eq!(count(few.called(&["ann"], 3, |_| panic!("it reads again"), looked_up).unwrap()), [3]);
        assert_eq!(few.first(2, |_| panic!("it reads again")).unwrap().len(), 2);
        assert_eq!(count(many.called(&["ann"], 999, names(101), looked_up).unwrap()), [0]);
        assert_eq!(count(many.called(&["ann"], 999, |_| panic!("it reads again"), looked_up).unwrap()), [0]);
        assert_eq!(many.first(2, names(101)).unwrap().len(), 2);
    }
}
