//! HTTP client for tests. It can also send invalid requests.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

use crate::support::{Started, Turnwise};

/// Server that runs in the folder of a test.
pub struct Server {
    started: Started,
    client: Client,
}

/// Client of a server. It sends no API key.
#[derive(Clone)]
pub struct Client {
    pub address: String,
}

impl std::ops::Deref for Server {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Response of a server.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Server {
    /// Starts the server on a free port.
    pub fn start(t: &Turnwise, line: &str) -> Self {
        let mut args: Vec<&str> = vec!["serve", "--port", "0"];
        args.extend(line.split_whitespace());
        Server::of(Started::spawn(t.command(&args)))
    }

    pub fn of(started: Started) -> Self {
        let line = started.wait_for_message("http://");
        let address = line.split("http://").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
        // An escape sequence follows the address.
        let address = address.split('\u{1b}').next().unwrap().to_owned();
        Server { started, client: Client { address } }
    }

    /// Stops the server with SIGTERM and returns its exit code.
    #[cfg(unix)]
    pub fn stop(mut self) -> i32 {
        let pid = self.started.pid().to_string();
        std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        self.started.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Client {
    /// Opens a connection.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends a request with these headers.
    pub fn ask(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        let mut stream = self.connect();
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|header| header.to_lowercase().starts_with("host:")) {
            head += &format!("Host: {}\r\n", self.address);
        }
        headers.iter().for_each(|header| head += &format!("{header}\r\n"));
        head += &format!("Connection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        // The server may close the connection before it has read a refused request.
        let _ = stream.write_all(body);
        answer(stream)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[], body.to_string().as_bytes())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.started.child.kill();
        let _ = self.started.child.wait();
    }
}

/// Reads a response. Without a `Content-Length`, reads until the connection is closed. Chunks are not decoded.
pub fn answer(stream: TcpStream) -> Answer {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "no response: {head}");
        if line == "\r\n" {
            break;
        }
        head += &line;
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = header(&head, "content-length").and_then(|n| n.parse().ok());
    let mut body = Vec::new();
    match length {
        Some(n) => {
            body.resize(n, 0);
            reader.read_exact(&mut body).unwrap();
        }
        None => {
            reader.read_to_end(&mut body).unwrap();
        }
    }
    Answer { status, head, body }
}

fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Checks the status and returns the JSON body.
    #[track_caller]
    pub fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}\n{}", self.head, String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Checks the status, and that the message or hint of the error contains each text. Returns the error.
    #[track_caller]
    pub fn says(&self, status: u16, texts: &[&str]) -> Value {
        let error = self.json(status)["error"].take();
        for text in texts {
            let outcome = format!("{} {}", error["message"], error["hint"]);
            assert!(outcome.contains(text), "`{text}` is not said: {error}");
        }
        error
    }
}
