//! Load for a server that answers searches over HTTP: at a rate, as much as it takes, or beside slow connections.
//! `benchmarks/serve/compare.py` runs it; by itself:
//!
//!     cargo bench --bench serve -- flood 127.0.0.1:7700 bodies.jsonl --seconds 10
//!
//! A line of the file is the body of a `POST /v1/search`. What comes out is a line of JSON.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod client;

use std::{
    cell::{Cell, RefCell},
    fs,
    net::SocketAddr,
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

use clap::{Parser, Subcommand};
use client::{Connection, Slow, Target};
use serde_json::{Value, json};
use tokio::{
    task::{LocalSet, spawn_local},
    time::{sleep, sleep_until},
};

/// Between one slow connection and the next.
const STAGGER: Duration = Duration::from_millis(10);

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    way: Way,
    /// The server
    #[arg(global = true, default_value = "127.0.0.1:7700")]
    address: SocketAddr,
    /// A body a line
    #[arg(global = true, default_value = "bodies.jsonl")]
    bodies: PathBuf,
    #[arg(long, global = true, default_value_t = 10.0)]
    seconds: f64,
    #[arg(long, global = true, default_value = "/v1/search")]
    path: String,
    /// `cargo bench` says so
    #[arg(long, global = true, hide = true)]
    bench: bool,
}

#[derive(Subcommand)]
enum Way {
    /// So many requests a second, whether the ones before were answered or not
    Paced {
        #[arg(long, default_value_t = 50.0)]
        rate: f64,
        /// Connections that are slow meanwhile
        #[arg(long, default_value_t = 0)]
        slow: usize,
        /// Connections that are fast, each taken in turn
        #[arg(long, default_value_t = 16)]
        connections: usize,
    },
    /// Each connection asks again as soon as it is answered
    Flood {
        #[arg(long, default_value_t = 8)]
        connections: usize,
        /// So many requests, in place of so many seconds
        #[arg(long)]
        requests: Option<usize>,
        /// A process whose memory is looked at ten times meanwhile
        #[arg(long)]
        pid: Option<u32>,
    },
}

/// What came of the requests.
#[derive(Default)]
struct Seen {
    millis: RefCell<Vec<f64>>,
    failed: Cell<usize>,
    refused: Cell<usize>,
}

impl Seen {
    fn add(&self, status: std::io::Result<u16>, took: Duration) -> bool {
        match status {
            Ok(200) => self.millis.borrow_mut().push(1e3 * took.as_secs_f64()),
            Ok(429) => self.refused.set(self.refused.get() + 1),
            _ => self.failed.set(self.failed.get() + 1),
        }
        status.is_ok()
    }

    fn told(&self, seconds: f64) -> Value {
        let mut millis = self.millis.take();
        millis.sort_by(f64::total_cmp);
        let at = |part: f64| {
            millis.get(((millis.len() as f64 * part) as usize).min(millis.len().saturating_sub(1)))
        };
        json!({
            "answered": millis.len(), "failed": self.failed.get(), "refused": self.refused.get(), "seconds": seconds,
            "a_second": millis.len() as f64 / seconds,
            "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "most": millis.last(),
        })
    }
}

fn main() {
    let args = Args::parse();
    let text = fs::read_to_string(&args.bodies).unwrap_or_else(|e| panic!("{}: {e}", args.bodies.display()));
    let bodies: Rc<[String]> = text.lines().map(str::to_owned).collect();
    assert!(!bodies.is_empty(), "{} is empty", args.bodies.display());
    let target = Target { address: args.address, path: args.path };
    let time = Duration::from_secs_f64(args.seconds);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let told = LocalSet::new().block_on(&runtime, async {
        match args.way {
            Way::Paced { rate, slow, connections } => {
                paced(&target, bodies, rate, time, slow, connections).await
            }
            Way::Flood { connections, requests, pid } => {
                flood(&target, bodies, connections, requests.ok_or(time), pid).await
            }
        }
    });
    println!("{told}");
}

/// A request waits for its connection where that still waits for the answer before; its time runs from when it was due.
async fn paced(
    target: &Target,
    bodies: Rc<[String]>,
    rate: f64,
    time: Duration,
    slow: usize,
    connections: usize,
) -> Value {
    let open = Rc::new(Cell::new(0));
    for n in 0..slow {
        let (target, open, bodies) = (target.clone(), open.clone(), bodies.clone());
        spawn_local(async move {
            // Not all in one moment: their own searches are not what is looked at. Again when the server has enough.
            sleep(STAGGER * n as u32).await;
            loop {
                open.set(open.get() + 1);
                let _ = Slow::of(n).be(&target, &bodies[n % bodies.len()]).await;
                open.set(open.get() - 1);
                sleep(Duration::from_millis(100)).await;
            }
        });
    }
    if slow > 0 {
        sleep(STAGGER * slow as u32 + Duration::from_secs(2)).await;
    }
    let open_before = open.get();
    let (seen, mut lanes) = (Rc::new(Seen::default()), Vec::new());
    for _ in 0..connections {
        lanes.push(Rc::new(tokio::sync::Mutex::new(Connection::open(target).await.unwrap())));
    }
    let begun = tokio::time::Instant::now();
    let mut asked = Vec::new();
    for n in 0..(rate * time.as_secs_f64()) as usize {
        let due = begun + Duration::from_secs_f64(n as f64 / rate);
        sleep_until(due).await;
        let (seen, lane, bodies, target) =
            (seen.clone(), lanes[n % lanes.len()].clone(), bodies.clone(), target.clone());
        asked.push(spawn_local(async move {
            let mut connection = lane.lock().await;
            let status = connection.ask(&bodies[n % bodies.len()]).await;
            if !seen.add(status, due.elapsed())
                && let Ok(new) = Connection::open(&target).await
            {
                *connection = new;
            }
        }));
    }
    for asked in asked {
        asked.await.unwrap();
    }
    let mut told = seen.told(begun.elapsed().as_secs_f64());
    told["slow"] = json!([open_before, open.get()]);
    told
}

/// `until`: so many requests, or so long.
async fn flood(
    target: &Target,
    bodies: Rc<[String]>,
    connections: usize,
    until: Result<usize, Duration>,
    pid: Option<u32>,
) -> Value {
    let (seen, next, memory) =
        (Rc::new(Seen::default()), Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    let begun = Instant::now();
    let mut lanes = Vec::new();
    for _ in 0..connections {
        let (target, bodies, seen, next, memory) =
            (target.clone(), bodies.clone(), seen.clone(), next.clone(), memory.clone());
        lanes.push(spawn_local(async move {
            let mut connection = Connection::open(&target).await.unwrap();
            loop {
                let n: usize = next.get();
                match until {
                    Ok(requests) if n >= requests => break,
                    Err(time) if begun.elapsed() >= time => break,
                    _ => next.set(n + 1),
                }
                if let (Some(pid), Ok(requests)) = (pid, until)
                    && n.is_multiple_of((requests / 10).max(1))
                {
                    memory.borrow_mut().push(resident(pid));
                }
                let asked = Instant::now();
                let status = connection.ask(&bodies[n % bodies.len()]).await;
                if !seen.add(status, asked.elapsed()) {
                    connection = Connection::open(&target).await.unwrap();
                }
            }
        }));
    }
    for lane in lanes {
        lane.await.unwrap();
    }
    let mut told = seen.told(begun.elapsed().as_secs_f64());
    if let Some(pid) = pid {
        memory.borrow_mut().push(resident(pid));
        told["memory"] = json!(memory.take());
    }
    told
}

/// MiB of its own that a process has in memory, as Linux tells it; files that it has mapped not counted.
fn resident(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok())
        .map_or(f64::NAN, |kib| kib / 1024.0)
}
