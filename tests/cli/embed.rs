//! Tests of `turnwise embed`.

use std::fs;

use crate::support::{SAMPLES, Turnwise, gz, lines, record};

#[test]
fn texts_records_and_corpora_become_vectors_with_ids() {
    let t = Turnwise::new();
    let model = t.model();
    t.write("in.txt", "my card is gone\n\nwhere is my parcel\n");
    let summary = t.json(&format!("embed --model {model} in.txt -o v.npy"));
    assert_eq!((&summary["vectors"], &summary["read_as"]["lines"]), (&3.into(), &1.into()), "{summary}");
    let bytes = fs::read(t.path("v.npy")).unwrap();
    let dim = summary["dim"].as_u64().unwrap() as usize;
    assert_eq!(bytes.len(), 128 + 3 * dim * 4);
    assert!(String::from_utf8_lossy(&bytes[10..128]).contains(&format!("'shape': (3, {dim})")));
    assert_eq!(t.read("v.ids.txt"), "1\n2\n3\n");

    t.write(
        "in.jsonl.gz",
        gz("{\"id\":\"a\",\"text\":\"my card is gone\"}\n{\"id\":\"b\",\"text\":\"x\"}\n"),
    );
    let out = t.ok(&format!("embed -q --model {model} in.jsonl.gz -o -"));
    let records = lines(&out);
    assert_eq!((&records[0]["id"], &records[1]["id"]), (&"a".into(), &"b".into()));
    // Equal texts have equal vectors, in any file.
    let first: Vec<f32> = bytes[128..128 + dim * 4]
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    for (a, b) in records[0]["embedding"].as_array().unwrap().iter().zip(&first) {
        assert!((a.as_f64().unwrap() as f32 - b).abs() < 1e-5);
    }

    for of in ["utterances", "dialogues"] {
        let summary = t.json(&format!("embed --model {model} --of {of} {SAMPLES} -o s-{of}.arrow"));
        let dialogues = 280;
        match of {
            "dialogues" => assert_eq!(summary["vectors"], dialogues),
            _ => assert!(summary["vectors"].as_u64().unwrap() > dialogues),
        }
        assert!(t.path(&format!("s-{of}.arrow")).exists());
    }
}

#[test]
fn bad_lines_are_named_and_too_many_of_them_write_nothing() {
    let t = Turnwise::new();
    let model = t.model();
    t.write("in.jsonl", "{\"id\":\"a\",\"text\":\"x\"}\n{oops\n{\"id\":\"c\",\"text\":\"y\"}\n");
    let outcome = t.run(&format!("embed --model {model} in.jsonl -o v.jsonl"));
    outcome.says(0, &["warning: rejected: in.jsonl:2: not valid JSON"]);
    assert_eq!(lines(&t.read("v.jsonl")).len(), 2);
    let outcome = t.run(&format!("embed --model {model} in.jsonl -o w.npy --max-errors 0"));
    outcome.says(3, &["nothing was written", "hint: allow more with --max-errors N"]);
    let many = "{oops\n".repeat(7);
    t.write("many.jsonl", format!("{{\"id\":\"a\",\"text\":\"x\"}}\n{many}"));
    let outcome = t.run(&format!("embed --model {model} many.jsonl -o v.jsonl --max-errors 9"));
    outcome.says(0, &["hint: 2 more; --rejects FILE lists them all"]);
    let line = format!("embed --model {model} many.jsonl -o v.jsonl --max-errors 9 --rejects bad.jsonl");
    t.run(&line).says(0, &["7 rejects are listed in bad.jsonl"]);
    let listed = t.read("bad.jsonl");
    assert_eq!(lines(&listed).len(), 7);
    assert!(listed.starts_with("{\"path\":\"many.jsonl\",\"line\":2,"), "{listed}");
    t.run(&format!("embed --model {model} many.jsonl -o w.npy --rejects many.jsonl"))
        .says(2, &["many.jsonl is an input file and would be overwritten"]);
    assert!(!t.path("w.npy").exists() && !t.path("w.npy.tmp").exists() && !t.path("w.ids.txt").exists());
}

/// If a pipe were replaced by a file, its reader would wait forever. A device must not be replaced, either.
#[cfg(unix)]
#[test]
fn embed_writes_to_pipes_and_keeps_links() {
    use std::os::unix::fs::{FileTypeExt, symlink};

    let t = Turnwise::new();
    let model = t.model();
    t.write("in.txt", "one\ntwo\n");
    let pipe = t.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    assert!(t.ok(&format!("embed --model {model} in.txt -o pipe --to jsonl")).contains("pipe has vectors"));
    assert_eq!(lines(&reader.join().unwrap()).len(), 2);
    t.run(&format!("embed --model {model} in.txt -o pipe --to npy"))
        .says(2, &["pipe is a device or a pipe, not a file", "--to jsonl"]);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());

    t.write("target.npy", "old");
    symlink("target.npy", t.path("link.npy")).unwrap();
    t.run(&format!("embed --model {model} in.txt -o link.npy")).says(0, &[]);
    assert!(fs::symlink_metadata(t.path("link.npy")).unwrap().is_symlink());
    assert!(fs::read(t.path("target.npy")).unwrap().starts_with(b"\x93NUMPY"));
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_writes_nothing() {
    let t = Turnwise::new();
    let model = t.model();
    let mut run = t.start(&format!("embed -v --model {model} --from lines - -o v.npy"));
    run.feed("one line\n");
    // The program reads the start of standard input before it opens the model, and waits for more input.
    run.feed(&"another line\n".repeat(40_000));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    run.interrupt();
    assert_eq!(run.end().code, 130);
    assert!(!t.path("v.npy").exists() && !t.path("v.npy.tmp").exists());
}

/// The model does not exist, so an error about an argument shows that arguments are checked before the model is opened.
#[test]
fn invalid_arguments_are_reported_before_reading() {
    let t = Turnwise::new();
    t.write("in.jsonl", record("a", "x"));
    t.run("embed in.jsonl -o in.jsonl")
        .says(2, &["error: in.jsonl is an input file and would be overwritten\n"]);
    t.run("embed in.jsonl -o v.bin").says(2, &["is not a known vector format", "hint: use .npy"]);
    t.run("embed in.jsonl -o v.npy --precision f31").says(2, &["tip: a similar value exists: 'f32'"]);
    t.run("embed none.txt -o v.npy").says(2, &["cannot open none.txt"]);
    for rejects in ["v.npy", "./v.ids.txt"] {
        t.run(&format!("embed in.jsonl -o v.npy --rejects {rejects}")).says(
            2,
            &[&format!("two outputs would be written to {rejects}"), "hint: choose a different name"],
        );
    }
    t.run("model bench --input in.jsonl --vectors in.jsonl")
        .says(2, &["in.jsonl is an input file and would be overwritten"]);
    t.write("empty.txt", "");
    t.run("embed empty.txt -o v.npy").says(3, &["empty.txt is empty"]);
}
