//! Runs the commands of the guides, and compares their output with the output that the guides show.
//!
//! The opening fence of a code block says how the test uses the block:
//!
//! - ` ```sh `: commands. They run in one folder per page, one block after another. A command `turnwise serve` keeps
//!   running until the end of the page.
//! - ` ```text,output `: the output of the block above, or some lines of this output. Numbers are not compared; `…`
//!   stands for any text.
//! - `file=NAME`: the block is the content of a file, which is written to the folder.
//! - `fails`, `warns`: the commands are expected to fail, or to print a warning.
//! - `needs=THING`: run the block only if THING exists; see [`Machine::lacks`]. Otherwise, only parse its
//!   commands.
//!
//! The folder has an index of the sample dialogues, `chats`, and two files with some of the dialogues: `labeled.jsonl`
//! and `chats.jsonl.zst`. In the guides, the files have all dialogues, so the output shown there differs only in
//! numbers.

use std::{
    fmt::Write as _,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use regex::Regex;
use tempfile::TempDir;

/// Languages of blocks that are not executed.
const DATA: [&str; 6] = ["text", "json", "toml", "python", "nginx", "rust"];

/// A block of code.
struct Block {
    line: usize,
    language: String,
    attributes: Vec<String>,
    text: String,
}

impl Block {
    /// Returns the blocks of a page, in order.
    fn all(page: &str) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut inside = false;
        for (n, line) in page.lines().enumerate() {
            match line.trim_start().strip_prefix("```") {
                Some(_) if inside => inside = false,
                Some(info) => {
                    inside = true;
                    let mut words = info.split(',').map(|word| word.trim().to_owned());
                    let language = words.next().unwrap_or_default();
                    blocks.push(Block {
                        line: n + 1,
                        language,
                        attributes: words.collect(),
                        text: String::new(),
                    });
                }
                None if inside => {
                    let block = blocks.last_mut().unwrap();
                    let _ = writeln!(block.text, "{line}");
                }
                None => {}
            }
        }
        blocks
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find_map(|a| a.strip_prefix(name)?.strip_prefix('='))
    }

    fn is_output(&self) -> bool {
        self.attributes.iter().any(|a| a == "output")
    }

    /// Returns the commands of the block, without comments. Lines that end with a backslash are joined with the next
    /// line.
    fn commands(&self) -> Vec<String> {
        let joined = self.text.replace("\\\n", " ");
        let lines = joined.lines().map(|line| line.split(" #").next().unwrap_or_default().trim().to_owned());
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
    }
}

/// Programs and data on this machine that blocks need.
struct Machine {
    /// Cache of the Hugging Face libraries.
    cache: PathBuf,
    has_model: bool,
    /// Folder that is copied for every page.
    start: TempDir,
}

impl Machine {
    fn new() -> Machine {
        let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let home = || path("HF_HOME").or_else(|| Some(path("HOME")?.join(".cache/huggingface")));
        let cache = path("HF_HUB_CACHE").or_else(|| Some(home()?.join("hub"))).unwrap_or_default();
        let has_model = cache.join("models--sentence-transformers--all-MiniLM-L6-v2/refs").exists();
        let machine = Machine { cache, has_model, start: tempfile::tempdir().unwrap() };
        let script = "turnwise demo\n\
            turnwise corpus export -i demo --filter 'domain=banking or domain=billing' -o chats.jsonl.zst\n\
            turnwise corpus export -i demo --filter language=en -o labeled.jsonl\n\
            mv indexes/demo indexes/chats\n\
            printf 'silent\nshow-error\nwrite-out = \"\\\\n\"\n' > .curlrc";
        let output = machine.shell(script, machine.start.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        machine
    }

    /// Returns the reason why a block cannot run on this machine; `None` if it can run.
    fn lacks(&self, block: &Block) -> Option<&'static str> {
        // The guides show what the demo and its default model print. With a fitted encoder, output and warnings differ.
        if !self.has_model {
            return Some("the default model is not in the cache; `turnwise model pull` downloads it");
        }
        match block.value("needs")? {
            "model" => None,
            "milvus" => Some("it needs a Milvus server; tests/cli/milvus.rs runs such commands"),
            "cuda" => Some("it needs CUDA"),
            "build" => Some("it builds turnwise"),
            "network" => Some("it needs the network"),
            "data" => Some("it needs data that is not included"),
            "time" => std::env::var_os("TURNWISE_SLOW_GUIDES")
                .is_none()
                .then_some("it takes minutes; set TURNWISE_SLOW_GUIDES to run it"),
            "cluster" => Some("it runs on several machines; tests/cli/shards.rs runs such commands"),
            other => panic!("line {}: unknown needs={other}", block.line),
        }
    }

    /// Returns a command that runs a script in a folder, with standard error redirected to standard output.
    fn shell(&self, script: &str, folder: &Path) -> Command {
        let mut command = Command::new("sh");
        let program = Path::new(env!("CARGO_BIN_EXE_turnwise")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TURNWISE_") {
                command.env_remove(name);
            }
        }
        command
            .args(["-ec", &format!("exec 2>&1\n{script}")])
            .current_dir(folder)
            .env("PATH", format!("{}:{path}", program.display()))
            .env("HOME", folder)
            .env("HF_HUB_CACHE", &self.cache)
            .env("HF_HUB_OFFLINE", "1")
            .env_remove("XDG_CONFIG_HOME");
        command
    }
}

/// A server that a page has started. It is killed when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the blocks of a page. Returns a line for each skipped block.
fn run_page(name: &str, page: &str, machine: &Machine) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-r").arg(machine.start.path().join(".")).arg(folder.path()).status();
    assert!(copied.unwrap().success());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut skipped = Vec::new();
    let mut servers: Vec<Server> = Vec::new();
    let mut printed: Option<String> = None;
    for block in Block::all(page) {
        let at = format!("{name}:{}", block.line);
        if let Some(file) = block.value("file") {
            fs::write(folder.path().join(file), &block.text).unwrap();
        }
        if block.is_output() {
            if machine.lacks(&block).is_some() {
                continue;
            }
            if let Some(printed) = &printed {
                compare(&block.text, printed, &at);
            }
            continue;
        }
        if block.language != "sh" {
            assert!(
                DATA.contains(&block.language.as_str()),
                "{at}: the block has no known language: `{}`",
                block.language
            );
            assert!(
                !block.text.lines().any(|line| line.trim_start_matches("$ ").starts_with("turnwise ")),
                "{at}: commands belong in a block of the language sh"
            );
            continue;
        }
        if let Some(reason) = machine.lacks(&block) {
            block.commands().iter().for_each(|command| parse(command, &at));
            skipped.push(format!("{at}: {reason}"));
            printed = None;
            continue;
        }
        let script = block.text.replace("7700", &port);
        printed = Some(if script.starts_with("turnwise serve") {
            let (server, outcome) =
                serve(&format!("exec {} --port {port}", script.trim_end()), folder.path(), machine);
            servers.push(server);
            outcome
        } else {
            let started = Instant::now();
            let output = machine.shell(&script, folder.path()).output().unwrap();
            let outcome = String::from_utf8_lossy(&output.stdout).into_owned();
            let fails = block.attributes.iter().any(|a| a == "fails");
            assert!(output.status.success() != fails, "{at} ended with {}:\n{outcome}", output.status);
            let warns = block.attributes.iter().any(|a| a == "warns");
            assert!(
                fails || warns == outcome.contains("warning: "),
                "{at} printed a warning, or no warning:\n{outcome}"
            );
            eprintln!("{at}: {:.1} s", started.elapsed().as_secs_f32());
            outcome
        });
    }
    skipped
}

/// Starts a server and waits until it is ready. Returns the server and its output so far.
fn serve(script: &str, folder: &Path, machine: &Machine) -> (Server, String) {
    let log = folder.join("serve.log");
    let file = fs::File::create(&log).unwrap();
    let server = Server(machine.shell(script, folder).stdout(file).spawn().unwrap());
    let started = Instant::now();
    loop {
        let outcome = fs::read_to_string(&log).unwrap();
        if outcome.contains("to stop)") {
            return (server, outcome);
        }
        assert!(started.elapsed() < Duration::from_secs(30), "`{script}` is not ready: {outcome}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Checks the arguments of a turnwise command without running it.
fn parse(command: &str, at: &str) {
    for part in command.split(" | ").flat_map(|part| part.split(" && ")) {
        let words = words(part.split(" >").next().unwrap());
        if words.first().is_some_and(|word| word == "turnwise") {
            let parsed = turnwise::cli::definition().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{at}: {part}: {}", parsed.unwrap_err());
        }
    }
}

/// Splits a command at spaces outside of quotes.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote) = (String::new(), None);
    for c in command.chars() {
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            (' ', None) => words.push(std::mem::take(&mut word)),
            (c, _) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Checks that the printed lines contain the lines that the guide shows, in the same order.
fn compare(shown: &str, printed: &str, at: &str) {
    let numbers = Regex::new(r"[0-9a-f]{16,}|\d[\d.,]*\d|\d").unwrap();
    let device = Regex::new(r"cpu( \([a-z0-9-]+\))?").unwrap();
    let normal = |line: &str| {
        let line = device.replace_all(line, "cpu").into_owned();
        let line = numbers.replace_all(&line, "N").into_owned();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let printed_lines: Vec<String> = printed.lines().map(normal).collect();
    let mut rest = printed_lines.iter();
    for line in shown.lines().map(normal).filter(|line| !line.is_empty() && line != "…") {
        let parts: Vec<String> = line.split('…').map(|part| regex::escape(part.trim())).collect();
        let pattern = Regex::new(&format!("^{}$", parts.join(".*"))).unwrap();
        assert!(
            rest.any(|printed| pattern.is_match(printed)),
            "{at}: this line is not printed:\n  {line}\nThe block above prints:\n{printed}"
        );
    }
}

#[test]
fn the_guides_show_commands_that_work() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut pages = Vec::new();
    super::pages(&folder, &mut pages);
    pages.retain(|page| !page.starts_with(folder.join("reference")));
    pages.sort();
    let only = std::env::var("TURNWISE_GUIDE").unwrap_or_default();
    let machine = Machine::new();
    let command = Regex::new(r"^    (turnwise|cargo|python3|\S+/python) ").unwrap();
    for page in pages.iter().filter(|page| page.to_string_lossy().contains(&only)) {
        let name = page.strip_prefix(&folder).unwrap().display().to_string();
        let text = fs::read_to_string(page).unwrap();
        let indented = text.lines().find(|line| command.is_match(line));
        assert!(indented.is_none(), "{name}: commands belong in a block of the language sh: {indented:?}");
        for skipped in run_page(&name, &text, &machine) {
            eprintln!("skipped: {skipped}");
        }
    }
}
