//! Readers and writers of TREC judgments (qrels) and runs.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Write},
    path::Path,
};

use crate::{data::each_line, rank::better_first};
use turnwise_core::error::{Error, Result};

/// Relevance judgments (qrels).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Qrels {
    /// For each query id, the grades of the judged documents by document id.
    pub queries: BTreeMap<String, HashMap<String, i32>>,
}

/// A TREC run: the ranking of a system for each query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// Tag of the run, from the last column of its file.
    pub tag: String,
    /// For each query id, the document ids with their scores, best first.
    pub queries: BTreeMap<String, Vec<(String, f32)>>,
}

/// Reads judgments in TREC's format (`query 0 document grade`) or in BEIR's format (`query document grade`, with a
/// header line). Returns an error if a line is malformed, if a document has two grades for a query, or if there are no
/// judgments.
pub fn read_qrels(path: &Path) -> Result<Qrels> {
    let mut qrels = Qrels::default();
    each_line(path, |number, line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (query, document, grade) = match fields[..] {
            [query, _, document, grade] => (query, document, grade),
            ["query-id", "corpus-id", "score"] if number == 1 => return Ok(()),
            [query, document, grade] => (query, document, grade),
            _ => {
                return Err(format!(
                    "a line of judgments has 4 columns (query 0 document grade), this one has {}",
                    fields.len()
                ));
            }
        };
        let grade = grade.parse::<i32>().map_err(|_| format!("the grade `{grade}` is not an integer"))?;
        let of_query = qrels.queries.entry(query.to_owned()).or_default();
        match of_query.insert(document.to_owned(), grade) {
            Some(before) if before != grade => {
                Err(format!("document {document} of query {query} already has another grade, {before}"))
            }
            _ => Ok(()),
        }
    })?;
    if qrels.queries.is_empty() {
        return Err(Error::data(format!("{} contains no judgments", path.display())));
    }
    Ok(qrels)
}

/// Reads a TREC run (`query Q0 document rank score tag`). Sorts the documents by score and ignores the rank, as
/// trec_eval does.
pub fn read_run(path: &Path) -> Result<Run> {
    let mut run = Run::default();
    let mut seen: HashMap<String, HashMap<String, u64>> = HashMap::new();
    each_line(path, |number, line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [query, _, document, _, score, tag] = fields[..] else {
            return Err(format!(
                "a line of a run has 6 columns (query Q0 document rank score tag), this one has {}",
                fields.len()
            ));
        };
        let score = score.parse::<f32>().ok().filter(|score| score.is_finite());
        let score = score.ok_or_else(|| format!("the score `{}` is not a finite number", fields[4]))?;
        if let Some(before) = seen.entry(query.to_owned()).or_default().insert(document.to_owned(), number) {
            return Err(format!("document {document} of query {query} is already on line {before}"));
        }
        if run.tag.is_empty() {
            run.tag = tag.to_owned();
        }
        run.queries.entry(query.to_owned()).or_default().push((document.to_owned(), score));
        Ok(())
    })?;
    if run.queries.is_empty() {
        return Err(Error::data(format!("{} contains no rankings", path.display())));
    }
    for documents in run.queries.values_mut() {
        documents.sort_unstable_by(|a, b| better_first((a.1, &a.0), (b.1, &b.0)));
    }
    Ok(run)
}

/// Writes the judgments of one query in TREC's format. `documents` are pairs of a document id and a grade.
pub fn write_qrels<'a>(
    out: &mut dyn Write,
    query: &str,
    documents: impl IntoIterator<Item = (&'a str, i32)>,
) -> io::Result<()> {
    for (document, grade) in documents {
        writeln!(out, "{} 0 {} {grade}", word(query), word(document))?;
    }
    Ok(())
}

/// Writes the ranking of one query in TREC's format. `documents` are pairs of a document id and a score, which must be
/// sorted, best first.
pub fn write_run<'a>(
    out: &mut dyn Write,
    query: &str,
    documents: impl IntoIterator<Item = (&'a str, f32)>,
    tag: &str,
) -> io::Result<()> {
    for (rank, (document, score)) in documents.into_iter().enumerate() {
        writeln!(out, "{} Q0 {} {} {score} {}", word(query), word(document), rank + 1, word(tag))?;
    }
    Ok(())
}

/// Replaces whitespace with `_`, because spaces separate the columns.
fn word(text: &str) -> std::borrow::Cow<'_, str> {
    match text.contains(char::is_whitespace) {
        true => text.replace(char::is_whitespace, "_").into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    fn error_of<T: std::fmt::Debug>(read: impl Fn(&Path) -> Result<T>, text: &str) -> String {
        let (_folder, path) = file(text);
        let message = read(&path).unwrap_err().to_string();
        message.replace(&path.display().to_string(), "file")
    }

    #[test]
    fn runs_are_sorted_by_score_and_ranks_are_ignored() {
        let (_folder, path) = file("q Q0 a 1 0.5 me\nq Q0 b 2 0.5 me\r\n\nq Q0 c 3 9e-1 me\n");
        let run = read_run(&path).unwrap();
        assert_eq!(run.tag, "me");
        let ids: Vec<&str> = run.queries["q"].iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["c", "b", "a"]);
    }

    #[test]
    fn judgments_are_read_in_the_formats_of_trec_and_beir() {
        for text in ["q 0 a 1\nq 0 b 0\n", "query-id\tcorpus-id\tscore\nq\ta\t1\nq\tb\t0\n"] {
            let (_folder, path) = file(text);
            let qrels = read_qrels(&path).unwrap();
            assert_eq!((qrels.queries["q"]["a"], qrels.queries["q"]["b"]), (1, 0));
        }
    }

    #[test]
    fn errors_name_the_line() {
        assert_eq!(
            error_of(read_run, "q Q0 a 1 0.5\n"),
            "file:1: a line of a run has 6 columns (query Q0 document rank score tag), this one has 5"
        );
        assert_eq!(
            error_of(read_run, "q Q0 a 1 0.5 t\nq Q0 b 2 NaN t\n"),
            "file:2: the score `NaN` is not a finite number"
        );
        assert_eq!(
            error_of(read_run, "q Q0 a 1 0.5 t\nq Q0 a 2 0.4 t\n"),
            "file:2: document a of query q is already on line 1"
        );
        assert_eq!(error_of(read_run, "\n"), "file contains no rankings");
        assert_eq!(error_of(read_qrels, "q 0 a yes\n"), "file:1: the grade `yes` is not an integer");
        assert_eq!(
            error_of(read_qrels, "q 0 a 1\nq 0 a 0\n"),
            "file:2: document a of query q already has another grade, 1"
        );
        assert_eq!(
            error_of(read_qrels, "q a\n"),
            "file:1: a line of judgments has 4 columns (query 0 document grade), this one has 2"
        );
    }

    #[test]
    fn ids_with_spaces_do_not_change_the_number_of_columns() {
        let mut out = Vec::new();
        write_run(&mut out, "q 1", [("a", 0.25), ("b\tc", 1e-9)], "my tag").unwrap();
        write_qrels(&mut out, "q 1", [("a", 1)]).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "q_1 Q0 a 1 0.25 my_tag\nq_1 Q0 b_c 2 0.000000001 my_tag\nq_1 0 a 1\n"
        );
    }
}
