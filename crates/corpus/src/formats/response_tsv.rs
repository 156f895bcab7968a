//! Response selection data sets: E-commerce (ECD), Douban and Ubuntu. Each line is a sample,
//! `label ⇥ turn ⇥ … ⇥ turn ⇥ response`.
//!
//! A line becomes a dialogue that consists of the context and the response, with the label as metadata. The label is 1
//! for the true response, and 0 for a random response. A line with the true response is followed by lines with the same
//! context and random responses: one line in training data, and nine lines in test data.

use crate::formats::prelude::*;
use crate::formats::ubuntu_dialogue::speakers;

pub(super) static FORMAT: Format = Format {
    name: "response-tsv",
    about: "response selection (ECD, Douban, Ubuntu): label, context turns and a response, separated by tabs",
    sniff,
    read,
};

fn sniff(probe: &Probe<'_>) -> Fit {
    let lines: Vec<&str> = probe.lines().take(40).collect();
    let split: Option<Vec<(&str, &str)>> = lines.iter().map(|line| sample(line)).collect();
    let Some(samples) = split.filter(|samples| !samples.is_empty()) else {
        return Fit::No;
    };
    let labels = |wanted| lines.iter().any(|line| line.starts_with(wanted));
    let shared = samples.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b));
    // Only this format has consecutive lines with the same context and different labels.
    if shared && labels('0') && labels('1') {
        return Fit::Yes;
    }
    let widths: Vec<usize> = samples.iter().map(|(context, _)| context.split('\t').count()).collect();
    if widths.windows(2).any(|pair| matches!(pair, [a, b] if a != b)) { Fit::Maybe } else { Fit::No }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let path_info = PathInfo::of(&input);
    let prefix = path_info.prefix();
    let mut samples = 0;
    Ok(support::from_lines(input, options, move |line| {
        samples += 1;
        let mut dialogue = path_info.dialogue(support::generated_id(&prefix, samples)?);
        add_sample(&mut dialogue, line.text)
            .map_err(|reason| RecordError::new(reason).with_id(Some(dialogue.id.as_str())))?;
        Ok(Some(dialogue))
    }))
}

/// Adds the label and the turns of a line to a dialogue.
fn add_sample(dialogue: &mut Dialogue, line: &str) -> Result<(), String> {
    let label = match line.split('\t').next().unwrap_or_default().trim() {
        "0" => 0,
        "1" => 1,
        other => {
            let label: String = other.chars().take(40).collect();
            return Err(format!("the line must start with the label 0 or 1, not with `{label}`"));
        }
    };
    let Some((context, response)) = sample(line) else {
        let reason =
            "the line has no context; the columns must be label, turns and response, separated by tabs";
        return Err(reason.into());
    };
    if response.trim().is_empty() {
        return Err("the response, the last column, is empty".into());
    }
    dialogue.note("label", label);
    for (turn, (speaker, role)) in context.split('\t').chain([response]).zip(speakers()) {
        if !turn.trim().is_empty() {
            dialogue.push(speaker, role, turn.trim());
        }
    }
    Ok(())
}

/// Returns the context and the response of a line. Returns `None` if the line does not start with a label, or has fewer
/// than three columns.
fn sample(line: &str) -> Option<(&str, &str)> {
    let (label, rest) = line.split_once('\t')?;
    matches!(label.trim(), "0" | "1").then_some(())?;
    rest.rsplit_once('\t')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    const TEXT: &str = "1\tis it in stock\tyes it is\twhen will it come\ttomorrow\n\
        0\tis it in stock\tyes it is\twhen will it come\tyou are welcome\n\
        1\thello\thi\n\n\
        2\thello\thi\n\
        1\thello\n\
        0\thello\t \n";

    #[test]
    fn a_line_is_a_context_with_response_and_label() {
        let got = read_text(&FORMAT, "/c/ecd/test.txt", TEXT);
        assert_eq!(got.len(), 3);
        assert_eq!(got[1].id.as_str(), "ecd-test-000002");
        assert_eq!((&got[1].metadata["label"], got[1].source.as_str()), (&0.into(), "ecd"));
        assert_eq!(got[1].metadata["split"], "test");
        let turns: Vec<_> = got[1].turns.iter().map(|t| (t.speaker.as_str(), t.text.as_str())).collect();
        assert_eq!(
            turns,
            [
                ("user", "is it in stock"),
                ("agent", "yes it is"),
                ("user", "when will it come"),
                ("agent", "you are welcome")
            ]
        );
    }

    #[test]
    fn bad_lines_are_reported() {
        assert_eq!(
            problems(&FORMAT, "/c/ecd/test.txt", TEXT),
            [
                "/c/ecd/test.txt:5 (ecd-test-000004): the line must start with the label 0 or 1, not with `2`",
                "/c/ecd/test.txt:6 (ecd-test-000005): the line has no context; the columns must be label, turns and response, separated by tabs",
                "/c/ecd/test.txt:7 (ecd-test-000006): the response, the last column, is empty",
            ]
        );
    }

    #[test]
    fn it_is_detected_by_shared_contexts() {
        assert_eq!(sniffed("train.txt", "1\ta\tb\tc\n0\ta\tb\td\n"), Some("response-tsv"));
        assert_eq!(sniffed("train.txt", "1\ta\tb\tc\n1\tx\ty\n"), Some("response-tsv"));
        // Lines with a score and two sentences are a different format.
        assert_ne!(sniffed("sts.txt", "1\ta\tb\n0\tc\td\n"), Some("response-tsv"));
        assert_ne!(
            sniffed("x.txt", "0\thello\t\t1,2\t3\n1\thi\t\t0\t2\n2\thm\t\t1\t0\n"),
            Some("response-tsv")
        );
    }
}
