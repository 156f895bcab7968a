//! `turnwise doctor`: checks that this machine and this folder can run turnwise.

use std::{fs, time::Instant};

use crate::cli::{encoders, indexes, prelude::*};
use turnwise_core::files;
use turnwise_encoder::{
    Device, DeviceChoice, Precision,
    cpu::SimdLevel,
    open::{ACCURATE, fastest_on_cpu},
};
use turnwise_store::{Manifest, Snapshot, lock::WriterLock};

mod gpu;

/// One line of the report: a fact about this machine, with a problem if there is one.
#[derive(Serialize)]
struct Finding {
    what: String,
    is: String,
    problem: Option<String>,
}

pub(super) fn run(gpu: bool, context: &Context<'_>) -> Result<()> {
    let mut findings = Vec::new();
    let mut add = |what: &str, is: String, problem: Option<String>| {
        findings.push(Finding { what: what.to_owned(), is, problem });
    };
    let profile = env!("TURNWISE_PROFILE");
    let slow =
        (profile != "release").then(|| "this is a debug build, many times slower; use --release".to_owned());
    add("turnwise", format!("{} ({profile})", env!("CARGO_PKG_VERSION")), slow);
    add("system", format!("{} {}", std::env::consts::OS, std::env::consts::ARCH), None);
    add("processor", processor(), None);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    add("threads", format!("{} of {cores} cores", context.settings.threads), None);
    match auto_precision() {
        Ok(precision) => add("encoding", format!("{precision} on the CPU ({})", SimdLevel::best()), None),
        Err(e) => add("encoding", "not available on the CPU".to_owned(), Some(e.to_string())),
    }
    match Device::open(DeviceChoice::Auto) {
        Ok(device) if device.is_cpu() => add("device", format!("cpu; built {}", gpu_features()), None),
        Ok(device) => add("device", format!("{device}; built {}", gpu_features()), None),
        Err(e) => add("device", "no usable device".to_owned(), Some(e.to_string())),
    }
    if gpu {
        gpu::findings().into_iter().for_each(|f| add(&f.what, f.is, f.problem));
    }
    add("model", default_model(context), None);
    for (path, found) in &context.settings.files {
        add("settings", format!("{} ({})", path.display(), if *found { "read" } else { "not found" }), None);
    }
    let folder = &context.settings.indexes_dir;
    match try_folder(folder) {
        Ok(milliseconds) => add(
            "indexes",
            format!("{} is writable; a disk flush takes {milliseconds:.1} ms", folder.display()),
            (milliseconds > 200.0)
                .then(|| "the disk is slow to flush; every ingest batch waits for a flush".to_owned()),
        ),
        Err(e) => add("indexes", folder.display().to_string(), Some(e.to_string())),
    }
    for name in indexes::list(folder) {
        let (is, problem) = state_of(&folder.join(&name));
        add(&format!("index {name}"), is, problem);
    }
    let problems = findings.iter().filter(|f| f.problem.is_some()).count();
    context.printer.results(&findings, |out| {
        for finding in &findings {
            let mark = if finding.problem.is_some() { "!" } else { " " };
            writeln!(out, "{BOLD}{mark}{BOLD:#} {DIM}{:<12}{DIM:#}  {}", finding.what, finding.is)?;
            if let Some(problem) = &finding.problem {
                writeln!(out, "  {:<12}  {problem}", "")?;
            }
        }
        Ok(())
    })?;
    let broken = findings.iter().any(|f| f.problem.is_some() && f.what != "turnwise");
    match broken {
        true => Err(Error::Assertion(format!("{problems} of {} findings need attention", findings.len()))),
        false => Ok(()),
    }
}

fn auto_precision() -> Result<String> {
    let others = fastest_on_cpu(&ACCURATE)?;
    let default = fastest_on_cpu(&Precision::ALL)?;
    Ok(format!("{default} for {}, {others} for other models,", encoders::DEFAULT_MODEL))
}

fn gpu_features() -> String {
    let built = [("cuda", cfg!(feature = "cuda")), ("metal", cfg!(feature = "metal"))];
    let names: Vec<&str> = built.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    if names.is_empty() { "without GPU support".to_owned() } else { format!("with {}", names.join(", ")) }
}

fn default_model(context: &Context<'_>) -> String {
    match context.model(encoders::DEFAULT_MODEL) {
        Ok(found) => format!("{} in {}", found.name, found.path.display()),
        Err(_) => format!("{} is not installed; `turnwise model pull` downloads it", encoders::DEFAULT_MODEL),
    }
}

/// Writes a small file in a folder, flushes it to disk and removes it. Returns the time of writing and flushing in
/// milliseconds.
fn try_folder(folder: &Path) -> Result<f64> {
    let existed = folder.is_dir();
    let write = || -> std::io::Result<f64> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!(".doctor-{}", std::process::id()));
        let started = Instant::now();
        let mut file = fs::File::create(&path)?;
        let written = file.write_all(&[7; 4096]).and_then(|()| file.sync_all());
        let took = started.elapsed().as_secs_f64() * 1e3;
        fs::remove_file(&path)?;
        written.map(|()| took)
    };
    let outcome = write().map_err(|source| Error::Io { action: "write in", path: folder.to_owned(), source });
    if !existed {
        let _ = fs::remove_dir(folder);
    }
    outcome
}

fn state_of(root: &Path) -> (String, Option<String>) {
    match Snapshot::open(root) {
        Err(e) => (String::new(), Some(format!("{e}; {}", e.hint().unwrap_or_default()))),
        Ok(snapshot) => {
            let busy = match Manifest::exists(root).then(|| WriterLock::acquire(root, "turnwise doctor")) {
                Some(Err(Error::Busy { holder, .. })) => format!(", being written by {holder}"),
                _ => String::new(),
            };
            let totals = snapshot.totals();
            let size = bytes(files::folder_bytes(root));
            (format!("{} dialogues, {} turns, {size}{busy}", totals.dialogues, totals.turns), None)
        }
    }
}

/// Returns the name of the processor and its vector instructions.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    format!("{}, {}", line.map_or("unknown", |(_, name)| name.trim()), simd())
}

#[cfg(target_arch = "x86_64")]
fn simd() -> &'static str {
    let levels = [
        (SimdLevel::Amx.available(), "AVX-512 with AMX"),
        (is_x86_feature_detected!("avx512vnni"), "AVX-512 with VNNI"),
        (is_x86_feature_detected!("avx512f"), "AVX-512"),
        (is_x86_feature_detected!("avx2"), "AVX2"),
    ];
    levels.into_iter().find(|(available, _)| *available).map_or("SSE2", |(_, name)| name)
}

#[cfg(not(target_arch = "x86_64"))]
fn simd() -> &'static str {
    if cfg!(target_arch = "aarch64") { "NEON" } else { "no vector extensions known" }
}
