//! Tests of the book in docs/: its pages, its links, its commands, and the reference pages that are generated from the
//! code.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[cfg(feature = "serve")]
mod guides;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
}

/// Returns the targets of all links of a page.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

#[cfg(feature = "serve")]
#[test]
fn the_reference_pages_are_current() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_turnwise")).arg("reference").arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut generated = Vec::new();
    pages(folder.path(), &mut generated);
    assert_eq!(generated.len(), 4);
    for page in generated {
        let name = page.file_name().unwrap();
        let committed = fs::read_to_string(docs().join("reference").join(name)).unwrap_or_default();
        // The Parquet format and Milvus options depend on features; the committed pages are generated with the default
        // features.
        if cfg!(all(feature = "parquet", not(feature = "milvus"))) {
            assert!(
                fs::read_to_string(&page).unwrap() == committed,
                "docs/reference/{} is out of date: run `cargo run -- reference docs/reference`",
                name.display()
            );
        }
    }
}

#[test]
fn every_page_is_in_the_summary_and_every_link_leads_somewhere() {
    let mut all = Vec::new();
    pages(&docs(), &mut all);
    let summary = fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    let listed = links(&summary);
    assert!(listed.len() > 15, "{listed:?}");
    for page in &all {
        let name = page.strip_prefix(docs()).unwrap().to_str().unwrap().to_owned();
        assert!(name == "SUMMARY.md" || listed.contains(&name.as_str()), "{name} is not in SUMMARY.md");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/README.md"] {
        all.push(root.join(name));
    }
    for page in all {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let target = page.parent().unwrap().join(link.split('#').next().unwrap());
            assert!(target.exists(), "{}: {link} leads nowhere", page.display());
        }
    }
}
