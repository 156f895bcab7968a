//! Shard numbers, such as `3/100` for the fourth of one hundred shards, and the command that encodes a shard again.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use turnwise_core::{
    error::{Error, Result},
    ids::DialogueId,
};

/// Maximum number of shards. File names contain the number of shards with five digits.
const MAX_SHARDS: u32 = 99_999;

/// Identifier of a shard: its number, and the number of shards of the corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shard {
    /// Zero-based number of the shard.
    pub number: u32,
    /// Number of shards of the corpus.
    pub of: u32,
}

impl Shard {
    /// Returns whether the dialogue with this id belongs to the shard.
    pub fn holds(self, id: &DialogueId) -> bool {
        Shard::of_dialogue(id, self.of) == self
    }

    /// Returns the shard to which a dialogue belongs in a corpus with `of` shards.
    pub fn of_dialogue(id: &DialogueId, of: u32) -> Shard {
        let head = id.key().0[..8].try_into().map_or(0, u64::from_le_bytes);
        Shard { number: (head % u64::from(of.max(1))) as u32, of }
    }

    /// Returns the common prefix of the shard's file names, such as `shard-00003-of-00100`.
    pub(crate) fn stem(self) -> String {
        format!("shard-{:05}-of-{:05}", self.number, self.of)
    }

    /// Returns the file name of the shard's manifest.
    pub(crate) fn manifest_name(self) -> String {
        format!("{}.json", self.stem())
    }

    /// Returns the shard to which a file belongs, according to the beginning of its name. Returns `None` if the name is
    /// not the name of a shard's file.
    pub(crate) fn named(name: &str) -> Option<Shard> {
        let (number, rest) = name.strip_prefix("shard-")?.split_at_checked(5)?;
        let of = rest.strip_prefix("-of-")?.get(..5)?;
        let shard = Shard { number: number.parse().ok()?, of: of.parse().ok()? };
        (shard.number < shard.of).then_some(shard)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// A set of shards of one corpus, such as `3/100` or `0-9,42/100`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards {
    /// Number of shards of the corpus.
    pub of: u32,
    numbers: Vec<u32>,
}

impl Shards {
    /// Creates a set from shard numbers, which may be unsorted and contain duplicates.
    pub(crate) fn of(of: u32, numbers: impl IntoIterator<Item = u32>) -> Self {
        let mut numbers: Vec<u32> = numbers.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        Shards { of, numbers }
    }

    /// Returns an iterator over the shards, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Shard> + '_ {
        self.numbers.iter().map(|number| Shard { number: *number, of: self.of })
    }

    /// Returns the number of shards in the set.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }
}

impl FromStr for Shards {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: String| {
            Error::input(format!("`{text}` {why}"))
                .with_hint("for example, 3/100 is the fourth of 100 shards; 3,7-9/100 is several")
        };
        let (parts, of) = text.split_once('/').ok_or_else(|| wrong("is not a valid shard".to_owned()))?;
        let of: u32 = of.trim().parse().map_err(|_| wrong("is not a valid shard".to_owned()))?;
        if of == 0 || of > MAX_SHARDS {
            return Err(wrong(format!("has an invalid number of shards: it must be from 1 to {MAX_SHARDS}")));
        }
        let mut numbers = Vec::new();
        for part in parts.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number =
                |text: &str| text.trim().parse::<u32>().map_err(|_| wrong("is not a valid shard".to_owned()));
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= of {
                return Err(wrong(format!("is out of range 0 to {}: shards are numbered from 0", of - 1)));
            }
            numbers.extend(first..=last);
        }
        Ok(Shards::of(of, numbers))
    }
}

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.numbers.as_slice();
        while let Some(first) = rest.first() {
            let run =
                rest.iter().zip(*first..).take_while(|(number, expected)| **number == *expected).count();
            match run {
                1 => write!(f, "{first}")?,
                _ => write!(f, "{first}-{}", first + run as u32 - 1)?,
            }
            rest = rest.get(run..).unwrap_or_default();
            f.write_str(if rest.is_empty() { "" } else { "," })?;
        }
        write!(f, "/{}", self.of)
    }
}

/// Returns the arguments of a command line, without the program name and without `--shard` and `--out`. Each manifest
/// stores these arguments, so that missing shards can be created without knowing the original command.
pub fn reusable_args(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut reusable = Vec::new();
    let mut words = words.skip(1);
    while let Some(word) = words.next() {
        match word.split_once('=').map_or(word.as_str(), |(name, _)| name) {
            "--shard" | "--out" if word.contains('=') => {}
            "--shard" | "--out" => drop(words.next()),
            _ => reusable.push(word),
        }
    }
    reusable
}

/// Returns the command that creates `shards` in the folder `location`. `words` is a result of [`reusable_args`].
pub(crate) fn command(words: &[String], shards: &Shards, location: &str) -> String {
    let mut command = "turnwise".to_owned();
    let mut add = |word: &str| command.push_str(&format!(" {}", quoted(word)));
    match words.iter().position(|word| word == "encode") {
        Some(at) => {
            words[..=at].iter().for_each(|word| add(word));
            [&format!("--shard={shards}"), &format!("--out={location}")]
                .into_iter()
                .for_each(|word| add(word));
            words[at + 1..].iter().for_each(|word| add(word));
        }
        None => command.push_str(&format!(" encode --shard={shards} --out={} INPUT…", quoted(location))),
    }
    command
}

/// Quotes a word for a POSIX shell if quoting is necessary.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_written_as_they_are_read() {
        for text in ["0/1", "3/100", "0-9,42/100", "1,3/4"] {
            assert_eq!(text.parse::<Shards>().unwrap().to_string(), text);
        }
        assert_eq!("3,1,2,2/8".parse::<Shards>().unwrap().to_string(), "1-3/8");
        for wrong in ["", "3", "4/4", "a/4", "1-/4", "2-1/4", "0/0", "0/100000", "-1/4"] {
            let e = wrong.parse::<Shards>().unwrap_err();
            assert!(e.hint().unwrap().contains("3/100"), "{wrong}: {e}");
        }
    }

    #[test]
    fn every_dialogue_is_in_one_shard_and_shards_are_even() {
        let mut counts = [0; 7];
        for n in 0..7000 {
            let id = DialogueId::new(format!("dialogue {n}")).unwrap();
            let holders: Vec<u32> =
                (0..7).filter(|number| Shard { number: *number, of: 7 }.holds(&id)).collect();
            assert_eq!(holders.len(), 1);
            counts[holders[0] as usize] += 1;
        }
        assert!(counts.iter().all(|n| (850..1150).contains(n)), "{counts:?}");
    }

    #[test]
    fn a_file_name_gives_the_shard() {
        let shard = Shard { number: 3, of: 100 };
        assert_eq!(shard.manifest_name(), "shard-00003-of-00100.json");
        assert_eq!(Shard::named("shard-00003-of-00100-abc.arrow"), Some(shard));
        for other in ["shard-3-of-100.json", "notes.txt", "shard-00100-of-00100.json", "shard-0000é"] {
            assert_eq!(Shard::named(other), None, "{other}");
        }
    }

    #[test]
    fn a_command_is_kept_without_shard_and_place() {
        let typed = "turnwise -q encode --shard 3/8 my.jsonl --out=old --model m --out";
        let words = reusable_args(typed.split(' ').map(str::to_owned).chain(["s3://b/it's".to_owned()]));
        assert_eq!(words.join(" "), "-q encode my.jsonl --model m");
        let command = command(&words, &"1,5-7/8".parse().unwrap(), "s3://b/it's");
        assert_eq!(command, r"turnwise -q encode --shard=1,5-7/8 '--out=s3://b/it'\''s' my.jsonl --model m");
    }

    #[test]
    fn without_a_manifest_the_inputs_are_left_to_the_reader() {
        assert_eq!(
            command(&[], &"0/2".parse().unwrap(), "out"),
            "turnwise encode --shard=0/2 --out=out INPUT…"
        );
    }
}
