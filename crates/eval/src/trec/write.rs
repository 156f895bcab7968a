//! Writers of TREC judgments (qrels) and runs.

use std::io::{self, Write};

/// Writes the judgments of one query.
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

/// Writes the ranking of one query. `documents` must be sorted, best first.
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
