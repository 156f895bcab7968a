//! Load generator for a search server over HTTP. It sends requests at a fixed rate, optionally with additional slow
//! connections, or as fast as the server answers. `benchmarks/serve/compare.py` runs it. To run it alone:
//!
//!     cargo bench --bench serve -- flood 127.0.0.1:7700 bodies.jsonl --seconds 10
//!
//! Each line of the file is the body of a request `POST /v1/search`. Prints the result as one line of JSON.

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

/// Delay between the starts of two successive slow connections.
const STAGGER: Duration = Duration::from_millis(10);

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    way: Way,
    /// Address of the server
    #[arg(global = true, default_value = "127.0.0.1:7700")]
    address: SocketAddr,
    /// File with one request body per line
    #[arg(global = true, default_value = "bodies.jsonl")]
    bodies: PathBuf,
    #[arg(long, global = true, default_value_t = 10.0)]
    seconds: f64,
    #[arg(long, global = true, default_value = "/v1/search")]
    path: String,
    /// Flag that `cargo bench` adds; it has no effect
    #[arg(long, global = true, hide = true)]
    bench: bool,
}

#[derive(Subcommand)]
enum Way {
    /// Send requests at a fixed rate, whether or not earlier ones have been answered
    Paced {
        #[arg(long, default_value_t = 50.0)]
        rate: f64,
        /// Number of additional slow connections
        #[arg(long, default_value_t = 0)]
        slow: usize,
        /// Number of normal connections, used in turn
        #[arg(long, default_value_t = 16)]
        connections: usize,
    },
    /// Send the next request on each connection as soon as the last one is answered
    Flood {
        #[arg(long, default_value_t = 8)]
        connections: usize,
        /// Number of requests, instead of a duration
        #[arg(long)]
        requests: Option<usize>,
        /// Id of a process whose memory is measured ten times
        #[arg(long)]
        pid: Option<u32>,
    },
}

/// Results of the requests: the response times of successful requests (status 200) in milliseconds, the number of
/// refused requests (status 429), and the number of all other requests.
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

    fn report(&self, seconds: f64) -> Value {
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
    let report = LocalSet::new().block_on(&runtime, async {
        match args.way {
            Way::Paced { rate, slow, connections } => {
                paced(&target, bodies, rate, time, slow, connections).await
            }
            Way::Flood { connections, requests, pid } => {
                flood(&target, bodies, connections, requests.ok_or(time), pid).await
            }
        }
    });
    println!("{report}");
}

/// Sends `rate` requests per second. Returns the results, and the numbers of open slow connections before and after.
///
/// A request waits if its connection is still busy. The waiting time is part of its response time.
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
            // The starts are staggered, so that the server does not have to process many of these searches at once. If
            // a connection ends, it is opened again.
            sleep(STAGGER * n as u32).await;
            loop {
                open.set(open.get() + 1);
                let _ = Slow::of(n).run(&target, &bodies[n % bodies.len()]).await;
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
    let mut sent = Vec::new();
    for n in 0..(rate * time.as_secs_f64()) as usize {
        let due = begun + Duration::from_secs_f64(n as f64 / rate);
        sleep_until(due).await;
        let (seen, lane, bodies, target) =
            (seen.clone(), lanes[n % lanes.len()].clone(), bodies.clone(), target.clone());
        sent.push(spawn_local(async move {
            let mut connection = lane.lock().await;
            let status = connection.send(&bodies[n % bodies.len()]).await;
            if !seen.add(status, due.elapsed())
                && let Ok(new) = Connection::open(&target).await
            {
                *connection = new;
            }
        }));
    }
    for request in sent {
        request.await.unwrap();
    }
    let mut report = seen.report(begun.elapsed().as_secs_f64());
    report["slow"] = json!([open_before, open.get()]);
    report
}

/// Sends requests as fast as the server answers, one at a time on each connection. Returns the results.
///
/// `until` is the number of requests (`Ok`) or the duration (`Err`).
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
                let started = Instant::now();
                let status = connection.send(&bodies[n % bodies.len()]).await;
                if !seen.add(status, started.elapsed()) {
                    connection = Connection::open(&target).await.unwrap();
                }
            }
        }));
    }
    for lane in lanes {
        lane.await.unwrap();
    }
    let mut report = seen.report(begun.elapsed().as_secs_f64());
    if let Some(pid) = pid {
        memory.borrow_mut().push(resident(pid));
        report["memory"] = json!(memory.take());
    }
    report
}

/// Returns the anonymous resident memory of a Linux process in MiB, without mapped files. NaN if it cannot be read.
fn resident(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok())
        .map_or(f64::NAN, |kib| kib / 1024.0)
}
