//! HTTP client for load tests, with keep-alive connections and deliberately slow connections.

use std::{
    io::{Error, ErrorKind, Result},
    net::SocketAddr,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpSocket, TcpStream},
    time::sleep,
};

/// Address of a server and path of its search endpoint.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: SocketAddr,
    pub path: String,
}

impl Target {
    fn request(&self, body: &str) -> Vec<u8> {
        let Target { address, path } = self;
        let length = body.len();
        format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
            .into_bytes()
    }
}

/// Keep-alive connection to a server.
pub struct Connection {
    stream: BufReader<TcpStream>,
    target: Target,
    line: String,
    body: Vec<u8>,
}

impl Connection {
    pub async fn open(target: &Target) -> Result<Self> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        let stream = BufReader::new(stream);
        Ok(Connection { stream, target: target.clone(), line: String::new(), body: Vec::new() })
    }

    /// Sends a request, reads the complete response, and returns its status code.
    ///
    /// Returns an error if the connection breaks, or if the response has no status or no `Content-Length`.
    pub async fn send(&mut self, body: &str) -> Result<u16> {
        self.stream.get_mut().write_all(&self.target.request(body)).await?;
        let (mut status, mut length) = (None, None);
        loop {
            self.line.clear();
            if self.stream.read_line(&mut self.line).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let line = self.line.trim_end();
            if line.is_empty() {
                break;
            }
            match line.split_once(':') {
                None => status = line.split(' ').nth(1).and_then(|code| code.parse().ok()),
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().ok();
                }
                Some(_) => {}
            }
        }
        let (Some(status), Some(length)) = (status, length) else {
            return Err(Error::other("the response has no status or no content length"));
        };
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body).await?;
        Ok(status)
    }
}

/// Kind of slow connection.
#[derive(Clone, Copy, Debug)]
pub enum Slow {
    /// Sends the request byte by byte, at most two bytes per second.
    Writer,
    /// Reads the response byte by byte, at most ten bytes per second, with the smallest possible receive buffer.
    Reader,
    /// Sends a health check, then nothing more, and keeps the connection open.
    Idle,
}

impl Slow {
    /// Returns the kind of the slow connection number `n`. The three kinds alternate.
    pub fn of(n: usize) -> Self {
        [Slow::Writer, Slow::Reader, Slow::Idle][n % 3]
    }

    /// Runs a slow connection until the server closes it, or until a `Writer` has sent its request.
    ///
    /// Returns an error if the connection breaks, or if the server has an IPv6 address.
    pub async fn run(self, target: &Target, body: &str) -> Result<()> {
        let socket = TcpSocket::new_v4()?;
        if matches!(self, Slow::Reader) {
            socket.set_recv_buffer_size(1)?;
        }
        let mut stream = socket.connect(target.address).await?;
        let request = target.request(body);
        match self {
            Slow::Writer => {
                for byte in request.chunks(1) {
                    stream.write_all(byte).await?;
                    sleep(Duration::from_millis(500)).await;
                }
                Ok(())
            }
            Slow::Reader => {
                let mut byte = [0];
                stream.write_all(&request).await?;
                while stream.read(&mut byte).await? > 0 {
                    sleep(Duration::from_millis(100)).await;
                }
                Ok(())
            }
            Slow::Idle => {
                let health = format!("GET /health/live HTTP/1.1\r\nHost: {}\r\n\r\n", target.address);
                stream.write_all(health.as_bytes()).await?;
                let mut buffer = vec![0; 4096];
                while stream.read(&mut buffer).await? > 0 {}
                Ok(())
            }
        }
    }
}
