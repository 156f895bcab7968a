//! The command that creates a shard again. It is stored in each record, so missing shards can be created
//! without knowing the original command.

use super::Shards;

/// Returns a command line without the options for shard and place, which differ between runs.
pub(crate) fn reusable_args(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.skip(1);
    while let Some(word) = words.next() {
        match word.split_once('=').map_or(word.as_str(), |(name, _)| name) {
            "--shard" | "--out" if word.contains('=') => {}
            "--shard" | "--out" => drop(words.next()),
            _ => kept.push(word),
        }
    }
    kept
}

/// Returns the command that creates these shards in this place.
pub(crate) fn command(words: &[String], shards: &Shards, place: &str) -> String {
    let mut command = "turnwise".to_owned();
    let mut add = |word: &str| command.push_str(&format!(" {}", quoted(word)));
    match words.iter().position(|word| word == "encode") {
        Some(at) => {
            words[..=at].iter().for_each(|word| add(word));
            [&format!("--shard={shards}"), &format!("--out={place}")].into_iter().for_each(|word| add(word));
            words[at + 1..].iter().for_each(|word| add(word));
        }
        None => command.push_str(&format!(" encode --shard={shards} --out={} INPUT…", quoted(place))),
    }
    command
}

/// Quotes a word for a shell.
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
    fn a_command_is_kept_without_shard_and_place() {
        let typed = "turnwise -q encode --shard 3/8 my.jsonl --out=old --model m --out";
        let words = reusable_args(typed.split(' ').map(str::to_owned).chain(["s3://b/it's".to_owned()]));
        assert_eq!(words.join(" "), "-q encode my.jsonl --model m");
        let command = command(&words, &"1,5-7/8".parse().unwrap(), "s3://b/it's");
        assert_eq!(command, r"turnwise -q encode --shard=1,5-7/8 '--out=s3://b/it'\''s' my.jsonl --model m");
    }

    #[test]
    fn without_a_record_the_inputs_are_left_to_the_reader() {
        assert_eq!(
            command(&[], &"0/2".parse().unwrap(), "out"),
            "turnwise encode --shard=0/2 --out=out INPUT…"
        );
    }
}
