//! Tests of the launchers in `examples/scale`: the Ray driver with killed workers, and the commands for Slurm and
//! Kubernetes.

use std::{fs, path::Path, process::Command};

use crate::{
    shards::{corpus, python, vectors},
    support::{Outcome, Turnwise},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const PROGRAM: &str = env!("CARGO_BIN_EXE_turnwise");

/// Returns a command with turnwise on its `PATH`, in the folder of the test and without settings of the environment.
fn command(t: &Turnwise, program: impl AsRef<Path>) -> Command {
    let as_ours = t.command(&[]);
    let mut command = Command::new(program.as_ref());
    for (name, value) in as_ours.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let folder = Path::new(PROGRAM).parent().unwrap().display();
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{folder}:{path}")).current_dir(t.path(""));
    command
}

#[track_caller]
fn ok(mut command: Command) -> Outcome {
    let outcome = Outcome::of(command.output().unwrap());
    assert_eq!(outcome.code, 0, "{outcome:?}");
    outcome
}

/// Checks that the shards are complete and that the assembled index equals a single `encode`.
#[track_caller]
fn assert_complete(t: &Turnwise, model: &str, shards: u64) {
    let done = t.json("encode --assemble shards -i x");
    assert_eq!((&done["rows"], &done["new"]), (&(120 + shards).into(), &121.into()), "{done}");
    t.ok("ingest -i whole in.jsonl --no-encode");
    t.ok(&format!("encode -i whole --model {model}"));
    assert_eq!(vectors(&t.path("indexes/x")), vectors(&t.path("indexes/whole")));
}

#[test]
fn a_ray_driver_with_killed_workers_creates_every_shard_once() {
    let Some(python) = python() else { return };
    let (t, model) = corpus(60);
    // A shard is slow enough that its worker can be killed before it is complete.
    let slow = t.path("slow");
    fs::write(&slow, format!("#!/bin/sh\nsleep 0.7\nexec {PROGRAM} \"$@\"\n")).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&slow).status().unwrap().success());
    let mut driver = command(&t, python);
    driver.arg(Path::new(ROOT).join("tests/scale/ray_kill.py")).arg(&slow);
    driver.args(["10".as_ref(), t.path("shards").as_os_str(), t.path("in.jsonl").as_os_str()]);
    driver.args(["--model", &model]);
    let text = ok(driver);
    assert!(text.out.contains("2 workers killed, 10 shards: done"), "{text:?}");
    assert_complete(&t, &model, 10);
}

#[test]
fn the_slurm_array_creates_every_shard() {
    let (t, model) = corpus(60);
    for task in 0..3 {
        let mut job = command(&t, Path::new(ROOT).join("examples/scale/slurm.sh"));
        job.env("SLURM_ARRAY_TASK_ID", task.to_string()).env("SLURM_CPUS_PER_TASK", "1");
        job.env("SHARDS", "3").env("INPUT", "in.jsonl").env("MODEL", &model);
        ok(job);
    }
    assert_complete(&t, &model, 3);
}

#[test]
fn the_kubernetes_job_creates_every_shard() {
    let (t, model) = corpus(60);
    let job = fs::read_to_string(Path::new(ROOT).join("examples/scale/kubernetes.yaml")).unwrap();
    let script = job.lines().find_map(|line| line.trim().strip_prefix("- exec ")).unwrap();
    assert!(job.contains("completions: 100") && job.contains("{ name: SHARDS, value: \"100\" }"));
    for pod in 0..3 {
        let mut container = command(&t, "sh");
        container.args(["-c", &format!("exec {script}")]).env("JOB_COMPLETION_INDEX", pod.to_string());
        container.env("SHARDS", "3").env("INPUT", "in.jsonl").env("PLACE", "shards").env("MODEL", &model);
        container.env("TURNWISE_PROGRESS", "false");
        ok(container);
    }
    assert_complete(&t, &model, 3);
}
