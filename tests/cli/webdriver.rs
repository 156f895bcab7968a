//! Headless browser, controlled through chromedriver by the WebDriver protocol.

// Printing is allowed, because a skipped test prints the reason.
#![allow(clippy::print_stderr)]

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::http::Client;

const PATIENCE: Duration = Duration::from_secs(20);

/// A running browser. It is closed when it is dropped.
pub struct Browser {
    driver: Child,
    client: Client,
    session: String,
}

impl Browser {
    /// Starts a browser. Returns `None`, and prints the reason, if no browser is installed.
    pub fn start() -> Option<Self> {
        let started = Command::new("chromedriver")
            .args(["--port=0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut driver = match started {
            Ok(driver) => driver,
            Err(e) => {
                eprintln!("skipped: there is no chromedriver here ({e}); tests/browser.sh installs one");
                return None;
            }
        };
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines
            .find_map(|line| line.split_once("successfully on port ").map(|(_, port)| port.to_owned()))
            .unwrap();
        // The rest of the output is discarded, so that a full pipe does not block the program.
        thread::spawn(move || lines.for_each(drop));
        let port = port.trim_end_matches('.').split('.').next().unwrap();
        let mut browser = Browser {
            driver,
            client: Client { address: format!("127.0.0.1:{port}") },
            session: String::new(),
        };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--force-prefers-reduced-motion",
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let session = browser.client.post("/session", &wanted);
        if session.status != 200 {
            eprintln!("skipped: the browser does not start here: {}", session.text());
            return None;
        }
        browser.session = session.json(200)["value"]["sessionId"].as_str().unwrap().to_owned();
        Some(browser)
    }

    #[track_caller]
    fn post(&self, what: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{what}", self.session);
        self.client.post(&path, body).json(200)["value"].take()
    }

    #[track_caller]
    pub fn open(&self, address: &str) {
        self.post("url", &json!({"url": address}));
    }

    pub fn resize(&self, width: u32, height: u32) {
        self.post("window/rect", &json!({"width": width, "height": height}));
    }

    /// Runs a script and returns its result.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.post("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until an expression is true. Errors count as false, because elements may not exist yet.
    #[track_caller]
    pub fn until(&self, expression: &str) {
        let start_time = Instant::now();
        let script = format!("try {{ return Boolean({expression}) }} catch (e) {{ return String(e) }}");
        loop {
            let answer = self.run(&script);
            if answer == true {
                return;
            }
            assert!(
                start_time.elapsed() < PATIENCE,
                "not so in time ({answer}): {expression}\n{}",
                self.run("return document.body.innerText")
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn element(&self, selector: &str) -> String {
        let found = self.post("element", &json!({"using": "css selector", "value": selector}));
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.post(&format!("element/{element}/click"), &json!({}));
    }

    /// Types into an element. `\u{e007}` is Enter, `\u{e00c}` Escape, `\u{e014}` the arrow to the right.
    #[track_caller]
    pub fn keys(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.post(&format!("element/{element}/value"), &json!({"text": text}));
    }

    /// Returns the errors in the browser's console since the last call.
    pub fn console_errors(&self) -> Vec<String> {
        let log = self.post("se/log", &json!({"type": "browser"}));
        let entries = log.as_array().unwrap().iter();
        entries.filter(|entry| entry["level"] == "SEVERE").map(|entry| entry["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            self.client.ask("DELETE", &format!("/session/{}", self.session), &[], b"");
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
