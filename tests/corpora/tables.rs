//! Tests of the readers of CSV, TSV and ConvLab's JSON on real data sets.

use std::collections::BTreeSet;

use turnwise_corpus::{Role, formats::ReadOptions, walk};

use crate::data::{self, Read};

/// Reads all files of an archive. Checks that they have one format and that ids are unique.
fn read_all(name: &str, format: &'static str, files: usize) -> Option<Read> {
    let folder = data::folder(name)?;
    let read = data::read(&folder, None, &ReadOptions::default());
    assert_eq!(read.formats.iter().map(|(f, n)| (*f, *n)).collect::<Vec<_>>(), [(format, files)]);
    let ids: BTreeSet<_> = read.dialogues.iter().map(|d| d.id.as_str()).collect();
    assert_eq!(ids.len(), read.dialogues.len());
    Some(read)
}

fn read_clean(name: &str, format: &'static str, files: usize) -> Option<Read> {
    let read = read_all(name, format, files)?;
    assert_eq!(read.problems, Vec::<String>::new());
    Some(read)
}

#[test]
fn self_dialogue() {
    let Some(read) = read_all("self_dialogue_dev", "self-dialogue", 63) else {
        return;
    };
    // 90% of the corpus. The whole corpus has 24,249 assignments; 24,165 remain without blocked workers and rows that
    // have a reason in `Reject`. There are 23 folders; the source of dial2vec's 28 labels is not published. One of
    // the 21,886 rows has no answer.
    assert_eq!(read.dialogues.len(), 21_885);
    let [problem] = read.problems.as_slice() else { panic!("{:?}", read.problems) };
    assert!(problem.ends_with(
        "Batch_2814928_batch_results.csv:159 (33TIN5LC054I1O6RV28RYMS4SCGY9G): the dialogue has no turns"
    ));
    assert_eq!(read.turns(), 337_577);
    let domains = read.domains();
    assert_eq!((domains.len(), domains["music"], domains["icehockey"]), (23, 4412, 157));
    let marked = |key: &str| read.dialogues.iter().filter(|d| d.metadata.contains_key(key)).count();
    assert_eq!((marked("blocked_worker"), marked("reject"), marked("time")), (59, 19, 0));
    assert!(read.dialogues.iter().all(|d| d.time.is_some() && d.speakers().len() <= 2));
    assert!(read.dialogues.iter().flat_map(|d| &d.turns).all(|t| t.text != "{}"));
}

#[test]
fn the_list_of_blocked_workers_is_a_companion_file() {
    let Some(folder) = data::folder("self_dialogue_dev") else {
        return;
    };
    let plan = walk::plan(&[folder], None).unwrap();
    let names: Vec<_> = plan.companions.iter().filter_map(|p| p.file_name()?.to_str()).collect();
    assert_eq!(names, ["blocked_workers.txt"]);
}

#[test]
fn mdc() {
    let Some(read) = read_clean("mdc_dev", "mdc", 2) else {
        return;
    };
    // 80% of two of the three domains, which have 5,984 sessions and 44,967 rows. The paper has 10,087 dialogues and
    // 74,685 turns in three domains.
    assert_eq!(read.dialogues.len(), 4_775);
    assert_eq!(read.turns(), 35_756);
    let domains = read.domains();
    assert_eq!((domains["movie"], domains["taxi"]), (2_296, 2_479));
    let turns = || read.dialogues.iter().flat_map(|d| &d.turns);
    assert!(turns().all(|t| t.time.is_some() && !t.acts.is_empty()));
    assert_eq!(turns().filter(|t| t.role == Some(Role::User)).count(), 18_257);
    // In one session, two messages have the number 4. In all other sessions, the numbers are unchanged.
    assert_eq!(turns().filter(|t| t.metadata.contains_key("message_id")).count(), 5);
}

#[test]
fn crosswoz() {
    let Some(read) = read_clean("crosswoz_devtest", "crosswoz", 2) else {
        return;
    };
    // The paper's validation and test sets: 500 dialogues each, 8,458 and 8,476 turns.
    let split =
        |name: &str| read.dialogues.iter().filter(|d| d.metadata["split"] == name).collect::<Vec<_>>();
    for (name, turns) in [("val", 8_458), ("test", 8_476)] {
        let part = split(name);
        assert_eq!(part.len(), 500);
        assert_eq!(part.iter().map(|d| d.turns.len()).sum::<usize>(), turns);
    }
    let domains = read.domains();
    assert_eq!((domains.len(), domains["餐馆"], domains["地铁"]), (5, 856, 144));
}

#[test]
fn kvret() {
    let Some(folder) = data::folder("kvret") else {
        return;
    };
    let Some(read) = read_clean("kvret", "convlab3", 1) else {
        return;
    };
    assert_eq!(read.dialogues.len(), 3_030);
    assert_eq!(read.turns(), 15_913);
    for (split, dialogues, turns) in
        [("train", 2_424, 12_720), ("validation", 302, 1_566), ("test", 304, 1_627)]
    {
        let part: Vec<_> = read.dialogues.iter().filter(|d| d.metadata["split"] == split).collect();
        assert_eq!((part.len(), part.iter().map(|d| d.turns.len()).sum::<usize>()), (dialogues, turns));
    }
    let domains = read.domains();
    assert_eq!((domains["schedule"], domains["navigate"], domains["weather"]), (1_034, 1_000, 996));
    let plan = walk::plan(&[folder], None).unwrap();
    let names: Vec<_> = plan.companions.iter().filter_map(|p| p.file_name()?.to_str()).collect();
    assert_eq!(names, ["db.json", "ontology.json"]);
}

#[test]
fn a_csv_of_single_utterances() {
    let Some(read) = read_clean("intents_banking77", "csv", 2) else {
        return;
    };
    // BANKING77: 10,003 for training, 3,080 for testing, 77 intents; the column is called `category`.
    assert_eq!((read.dialogues.len(), read.turns()), (13_083, 13_083));
    let categories: BTreeSet<_> =
        read.dialogues.iter().map(|d| d.turns[0].metadata["category"].to_string()).collect();
    assert_eq!(categories.len(), 77);
    let Some(folder) = data::folder("intents_banking77") else {
        return;
    };
    let columns = Some("text=text,intent=category".parse().unwrap());
    let read = data::read(&folder, Some("csv"), &ReadOptions { columns, ..ReadOptions::default() });
    assert!(read.dialogues.iter().all(|d| d.turns[0].intent.is_some() && d.turns[0].metadata.is_empty()));
}
