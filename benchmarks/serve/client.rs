//! A connection that asks, takes the answer and stays open; and those that take their time.

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

/// The way to a server.
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

/// An open connection.
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

    /// Asks, and reads the answer to its end; gives its status.
    pub async fn ask(&mut self, body: &str) -> Result<u16> {
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
            return Err(Error::other("an answer without a status or a length"));
        };
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body).await?;
        Ok(status)
    }
}

/// How a connection is slow.
#[derive(Clone, Copy, Debug)]
pub enum Slow {
    /// Says its head letter by letter.
    Says,
    /// Takes its answer letter by letter, into as small a buffer as there may be.
    Reads,
    /// Asks whether the server is there, and stays.
    Stays,
}

impl Slow {
    /// Each kind in turn.
    pub fn of(n: usize) -> Self {
        [Slow::Says, Slow::Reads, Slow::Stays][n % 3]
    }

    /// Goes on until the server has enough of it.
    pub async fn be(self, target: &Target, body: &str) -> Result<()> {
        let socket = TcpSocket::new_v4()?;
        if matches!(self, Slow::Reads) {
            socket.set_recv_buffer_size(1)?;
        }
        let mut stream = socket.connect(target.address).await?;
        let request = target.request(body);
        match self {
            Slow::Says => {
                for letter in request.chunks(1) {
                    stream.write_all(letter).await?;
                    sleep(Duration::from_millis(500)).await;
                }
                Ok(())
            }
            Slow::Reads => {
                let mut letter = [0];
                stream.write_all(&request).await?;
                while stream.read(&mut letter).await? > 0 {
                    sleep(Duration::from_millis(100)).await;
                }
                Ok(())
            }
            Slow::Stays => {
                let asked = format!("GET /health/live HTTP/1.1\r\nHost: {}\r\n\r\n", target.address);
                stream.write_all(asked.as_bytes()).await?;
                let mut some = vec![0; 4096];
                while stream.read(&mut some).await? > 0 {}
                Ok(())
            }
        }
    }
}
