//! Tests of `encode --shard` and `encode --assemble`: shards in any order, and shards that are missing, damaged or
//! duplicate.

// Printing is allowed, because a skipped test prints the reason.
#![allow(clippy::print_stderr)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use turnwise_index::vectors::{Kind, VectorReader};

use crate::support::{Outcome, Turnwise, record, records};

/// Returns all vectors of an index, by kind and key.
pub fn vectors(index: &Path) -> BTreeMap<(usize, [u8; 16]), Vec<u32>> {
    let reader = VectorReader::open(index).unwrap().unwrap();
    let mut all = BTreeMap::new();
    for (n, kind) in Kind::ALL.into_iter().enumerate() {
        for (row, key) in reader.keys(kind).enumerate() {
            let bits = reader.row(kind, row).unwrap().iter().map(|v| v.to_bits()).collect();
            assert!(all.insert((n, key.0), bits).is_none(), "a key has two rows");
        }
    }
    all
}

/// Returns the sorted names of all files of a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn data_file(folder: &Path, shard: &str) -> PathBuf {
    let named = |name: &String| name.starts_with(shard) && !name.ends_with(".json");
    folder.join(names(folder).into_iter().find(named).unwrap())
}

/// Returns a Python interpreter with the packages that these tests need; `None` if it is not installed.
pub fn python() -> Option<PathBuf> {
    let folder = match std::env::var_os("TURNWISE_SCALE") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache/turnwise/scale"),
    };
    let python = folder.join("bin/python");
    if python.exists() {
        return Some(python);
    }
    eprintln!("skipped: {} is not there; tests/scale.sh installs it", python.display());
    None
}

/// Fits a model, and creates an index without vectors. Returns the folder of the test and the path of the model.
pub fn corpus(dialogues: usize) -> (Turnwise, String) {
    let t = Turnwise::new();
    let model = t.model();
    t.write("in.jsonl", records(dialogues));
    t.ok("ingest -i x in.jsonl --no-encode");
    (t, model)
}

/// Encodes `in.jsonl` with a single `encode`, and returns all vectors.
fn whole(t: &Turnwise, model: &str) -> BTreeMap<(usize, [u8; 16]), Vec<u32>> {
    t.ok("ingest -i whole in.jsonl --no-encode");
    t.ok(&format!("encode -i whole --model {model}"));
    vectors(&t.path("indexes/whole"))
}

fn all_shards(t: &Turnwise, model: &str, of: usize, more: &str) {
    for n in (0..of).rev() {
        t.ok(&format!("encode --shard {n}/{of} in.jsonl --out shards --model {model} {more}"));
    }
}

#[test]
fn assembled_shards_equal_a_single_encode() {
    let (t, model) = corpus(60);
    for format in ["arrow", "safetensors"] {
        all_shards(&t, &model, 4, &format!("--to {format}"));
        assert_eq!(names(&t.path("shards")).len(), 8, "each shard has a data file and a manifest");
        let done = t.json("encode --assemble shards -i x --replace");
        // The answer is the same in all dialogues, so every shard contains the vector of the answer.
        assert_eq!((&done["rows"], &done["new"]), (&(60 + 60 + 4).into(), &(60 + 60 + 1).into()), "{done}");
        assert_eq!(vectors(&t.path("indexes/x")), whole(&t, &model), "{format}");
    }
    assert_eq!(t.run("verify -i x").code, 0);
    let again = t.json("encode --assemble shards -i x");
    assert_eq!((&again["new"], &again["without"]), (&0.into(), &0.into()));
    assert_eq!(t.json("encode -i x")["seen"], 0, "`encode` has nothing to do");
}

#[test]
fn complete_shards_are_skipped_in_any_order_of_the_inputs() {
    let (t, model) = corpus(40);
    let text = t.read("in.jsonl");
    let (mut lines, middle): (Vec<&str>, usize) = (text.lines().collect(), 20);
    t.write("a.jsonl", lines[..middle].join("\n"));
    t.write("b.jsonl", lines[middle..].join("\n"));
    lines.reverse();
    t.write("backwards.jsonl", lines.join("\n"));
    let shard = |inputs: &str| -> Value {
        t.json(&format!("encode --shard 1/3 {inputs} --out shards --model {model}"))[0].clone()
    };
    let first = shard("in.jsonl");
    assert_eq!(first["known"], false);
    let file = first["file"].as_str().unwrap();
    let made = fs::metadata(t.path("shards").join(file)).unwrap().modified().unwrap();
    for inputs in ["in.jsonl", "b.jsonl a.jsonl", "backwards.jsonl", "indexes/x"] {
        assert_eq!(shard(inputs)["known"], true, "{inputs}");
    }
    assert_eq!(fs::metadata(t.path("shards").join(file)).unwrap().modified().unwrap(), made);

    // Only the changed shard is created again, and its old file is removed.
    let changed = t.read("in.jsonl").replace("this is text number 7\"", "this is another text\"");
    t.write("in.jsonl", changed);
    let known = |n: usize| {
        t.json(&format!("encode --shard {n}/3 in.jsonl --out shards --model {model}"))[0]["known"].clone()
    };
    for n in [0, 2] {
        t.ok(&format!("encode --shard {n}/3 backwards.jsonl --out shards --model {model}"));
    }
    let rebuilt: Vec<usize> = (0..3).filter(|n| known(*n) == false).collect();
    assert_eq!(rebuilt.len(), 1);
    assert_eq!(names(&t.path("shards")).len(), 6);
}

#[test]
fn two_processes_creating_the_same_shard_leave_one() {
    let (t, model) = corpus(300);
    for round in 0..5 {
        let line = format!("encode --shard 0/1 in.jsonl --out shards{round} --model {model}");
        let words: Vec<&str> = line.split(' ').collect();
        let both: Vec<_> = (0..3).map(|_| t.command(&words).spawn().unwrap()).collect();
        for one in both {
            let outcome = Outcome::of(one.wait_with_output().unwrap());
            assert_eq!(outcome.code, 0, "{outcome:?}");
        }
        assert_eq!(names(&t.path(&format!("shards{round}"))).len(), 2);
        let done = t.json(&format!("encode --assemble shards{round} -i x"));
        assert_eq!(done["rows"], 601, "{done}");
    }
}

#[test]
fn one_command_creates_several_shards_also_from_an_index() {
    let (t, model) = corpus(30);
    let done = t.json(&format!("encode --shard 0-2,4/5 -i x --out shards --model {model} --of utterances"));
    assert_eq!(done.as_array().unwrap().len(), 4);
    assert_eq!(done[0].get("dialogues"), None);
    t.ok(&format!("encode --shard 3/5 indexes/x --out shards --model {model} --of utterances"));
    t.ok("encode --assemble shards -i x");
    let reader = VectorReader::open(&t.path("indexes/x")).unwrap().unwrap();
    assert_eq!((reader.rows(Kind::Utterances), reader.rows(Kind::Dialogues)), (31, 0));
    // The index now stores the encoder of the shards.
    let again = t.json("encode --shard 0/5 -i x --out shards");
    assert_eq!(again[0]["known"], true, "{again}");
}

#[test]
fn an_incomplete_set_is_refused_with_the_command_that_completes_it() {
    let (t, model) = corpus(40);
    t.run("encode --assemble shards -i x").says(2, &["there are no shards in shards", "--shard=0/4"]);
    all_shards(&t, &model, 8, "");
    for lost in ["shard-00002", "shard-00005", "shard-00006"] {
        fs::remove_file(t.path(&format!("shards/{lost}-of-00008.json"))).unwrap();
    }
    fs::remove_file(data_file(&t.path("shards"), "shard-00007")).unwrap();
    let command = format!("turnwise encode --shard=2,5-7/8 --out=shards in.jsonl --model {model}");
    let refused = t.run("encode --assemble shards -i x");
    refused.says(3, &["2,5-6/8 are missing; 7/8 is damaged: shard-00007", "is missing", &command]);
    assert!(VectorReader::open(&t.path("indexes/x")).unwrap().is_none(), "the index must not change");
    let redone = t.json(command.strip_prefix("turnwise ").unwrap());
    assert_eq!(redone.as_array().unwrap().len(), 4);
    t.ok("encode --assemble shards -i x");
    assert_eq!(vectors(&t.path("indexes/x")), whole(&t, &model));
}

#[test]
fn truncated_shards_are_reported_and_recreated() {
    let (t, model) = corpus(40);
    all_shards(&t, &model, 4, "");
    let folder = t.path("shards");
    let (cut, changed) = (data_file(&folder, "shard-00001"), data_file(&folder, "shard-00002"));
    let bytes = fs::read(&cut).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let mut bytes = fs::read(&changed).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&changed, bytes).unwrap();
    let record = folder.join("shard-00003-of-00004.json");
    fs::write(&record, fs::read_to_string(&record).unwrap().replace("\"dim\": 16", "\"dim\": 17")).unwrap();
    let refused = t.run("encode --assemble shards -i x");
    refused.says(
        3,
        &[
            "3/4 is damaged: shard-00003-of-00004.json: its checksum is wrong",
            "1/4 is damaged: shard-00001",
            "but its manifest says",
            "2/4 is damaged: the content of shard-00002",
            "differs from its manifest",
            "turnwise encode --shard=1-3/4 --out=shards in.jsonl",
        ],
    );
    let redone = t.json(&format!("encode --shard 0-3/4 in.jsonl --out shards --model {model}"));
    let known: Vec<&Value> = redone.as_array().unwrap().iter().map(|shard| &shard["known"]).collect();
    assert_eq!(known, [true, false, false, false]);
    t.ok("encode --assemble shards -i x");
    assert_eq!(vectors(&t.path("indexes/x")), whole(&t, &model));
}

#[test]
fn foreign_and_duplicate_shards_are_reported_by_name() {
    let (t, model) = corpus(30);
    all_shards(&t, &model, 3, "");
    let folder = t.path("shards");
    fs::copy(folder.join("shard-00001-of-00003.json"), folder.join("shard-00001-of-00003-copy.json"))
        .unwrap();
    t.ok(&format!("encode --shard 4/9 in.jsonl --out shards --model {model}"));
    let foreign = ["shard-00001-of-00003-copy.json", "shard-00004-of-00009.json"];
    t.run("encode --assemble shards -i x").says(
        3,
        &[
            "shard-00001-of-00003-copy.json does not belong here: a duplicate of 1/3",
            "shard-00004-of-00009.json does not belong here: one of 9 shards, but the others are of 3",
            "hint: remove shard-00001-of-00003-copy.json, shard-00004-of-00009.json from shards",
        ],
    );
    foreign.iter().for_each(|name| fs::remove_file(folder.join(name)).unwrap());
    t.ok("encode --assemble shards -i x");

    // Test a shard from a different encoder, and a shard without dialogue vectors.
    t.ok("model fit in.jsonl --dim 16 -o other");
    t.ok("encode --shard 2/3 in.jsonl --out shards --model ./other");
    t.run("encode --assemble shards -i x").says(
        3,
        &[
            "2/3 is from a different encoder; the others have vectors of ",
            "turnwise encode --shard=2/3 --out=shards in.jsonl",
        ],
    );
    t.ok(&format!("encode --shard 2/3 in.jsonl --out shards --model {model} --of utterances"));
    t.run("encode --assemble shards -i x")
        .says(3, &["2/3 has utterances, but the others have utterances and dialogues"]);
}

#[test]
fn the_manifest_of_another_shard_is_not_used() {
    let (t, model) = corpus(30);
    all_shards(&t, &model, 3, "");
    let folder = t.path("shards");
    let others = data_file(&folder, "shard-00001");
    for format in ["arrow", "safetensors"] {
        fs::copy(folder.join("shard-00001-of-00003.json"), folder.join("shard-00000-of-00003.json")).unwrap();
        let encode = format!("encode --shard 0/3 in.jsonl --out shards --model {model} --to {format}");
        assert_eq!(t.json(&encode)[0]["known"], false, "{format}");
        assert!(others.exists(), "{format}: the data of shard 1 is not replaced");
    }
}

#[test]
fn an_index_of_another_encoder_is_not_mixed_with_shards() {
    let (t, model) = corpus(30);
    t.ok("model fit in.jsonl --dim 16 -o other");
    t.ok("encode -i x --model ./other");
    let before = vectors(&t.path("indexes/x"));
    all_shards(&t, &model, 2, "");
    t.run("encode --assemble shards -i x").says(
        2,
        &[
            "indexes/x has vectors of ",
            "hint: to replace the existing vectors: `turnwise encode --assemble shards -i indexes/x --replace`",
        ],
    );
    assert_eq!(vectors(&t.path("indexes/x")), before);
    t.ok("encode --assemble shards -i x --replace");
    assert_eq!(vectors(&t.path("indexes/x")), whole(&t, &model));
}

#[test]
fn dialogues_that_are_in_no_shard_are_counted_and_left_to_encode() {
    let (t, model) = corpus(20);
    all_shards(&t, &model, 2, "");
    t.write("more.jsonl", record("new", "said after the shards were made"));
    t.ok("ingest -i x more.jsonl --no-encode");
    let done = t.run("encode --assemble shards -i x");
    done.says(0, &["`turnwise encode -i indexes/x` creates the missing vectors"]);
    assert!(done.out.contains("2  utterances and dialogues of the index are in no shard"), "{done:?}");
    let rest = t.json("encode -i x");
    assert_eq!((&rest["utterances"], &rest["dialogues"]), (&1.into(), &1.into()));
}

#[test]
fn wrong_arguments_get_a_hint() {
    let (t, model) = corpus(5);
    for (line, text) in [
        ("encode --shard 4/4 in.jsonl --out s", "shards are numbered from 0"),
        ("encode --shard 1/4 in.jsonl", "--out <PLACE>"),
        ("encode in.jsonl -i x", "in.jsonl would only be read with --shard"),
        ("encode -i x --from csv", "--from is an option for reading files, but encode reads an index"),
        ("encode --assemble s -i x", "'--assemble <PLACE>' cannot be used with '--model <MODEL>'"),
        ("encode --shard 0/1 - --out s", "a shard cannot be read from standard input"),
        ("encode --shard 0/1 none.jsonl --out s", "cannot open none.jsonl"),
    ] {
        t.run(&format!("{line} --model {model}")).says(2, &[text]);
    }
    if cfg!(not(feature = "remote")) {
        t.run(&format!("encode --shard 0/1 in.jsonl --out s3://bucket/x --model {model}"))
            .says(6, &["was built without support for them", "hint: build it with `--features remote`"]);
    }
    assert!(!t.path("s").exists());
}

#[test]
fn a_truncated_input_creates_no_shard() {
    let (t, model) = corpus(50);
    let whole = crate::support::gz(t.read("in.jsonl"));
    t.write("cut.jsonl.gz", &whole[..whole.len() - 40]);
    t.run(&format!("encode --shard 0/2 cut.jsonl.gz --out shards --model {model}"))
        .says(3, &["an input could not be read to its end: cut.jsonl.gz", "shard 0/2 was not written"]);
    assert_eq!(names(&t.path("shards")), Vec::<String>::new());
}

/// Mounts a small file system in a user namespace and fills it.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_and_leaves_no_files() {
    let (t, model) = corpus(400);
    fs::create_dir(t.path("shards")).unwrap();
    let program = env!("CARGO_BIN_EXE_turnwise");
    let script = format!(
        "mount -t tmpfs -o size=24k none shards || exit 99
        {program} encode --no-progress --shard 0/2 in.jsonl --out shards --model {model} >&2
        code=$?; ls -A shards; exit $code"
    );
    let mut command = t.command(&[]);
    let environment: Vec<_> =
        command.get_envs().map(|(k, v)| (k.to_owned(), v.map(|v| v.to_owned()))).collect();
    command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script]).current_dir(t.path(""));
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let outcome = match command.output() {
        Ok(output) => Outcome::of(output),
        Err(e) => return eprintln!("skipped: no unshare: {e}"),
    };
    if outcome.code != 6 && outcome.err.contains("unshare:") || outcome.code == 99 {
        return eprintln!("skipped: no file system of its own here: {}", outcome.err);
    }
    outcome.says(6, &["No space left on device", "hint: free some space and run the same command again"]);
    assert_eq!(outcome.out, "", "files are left");
}

/// pyarrow writes the Parquet input and reads the shards.
#[test]
fn parquet_is_read_and_python_reads_the_shards() {
    let Some(python) = python() else { return };
    let t = Turnwise::new();
    let model = t.model();
    let python = |script: &str| {
        let done = Command::new(&python).args(["-c", script]).current_dir(t.path("")).output().unwrap();
        let done = Outcome::of(done);
        assert_eq!(done.code, 0, "{done:?}");
        done.out
    };
    python(
        "import pyarrow as pa, pyarrow.parquet as pq
ids = [f'd{n}' for n in range(40)]
lists = [[{'role': 'user', 'content': f'text {n}'}, {'role': 'assistant', 'content': 'one\\nmoment'}] for n in range(40)]
pq.write_table(pa.table({'id': ids, 'messages': lists, 'rating': [None, 5] * 20}), 'lists.parquet')
turns = {'id': sum(([i, i] for i in ids), []), 'role': ['user', 'agent'] * 40}
turns['text'] = sum(([pair[0]['content'], pair[1]['content']] for pair in lists), [])
pq.write_table(pa.table(turns), 'turns.parquet', compression='zstd')",
    );
    for (table, format) in [("lists", "arrow"), ("turns", "safetensors")] {
        t.ok(&format!("ingest -i {table} {table}.parquet --no-encode"));
        t.ok(&format!("encode --shard 0-2/3 {table}.parquet --out {table} --to {format} --model {model}"));
        let done = t.json(&format!("encode --assemble {table} -i {table}"));
        assert_eq!((&done["new"], &done["without"]), (&(41 + 40).into(), &0.into()), "{table}: {done}");
    }
    let read = python(
        "import glob, pyarrow as pa
tables = [pa.ipc.open_file(name).read_all() for name in glob.glob('lists/*.arrow')]
print(len(tables), sum(len(table) for table in tables), tables[0]['embedding'].type, tables[0]['id'][0].as_py()[:11])",
    );
    assert_eq!(read.trim(), "3 83 fixed_size_list<item: float not null>[16] utterances/");
}
