//! The files of dial2vec (AlibabaResearch/DAMO-ConvAI), in three layouts. `⇥` is a tab.
//!
//! - `preprocess_session_SET.txt`, the source data: one utterance per line, `session ⇥ role ⇥ text ⇥ topics`. The
//!   lines of a session are consecutive. Topics are separated by `|`.
//! - `train.tsv`, the training data: `roles ⇥ samples ⇥ 0`. Samples are separated by `|`. The utterances of a sample
//!   are separated by `#`. The first sample is the dialogue. In the other samples, the utterances of one speaker are
//!   random. These samples are ignored. Ten consecutive lines contain the same dialogue, which is read only once.
//! - `clustering_dev.tsv` and `clustering_test.tsv`: `roles ⇥ samples ⇥ topic`. All samples of a line are equal.
//!   The topic is a number and becomes the domain of the dialogue.
//!
//! A role is a digit: 0 is the user, 1 is the agent, and any other digit is a participant.

use crate::formats::prelude::*;

/// Tab-separated cells in which quotes are ordinary characters.
const PLAIN: Dialect = Dialect { delimiter: b'\t', quotes: false };

/// Returns the role for a digit: 0 is the user, 1 is the agent, and any other digit is a participant.
fn role(digit: &str) -> Result<Role, RecordError> {
    match digit {
        "0" => Ok(Role::User),
        "1" => Ok(Role::Agent),
        _ if !digit.is_empty() && digit.bytes().all(|b| b.is_ascii_digit()) => Ok(Role::Participant),
        _ => Err(format!("the role `{digit}` is not a digit").into()),
    }
}

pub(super) static SESSION: Format = Format {
    name: "dial2vec-session",
    about: "dial2vec's preprocess_session_*.txt: session, role (0 or 1), text and topics, separated by tabs",
    sniff: sniff_session,
    read: read_session,
};

fn sniff_session(probe: &Probe<'_>) -> Fit {
    let lines: Vec<&str> = probe.lines().take(20).collect();
    let fits = |line: &&str| {
        let cells: Vec<&str> = line.split('\t').map(str::trim).collect();
        matches!(cells.as_slice(), [session, "0" | "1", _, topics] if !session.is_empty() && !topics.is_empty())
    };
    if lines.is_empty() || !lines.iter().all(fits) {
        Fit::No
    } else if probe.file_name().starts_with("preprocess_session") {
        Fit::Yes
    } else {
        Fit::Maybe
    }
}

fn read_session(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let stem = input.stem();
    let set = stem.strip_prefix("preprocess_session_").unwrap_or(&stem).to_owned();
    let (source, split) = match set.rsplit_once('_') {
        Some((source, split @ ("train" | "dev" | "test"))) => (source.to_owned(), Some(split.to_owned())),
        _ => (set.clone(), None),
    };
    Ok(tables::from_turn_rows(input, options, PLAIN, Utterances { set, source, split }))
}

struct Utterances {
    set: String,
    source: String,
    split: Option<String>,
}

impl TurnRows for Utterances {
    const NUMBER_KEY: &'static str = "number";

    fn id(&self, row: &Row<'_>, _: u64) -> Result<String, RecordError> {
        match tables::text(row, 0)?.trim() {
            "" => Err("the line does not start with a session".into()),
            // Session numbers are unique only within a set.
            session => Ok(format!("{}-{session}", self.set)),
        }
    }

    fn add(&self, dialogue: &mut Dialogue, row: &Row<'_>) -> Result<Option<u32>, RecordError> {
        if row.width() != 4 {
            let width = row.width();
            return Err(format!("the line has {width} columns, not 4 (session, role, text, topics)").into());
        }
        let cell = |at| tables::text(row, at).map(str::trim);
        let digit = cell(1)?;
        dialogue.push(digit, role(digit)?, cell(2)?);
        dialogue.source.clone_from(&self.source);
        dialogue.note("split", self.split.as_deref());
        for topic in cell(3)?.split('|') {
            push_unique(&mut dialogue.domains, topic.trim());
        }
        Ok(None)
    }

    fn has_header(&self) -> bool {
        false
    }
}

/// A line of `train.tsv` or of a clustering file.
struct Line<'a> {
    roles: Vec<(&'a str, Role)>,
    /// The first sample: utterances separated by `#`.
    dialogue: &'a str,
    /// The other samples.
    others: Vec<&'a str>,
    /// The topic number, or 0 in `train.tsv`.
    label: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Result<Self, RecordError> {
        let [roles, samples, label] = support::columns(line, "roles, samples, label")?.map(str::trim);
        let digits: Vec<&str> = match roles.find(['#', '|']) {
            Some(_) => roles.split(['#', '|']).collect(),
            None => roles.split("").filter(|digit| !digit.is_empty()).collect(),
        };
        let roles: Vec<_> =
            digits.into_iter().map(|digit| Ok((digit, role(digit)?))).collect::<Result<_, RecordError>>()?;
        let mut samples = samples.split('|');
        let dialogue = samples.next().unwrap_or_default();
        let (count, turns) = (roles.len(), dialogue.split('#').count());
        if count != turns {
            return Err(format!("the line has {count} roles for {turns} utterances").into());
        }
        Ok(Line { roles, dialogue, others: samples.collect(), label })
    }

    /// Returns whether all other samples are equal to the dialogue.
    fn is_uniform(&self) -> bool {
        self.others.iter().all(|other| *other == self.dialogue)
    }

    /// Creates the dialogue. Its id is made from the path of the file and the line number.
    fn dialogue(&self, path_info: &PathInfo, line: u64) -> Result<Dialogue, RecordError> {
        let mut dialogue = path_info.dialogue(support::generated_id(&path_info.prefix(), line)?);
        for ((digit, role), text) in self.roles.iter().zip(self.dialogue.split('#')) {
            dialogue.push(*digit, role.clone(), text.trim());
        }
        Ok(dialogue)
    }
}

/// Checks the first five lines of a file. Returns `Some(true)` for a clustering file, `Some(false)` for a `train.tsv`,
/// and `None` for other files.
fn detect(probe: &Probe<'_>) -> Option<bool> {
    let lines: Vec<Line<'_>> =
        probe.lines().take(5).map(|line| Line::parse(line).ok()).collect::<Option<_>>()?;
    let labeled = lines.iter().all(|line| line.label.bytes().all(|b| b.is_ascii_digit()));
    let has_dialogue = lines.iter().any(|line| line.roles.len() > 1);
    if !labeled || !has_dialogue {
        return None;
    }
    let several = lines.iter().all(|line| !line.others.is_empty());
    Some(probe.file_name().starts_with("clustering") || several && lines.iter().all(Line::is_uniform))
}

pub(super) static TRAIN: Format = Format {
    name: "dial2vec-train",
    about: "dial2vec's train.tsv: roles, the dialogue and modified copies of it (utterance#utterance|…), and a 0 without meaning",
    sniff: sniff_train,
    read: read_train,
};

fn sniff_train(probe: &Probe<'_>) -> Fit {
    if detect(probe) == Some(false) { Fit::Yes } else { Fit::No }
}

fn read_train(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let path_info = PathInfo::of(&input);
    let mut last = None;
    Ok(support::from_lines(input, options, move |line| {
        let parsed = Line::parse(line.text)?;
        let digits: Vec<&str> = parsed.roles.iter().map(|(digit, _)| *digit).collect();
        let key = blake3::hash(format!("{digits:?}\t{}", parsed.dialogue).as_bytes());
        if last.replace(key) == Some(key) {
            return Ok(None);
        }
        parsed.dialogue(&path_info, line.number).map(Some)
    }))
}

pub(super) static CLUSTERING: Format = Format {
    name: "dial2vec-clustering",
    about: "dial2vec's clustering_dev.tsv and clustering_test.tsv: roles, the dialogue (utterance#utterance), topic number",
    sniff: sniff_clustering,
    read: read_clustering,
};

fn sniff_clustering(probe: &Probe<'_>) -> Fit {
    if detect(probe) == Some(true) { Fit::Yes } else { Fit::No }
}

fn read_clustering(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let path_info = PathInfo::of(&input);
    Ok(support::from_lines(input, options, move |line| {
        let parsed = Line::parse(line.text)?;
        let mut dialogue = parsed.dialogue(&path_info, line.number)?;
        if parsed.label.is_empty() {
            return Err(RecordError::new("the line has no topic number").with_id(Some(dialogue.id.as_str())));
        }
        dialogue.domains.push(parsed.label.to_owned());
        Ok(Some(dialogue))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    fn turns(dialogue: &Dialogue) -> Vec<(&str, Role, &str)> {
        let turn = |t: &'_ Turn| t.role.clone().unwrap();
        dialogue.turns.iter().map(|t| (t.speaker.as_str(), turn(t), t.text.as_str())).collect()
    }

    const SESSIONS: &str = "\
7\t0\tI need \"a room\ttravel
7\t1\twhere # to?\ttravel|hotel
8\t1\thello\tbank
8\t2\thi\tbank
9\t0\thello
";

    #[test]
    fn the_lines_of_a_session_are_one_dialogue() {
        let got = read_text(&super::SESSION, "preprocess_session_sgd_test.txt", SESSIONS);
        assert_eq!(got.len(), 2);
        assert_eq!((got[0].id.as_str(), got[0].source.as_str()), ("sgd_test-7", "sgd"));
        assert_eq!(got[0].domains, ["travel", "hotel"]);
        assert_eq!(got[0].metadata["split"], "test");
        assert_eq!(turns(&got[0]), [("0", Role::User, "I need \"a room"), ("1", Role::Agent, "where # to?")]);
        assert_eq!(turns(&got[1])[1].1, Role::Participant);
        assert_eq!(
            problems(&super::SESSION, "preprocess_session_sgd_test.txt", SESSIONS),
            [
                "preprocess_session_sgd_test.txt:5 (sgd_test-9): the line has 3 columns, not 4 (session, role, text, topics)"
            ]
        );
    }

    const TRAIN: &str = "\
010\tI need a room#where to?#Paris|yes#where to?#no|well#where to?#what\t0
010\tI need a room#where to?#Paris|so#where to?#what|no#where to?#yes\t0
10\thello#hi|hello#bye\t0
1x\thello#hi|hello#bye\t0
101\thello#hi|hello#bye\t0
10\thello#hi
";

    #[test]
    fn a_training_dialogue_is_read_once() {
        let got = read_text(&super::TRAIN, "/c/mwoz/train.tsv.1", TRAIN);
        assert_eq!(
            got.iter().map(|d| d.id.as_str()).collect::<Vec<_>>(),
            ["mwoz-train-000001", "mwoz-train-000003"]
        );
        assert_eq!(
            turns(&got[0]),
            [("0", Role::User, "I need a room"), ("1", Role::Agent, "where to?"), ("0", Role::User, "Paris")]
        );
        assert!(got[0].domains.is_empty());
        assert_eq!(
            problems(&super::TRAIN, "/c/mwoz/train.tsv.1", TRAIN),
            [
                "/c/mwoz/train.tsv.1:4: the role `x` is not a digit",
                "/c/mwoz/train.tsv.1:5: the line has 3 roles for 2 utterances",
                "/c/mwoz/train.tsv.1:6: the line has 2 columns, not 3 (roles, samples, label)",
            ]
        );
    }

    const CLUSTERING: &str = "10\thello#hi|hello#hi\t3\n10\thello#hi|hello#hi\t1\n10\thello#hi\t\n";

    #[test]
    fn a_clustering_dialogue_has_its_topic_number_as_domain() {
        let got = read_text(&super::CLUSTERING, "/c/mwoz/clustering_dev.tsv", CLUSTERING);
        assert_eq!(got.len(), 2);
        assert_eq!(
            (got[0].id.as_str(), &got[0].domains[..]),
            ("mwoz-clustering_dev-000001", &["3".to_owned()][..])
        );
        assert_eq!(
            problems(&super::CLUSTERING, "/c/mwoz/clustering_dev.tsv", CLUSTERING),
            ["/c/mwoz/clustering_dev.tsv:3 (mwoz-clustering_dev-000003): the line has no topic number"]
        );
    }

    #[test]
    fn the_three_layouts_are_detected() {
        let first = |text: &str| text.lines().take(2).collect::<Vec<_>>().join("\n");
        assert_eq!(sniffed("preprocess_session_x.txt", &first(SESSIONS)), Some("dial2vec-session"));
        assert_eq!(sniffed("sessions.txt", &first(SESSIONS)), Some("dial2vec-session"));
        assert_eq!(sniffed("train.tsv", &first(TRAIN)), Some("dial2vec-train"));
        assert_eq!(sniffed("x.tsv", &first(CLUSTERING)), Some("dial2vec-clustering"));
        assert_eq!(sniffed("clustering_test.tsv", "10\thello#hi\t1\n"), Some("dial2vec-clustering"));
        // This line has a score and two sentences.
        assert_ne!(sniffed("sts.txt", "4\ta b\tc d\n"), Some("dial2vec-train"));
    }
}
