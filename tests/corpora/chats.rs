//! Tests of the readers of chats, exports and transcripts. The files in `fixtures/` are hand-written, because real
//! chats cannot be shared.

use std::{collections::BTreeSet, fs, path::PathBuf};

use turnwise_corpus::{Dialogue, formats::ReadOptions};

use crate::data;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpora/fixtures").join(name)
}

/// Reads a fixture, and checks its format and that ids are unique. Returns the dialogues and the problems.
fn read(name: &str, format: &str) -> (Vec<Dialogue>, Vec<String>) {
    let read = data::read(&fixture(name), None, &ReadOptions::default());
    assert_eq!(read.formats.keys().copied().collect::<Vec<_>>(), [format]);
    let ids: BTreeSet<_> = read.dialogues.iter().map(|d| d.id.as_str()).collect();
    assert_eq!(ids.len(), read.dialogues.len(), "ids are unique");
    (read.dialogues, read.problems)
}

fn ids(dialogues: &[Dialogue]) -> Vec<String> {
    dialogues.iter().map(|d| format!("{} {}", d.id, d.turns.len())).collect()
}

fn turns(dialogue: &Dialogue) -> Vec<String> {
    let role = |t: &turnwise_corpus::Turn| t.role.as_ref().map(ToString::to_string).unwrap_or_default();
    dialogue.turns.iter().map(|t| format!("{}/{}: {}", t.speaker, role(t), t.text)).collect()
}

#[test]
fn messages() {
    let (lines, problems) = read("messages.jsonl", "messages");
    assert_eq!(ids(&lines), ["chat-1 7", "chat-2 3", "messages-000004 2"]);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(turns(&lines[0])[4], "assistant/agent: find_order({\"order\":\"G-2207\"})");
    assert!(turns(&lines[0])[5].starts_with("find_order/tool: "));
    assert_eq!(lines[0].metadata["shop"], "north");
    assert_eq!(lines[1].language.as_deref(), Some("fr"));
    assert_eq!(turns(&lines[2])[1], "assistant/agent: I can't talk about that.");

    let (array, problems) = read("messages.json", "messages");
    assert_eq!(ids(&array), ["41 4", "42 2"]);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(turns(&array[0])[2], "list_bills/tool: 2 bills: 31.20 (paper), 31.20 (e-mail)");
    assert_eq!(array[0].turns[0].time.unwrap().to_string(), "2026-04-01T06:02:00Z");
}

#[test]
fn sharegpt() {
    let (array, problems) = read("sharegpt.json", "sharegpt");
    assert_eq!(ids(&array), ["Qx7_1 4", "Qx7_2 3"]);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].ends_with("sharegpt.json:2 (Qx7_0): the dialogue has no turns"), "{problems:?}");
    assert_eq!(turns(&array[1])[0], "system/system: Speak like a pirate.");

    let (lines, problems) = read("sharegpt.jsonl", "sharegpt");
    assert_eq!(ids(&lines), ["p-1 4", "9f2c 2"]);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(lines[0].language.as_deref(), Some("zh"));
    assert_eq!(turns(&lines[0])[2], "human/user: 冰箱里拿出来的呢");
}

#[test]
fn transcripts() {
    let (calls, problems) = read("transcript.txt", "transcript");
    assert_eq!(ids(&calls), ["transcript-000001 4", "transcript-000002 4", "transcript-000003 3"]);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(calls[0].title.as_deref(), Some("The van in the wrong street"));
    assert_eq!(turns(&calls[0])[2], "Customer/user: yes. ROAD\nand it says so on the door");
    assert_eq!(calls[1].title.as_deref(), Some("A call about a meter"));
    assert_eq!(calls[1].time.unwrap().to_string(), "2026-03-02T09:14:00Z");
    assert!(turns(&calls[1])[1].starts_with("Mrs. de Boer/participant: "));
    assert_eq!(turns(&calls[2])[1], "客服/agent: 在的，请问是哪一天的？");
}

#[test]
fn whatsapp() {
    let (android, problems) = read("WhatsApp Chat with Boiler.txt", "whatsapp");
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(
        ids(&android),
        [
            "WhatsApp Chat with Boiler-2026-03-02T09:14 5",
            "WhatsApp Chat with Boiler-2026-03-02T23:50 2",
            "WhatsApp Chat with Boiler-2026-03-03T08:30 3",
            "WhatsApp Chat with Boiler-2026-03-21T19:00 3",
        ]
    );
    assert_eq!(turns(&android[0])[2], "Opa Henk/participant: he came\nhe looked at it\n\nhe went away");
    assert_eq!(turns(&android[0])[4], "Lena/participant: did it look like this: red light, left side?");
    assert_eq!(android[2].turns[2].metadata["deleted"], true);
    assert_eq!(
        turns(&android[3])[1..],
        [
            "/system: Lena changed the subject from \"Boiler\" to \"Boiler: part two\"",
            "Lena/participant: IMG-20260321-WA0001.jpg (file attached)\nthe letter from the company",
        ]
    );

    let (iphone, problems) = read("WhatsApp Chat - Harbour crew", "whatsapp");
    assert!(problems.is_empty(), "{problems:?}");
    // Notices without messages, as on 28 February, are not a dialogue.
    assert_eq!(
        ids(&iphone),
        [
            "WhatsApp Chat - Harbour crew-2026-03-02T05:10:44 3",
            "WhatsApp Chat - Harbour crew-2026-03-02T13:30:00 3",
            "WhatsApp Chat - Harbour crew-2026-03-02T21:45:00 1",
        ]
    );
    assert_eq!(iphone[0].title.as_deref(), Some("Harbour crew"));
    assert_eq!(turns(&iphone[0])[1], "Amadou/participant: @Sven sand is in the blue box");
    assert_eq!(
        turns(&iphone[1])[0],
        "+47 555 0142/participant: who took the long ladder\nI need it before two"
    );
    assert_eq!(iphone[1].turns[1].metadata["attachment"], "00000007-PHOTO-2026-03-02-13-31-09.jpg");
    assert_eq!(iphone[2].turns[0].metadata["edited"], true);
    assert_eq!(turns(&iphone[2]), ["Amadou/participant: home"]);
}

#[test]
fn slack() {
    let (all, problems) = read("slack", "slack");
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(
        ids(&all),
        [
            "D07FIXT01-2026-03-05 2",
            "C01GEN-2026-03-02 2",
            "C01GEN-1772443000.000300 4",
            "C01GEN-1700000000.000100 1",
            "C01GEN-2026-03-04 2",
            "C02OPS-2026-03-02 3",
        ]
    );
    assert_eq!(all[0].title.as_deref(), Some("ana m, Bo Lindqvist"));
    assert_eq!(turns(&all[0])[1], "ana m/participant: in #general they said soup :bowl_with_spoon:");
    assert_eq!(
        turns(&all[1]),
        [
            "ana m/participant: Good morning. @Bo Lindqvist, is the print shop open?",
            "Bo Lindqvist/participant: It opens at ten & closes at six: hours (https://example.com/print)",
        ]
    );
    assert_eq!(all[1].metadata["left_out"], 1);
    assert_eq!(all[2].time.unwrap().to_string(), "2026-03-02T09:16:40.0003Z");
    assert_eq!(turns(&all[2])[3], "Bo Lindqvist/participant: Found them under my coat.");
    assert_eq!(all[3].metadata["without_root"], true);
    assert_eq!(
        turns(&all[4]),
        ["/system: @ana m set the channel topic: posters", "nadia/participant: hello, I'm new"]
    );
    assert_eq!(
        turns(&all[5]),
        [
            "deploys/agent: Release 41\nrolled back by @ana m",
            "ana m/participant: stack-trace.txt",
            "/system: This message was deleted.",
        ]
    );

    // Reading a single channel, or the file of a single day, results in the same names and ids.
    let (channel, problems) = read("slack/general", "slack");
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(channel[..], all[1..5]);
    let (day, _) = read("slack/ops-alerts/2026-03-02.json", "slack");
    assert_eq!(day[..], all[5..]);
}

#[test]
fn slack_ids_are_stable_when_later_days_are_added() {
    let dir = tempfile::tempdir().unwrap();
    let general = dir.path().join("general");
    fs::create_dir(&general).unwrap();
    for list in ["users.json", "channels.json"] {
        fs::copy(fixture("slack").join(list), dir.path().join(list)).unwrap();
    }
    let add = |day: &str| fs::copy(fixture("slack/general").join(day), general.join(day)).unwrap();
    let read = || data::read(dir.path(), None, &ReadOptions::default()).dialogues;
    add("2026-03-02.json");
    assert_eq!(ids(&read()), ["C01GEN-2026-03-02 2", "C01GEN-1772443000.000300 2"]);
    add("2026-03-04.json");
    assert_eq!(ids(&read())[..2], ["C01GEN-2026-03-02 2", "C01GEN-1772443000.000300 4"]);
}

#[test]
fn readable_days_of_a_damaged_slack_export_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let channel = dir.path().join("general");
    fs::create_dir(&channel).unwrap();
    fs::write(dir.path().join("users.json"), r#"[{"id":"U01ANA","name":"ana"},{"name":"x"},{"id"#).unwrap();
    fs::write(channel.join("2026-03-01.json"), "not json").unwrap();
    fs::write(
        channel.join("2026-03-02.json"),
        r#"[{"type":"message","ts":"1772442840.0","user":"U01ANA","text":"hi"},{"#,
    )
    .unwrap();
    fs::write(channel.join("2026-03-03.json"), "[]").unwrap();
    let read = data::read(dir.path(), None, &ReadOptions::default());
    assert_eq!(ids(&read.dialogues), ["general-2026-03-02 1"]);
    assert_eq!(turns(&read.dialogues[0]), ["ana/participant: hi"]);
    let problems: Vec<_> =
        read.problems.iter().map(|p| p.replace(&dir.path().display().to_string(), "")).collect();
    assert_eq!(
        problems,
        [
            "/users.json:1: missing field `id` at column 12",
            "/users.json:1: the file ends in the middle of a JSON value",
            "/general/2026-03-01.json:1: expected `[` or `{`, found `n`",
            "/general/2026-03-02.json:1: the file ends in the middle of a JSON value",
        ]
    );
}

#[test]
fn locomo_has_the_sessions_of_five_conversations() {
    let Some(folder) = data::folder("locomo_dev") else { return };
    let read = data::read(&folder, Some("locomo"), &ReadOptions::default());
    assert_eq!((read.problems.len(), read.formats["locomo"]), (0, 5));
    assert_eq!((read.dialogues.len(), read.turns()), (128, 2_760));
    assert!(read.dialogues.iter().all(|d| d.time.is_some() && d.speakers().len() == 2));
    let turn =
        |id: &str| read.dialogues.iter().flat_map(|d| &d.turns).filter(|t| t.text.contains(id)).count();
    assert!(turn("[shares ") > 100);
}
