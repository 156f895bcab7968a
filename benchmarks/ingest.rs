//! Speed and memory use of `turnwise ingest`. `benchmarks/README.md` has the commands and results.
//!
//! * `sgd [FOLDER]`: ingests the JSON files of SGD's training set on one core, without and with a search index.
//! * `million [DIALOGUES]`: ingests synthetic dialogues of ten turns without a search index, 1,000,000 by default.
//!   Prints the speed of each tenth of the dialogues, the peak memory, the size on disk and the time to open the store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use std::{
    fs,
    io::{BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

fn main() {
    // cargo bench adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match args.first().map(String::as_str) {
        Some("sgd") => sgd(args.get(1).map(PathBuf::from)),
        Some("million") => million(
            args.get(1).map_or(1_000_000, |n| n.parse().expect("the number of dialogues must be an integer")),
        ),
        _ => println!("usage: cargo bench --bench ingest -- sgd [FOLDER] | million [DIALOGUES]"),
    }
}

/// Returns a command that runs the program with one thread. If `taskset` is available, the command also pins the
/// program to one core.
fn on_one_core(args: &[&str]) -> Command {
    let binary = env!("CARGO_BIN_EXE_turnwise");
    let pinned = Command::new("taskset").arg("-V").output().is_ok();
    let mut command = if pinned {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", binary]);
        command
    } else {
        println!("taskset was not found: using --threads 1 instead of one core");
        Command::new(binary)
    };
    command.args(["--threads", "1", "--no-progress"]).args(args);
    command
}

fn sgd(folder: Option<PathBuf>) {
    let work = tempfile::tempdir().unwrap();
    let folder = folder.unwrap_or_else(|| {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/sgd_train_slim.tar.zst");
        if !archive.exists() {
            panic!("{} does not exist; pass a folder with SGD's dialogues_*.json", archive.display());
        }
        let target = work.path().join("sgd");
        let stream = zstd::Decoder::new(fs::File::open(&archive).unwrap()).unwrap();
        tar::Archive::new(stream).unpack(&target).unwrap();
        target
    });
    for (what, extra) in [("records only", "--no-index"), ("records and search index", "--no-encode")] {
        for round in 0..3 {
            let index = work.path().join(format!("index{extra}-{round}"));
            let mut command = on_one_core(&["--format", "json", "ingest", "-i"]);
            command.arg(&index).arg(extra).arg(&folder);
            let started = Instant::now();
            let output = command.stderr(Stdio::inherit()).output().unwrap();
            let seconds = started.elapsed().as_secs_f64();
            assert!(output.status.success());
            let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let turns = summary["tally"]["turns"].as_f64().unwrap();
            println!("{what}: {turns} turns in {seconds:.2} s, {:.0} turns/s", turns / seconds);
        }
    }
}

fn million(dialogues: u64) {
    let work = tempfile::tempdir().unwrap();
    let corpus = work.path().join("synthetic.jsonl");
    let started = Instant::now();
    write_synthetic(&corpus, dialogues);
    let size = fs::metadata(&corpus).unwrap().len();
    println!(
        "{dialogues} dialogues of 10 turns, {:.2} GB, written in {:.0} s",
        size as f64 / 1e9,
        started.elapsed().as_secs_f64()
    );
    let index = work.path().join("index");
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.args(["--no-progress", "-v", "ingest", "--no-index", "-i"]).arg(&index).arg(&corpus);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let peak = watch_memory(&child);
    let marks = acknowledged(&mut child);
    assert!(child.wait().unwrap().success());
    let seconds = marks.last().map_or(0.0, |m| m.seconds);
    println!("ingested in {seconds:.1} s: {:.0} turns/s", dialogues as f64 * 10.0 / seconds);
    print_tenths(&marks, dialogues);
    println!("peak memory {:.0} MB", peak.join().unwrap() as f64 / 1e6);
    let on_disk = turnwise_core::files::folder_bytes(&index);
    println!("on disk {:.2} GB", on_disk as f64 / 1e9);
    for round in 0..3 {
        let started = Instant::now();
        let store = turnwise_store::Store::open(&index, "benchmark").unwrap();
        let writer = started.elapsed();
        drop(store);
        let started = Instant::now();
        let snapshot = turnwise_store::Snapshot::open(&index).unwrap();
        let reader = started.elapsed();
        assert_eq!(snapshot.totals().dialogues, dialogues);
        let id = turnwise_core::ids::DialogueId::new(format!("synthetic-{:08}", dialogues / 2)).unwrap();
        let started = Instant::now();
        assert!(snapshot.get(&id).unwrap().is_some());
        println!(
            "open {round}: for writing {:.0} ms, for reading {:.1} ms, one dialogue by id {:.2} ms",
            writer.as_secs_f64() * 1e3,
            reader.as_secs_f64() * 1e3,
            started.elapsed().as_secs_f64() * 1e3
        );
    }
}

/// Starts a thread that polls the peak resident memory of a process until it ends. The thread returns the peak memory
/// in bytes.
fn watch_memory(child: &Child) -> std::thread::JoinHandle<u64> {
    let status = format!("/proc/{}/status", child.id());
    std::thread::spawn(move || {
        let mut peak = 0;
        while let Ok(text) = fs::read_to_string(&status) {
            let Some(line) = text.lines().find(|l| l.starts_with("VmHWM:")) else { break };
            peak = line
                .split_whitespace()
                .nth(1)
                .and_then(|n| n.parse::<u64>().ok())
                .map_or(peak, |kb| kb * 1024);
            std::thread::sleep(Duration::from_millis(50));
        }
        peak
    })
}

/// Progress of an ingest when a batch is acknowledged.
struct Mark {
    records: u64,
    seconds: f64,
    /// CPU seconds of the program so far; wall-clock seconds if the CPU time is unknown. CPU time excludes waiting for
    /// other processes.
    processor: f64,
}

/// Reads the standard error of an ingest to its end. Returns a mark for each acknowledged batch.
fn acknowledged(child: &mut Child) -> Vec<Mark> {
    let started = Instant::now();
    let stat = format!("/proc/{}/stat", child.id());
    let mut marks = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok) {
        if let Some(rest) = line.split("acknowledged: ").nth(1) {
            let records = rest.split(' ').next().unwrap().parse().unwrap();
            let seconds = started.elapsed().as_secs_f64();
            marks.push(Mark { records, seconds, processor: processor_seconds(&stat).unwrap_or(seconds) });
        }
    }
    marks
}

/// Returns the user and system time of a process in seconds, or `None` if `stat` cannot be read.
///
/// `stat` is the path `/proc/PID/stat` of the process.
fn processor_seconds(stat: &str) -> Option<f64> {
    let text = fs::read_to_string(stat).ok()?;
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    Some((fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?) / 100.0)
}

fn print_tenths(marks: &[Mark], dialogues: u64) {
    let at = |records: u64| match records {
        0 => (0.0, 0.0),
        _ => marks.iter().find(|m| m.records >= records).map_or((0.0, 0.0), |m| (m.seconds, m.processor)),
    };
    let rates: Vec<(f64, f64)> = (0..10)
        .map(|tenth| {
            let (from, to) = (dialogues * tenth / 10, dialogues * (tenth + 1) / 10);
            let turns = (to - from) as f64 * 10.0;
            let (begin, end) = (at(from), at(to));
            (turns / (end.0 - begin.0), turns / (end.1 - begin.1))
        })
        .collect();
    for (tenth, (wall, processor)) in rates.iter().enumerate() {
        println!(
            "  tenth {:>2}: {wall:>9.0} turns/s, {processor:>9.0} turns per second of processor time",
            tenth + 1
        );
    }
    println!(
        "  last tenth against first: {:.3}, in processor time {:.3}",
        rates[9].0 / rates[0].0,
        rates[9].1 / rates[0].1
    );
}

/// Writes synthetic dialogues of ten turns. Each turn has a random number and 6 to 17 random words.
fn write_synthetic(path: &Path, dialogues: u64) {
    const WORDS: [&str; 32] = [
        "the", "order", "refund", "please", "card", "my", "account", "delivery", "late", "to", "and",
        "invoice", "number", "is", "check", "password", "today", "we", "can", "not", "phone", "booking",
        "cancel", "change", "would", "you", "address", "thanks", "tomorrow", "meter", "flight", "support",
    ];
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut out = BufWriter::with_capacity(1 << 20, fs::File::create(path).unwrap());
    for n in 0..dialogues {
        write!(out, r#"{{"id":"synthetic-{n:08}","source":"synthetic","domains":["d{}"],"turns":["#, n % 12)
            .unwrap();
        for turn in 0..10 {
            let role = if turn % 2 == 0 { "user" } else { "agent" };
            let comma = if turn == 0 { "" } else { "," };
            write!(out, r#"{comma}{{"role":"{role}","text":"{}"#, next() % 100_000).unwrap();
            for _ in 0..6 + next() % 12 {
                write!(out, " {}", WORDS[(next() % 32) as usize]).unwrap();
            }
            write!(out, r#""}}"#).unwrap();
        }
        writeln!(out, "]}}").unwrap();
    }
    out.flush().unwrap();
}
