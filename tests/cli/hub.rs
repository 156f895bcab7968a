//! Fake Hugging Face hub on a local port, and small models.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::Turnwise;

/// Commit hash of every repository on this hub.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
pub const WEIGHTS: &str = "model.safetensors";

/// A request that the hub received.
#[derive(Debug, Clone, PartialEq)]
pub struct HubRequest {
    pub path: String,
    /// Position of the first requested byte, if only a part of the file is requested.
    pub from: Option<usize>,
    pub token: Option<String>,
}

/// Response to one request for the weights.
#[derive(Debug, Clone)]
pub enum Sent {
    /// Closes the connection after this number of bytes.
    Cut(usize),
    /// Sends this number of bytes, and the rest after a call of [`Hub::release`].
    Held(usize),
    /// Sends a different file.
    Other(Vec<u8>),
    Status(u16),
    /// Redirects to this address.
    Moved(String),
}

/// Fake Hugging Face hub with one repository.
pub struct Hub {
    pub address: String,
    state: Arc<State>,
}

struct State {
    repository: String,
    files: BTreeMap<String, Vec<u8>>,
    /// If set, every request for the model gets this status and error code.
    refusal: Option<(u16, &'static str)>,
    /// Number of upcoming requests that get status 503.
    failures: Mutex<usize>,
    weights: Mutex<VecDeque<Sent>>,
    released: AtomicBool,
    requests: Mutex<Vec<HubRequest>>,
}

impl Hub {
    pub fn new(repository: &str, files: BTreeMap<String, Vec<u8>>) -> Self {
        Hub::start(repository, files, None, 0)
    }

    pub fn refusing(repository: &str, status: u16, code: &'static str) -> Self {
        Hub::start(repository, BTreeMap::new(), Some((status, code)), 0)
    }

    pub fn failures(repository: &str, files: BTreeMap<String, Vec<u8>>, times: usize) -> Self {
        Hub::start(repository, files, None, times)
    }

    fn start(
        repository: &str,
        files: BTreeMap<String, Vec<u8>>,
        refusal: Option<(u16, &'static str)>,
        failures: usize,
    ) -> Self {
        let state = Arc::new(State {
            repository: repository.to_owned(),
            files,
            refusal,
            failures: Mutex::new(failures),
            weights: Mutex::default(),
            released: AtomicBool::new(false),
            requests: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                // Some tests close the connection early.
                thread::spawn(move || drop(state.serve(stream)));
            }
        });
        Hub { address, state }
    }

    /// Sets how the next requests for the weights are answered, one element per request.
    pub fn send_next(&self, sent: impl IntoIterator<Item = Sent>) {
        self.state.weights.lock().unwrap().extend(sent);
    }

    pub fn release(&self) {
        self.state.released.store(true, Ordering::SeqCst);
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<HubRequest> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Returns all requests for the weight file so far.
    pub fn weight_requests(&self) -> Vec<HubRequest> {
        self.requests().into_iter().filter(|a| a.path.ends_with(WEIGHTS)).collect()
    }

    /// Returns a command of the program that uses this hub.
    pub fn command(&self, t: &Turnwise, line: &str) -> Command {
        let mut command = t.command(&line.split_whitespace().collect::<Vec<_>>());
        command.env("HF_ENDPOINT", &self.address).env("HF_HUB_OFFLINE", "0");
        command
    }
}

impl State {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        loop {
            let first = lines.next().transpose()?.unwrap_or_default();
            let mut request = HubRequest {
                path: first.split(' ').nth(1).unwrap_or("").to_owned(),
                from: None,
                token: None,
            };
            for line in lines.by_ref() {
                let line = line?;
                if line.is_empty() {
                    break;
                }
                let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
                match name.to_lowercase().as_str() {
                    "range" => {
                        request.from =
                            value.strip_prefix("bytes=").and_then(|r| r.strip_suffix('-')?.parse().ok());
                    }
                    "authorization" => request.token = Some(value.to_owned()),
                    _ => {}
                }
            }
            self.requests.lock().unwrap().push(request.clone());
            // If the hub is used as a proxy, it answers the request itself.
            if first.starts_with("CONNECT ") {
                (&stream).write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
                continue;
            }
            return self.answer(&stream, &request);
        }
    }

    fn answer(&self, out: &TcpStream, request: &HubRequest) -> std::io::Result<()> {
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return respond(out, 503, "", b"");
        }
        drop(failures);
        if let Some((status, code)) = self.refusal {
            return respond(out, status, &format!("X-Error-Code: {code}\r\n"), b"{}");
        }
        if request.path == format!("/api/models/{}/revision/main?blobs=true", self.repository) {
            return respond(out, 200, "", self.listing().to_string().as_bytes());
        }
        let file = request.path.strip_prefix(&format!("/{}/resolve/{COMMIT}/", self.repository));
        let Some((name, bytes)) = file.and_then(|name| self.files.get_key_value(name)) else {
            return respond(out, 404, "X-Error-Code: EntryNotFound\r\n", b"");
        };
        let sent = if name == WEIGHTS { self.weights.lock().unwrap().pop_front() } else { None };
        let end = match sent {
            Some(Sent::Status(status)) => return respond(out, status, "", b""),
            Some(Sent::Moved(to)) => return respond(out, 302, &format!("Location: {to}\r\n"), b""),
            Some(Sent::Other(other)) => return respond(out, 200, "", &other),
            Some(Sent::Cut(end) | Sent::Held(end)) => end,
            None => bytes.len(),
        };
        let from = request.from.unwrap_or(0);
        if from >= bytes.len() && from > 0 {
            return respond(out, 416, "", b"");
        }
        let (status, range) = match request.from {
            Some(from) => {
                (206, format!("Content-Range: bytes {from}-{}/{}\r\n", bytes.len() - 1, bytes.len()))
            }
            None => (200, String::new()),
        };
        head(out, status, &range, bytes.len() - from)?;
        let mut out = out;
        out.write_all(&bytes[from..end.max(from)])?;
        if matches!(sent, Some(Sent::Held(_))) {
            while !self.released.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            out.write_all(&bytes[end..])?;
        }
        Ok(())
    }

    fn listing(&self) -> Value {
        let siblings: Vec<Value> = self
            .files
            .iter()
            .map(|(name, bytes)| match name.ends_with(".safetensors") || name.ends_with(".bin") {
                true => json!({
                    "rfilename": name, "size": bytes.len(), "blobId": "f".repeat(40),
                    "lfs": {"sha256": sha256(bytes), "size": bytes.len(), "pointerSize": 134},
                }),
                false => json!({"rfilename": name, "size": bytes.len(), "blobId": &sha256(bytes)[..40]}),
            })
            .collect();
        json!({"id": self.repository, "sha": COMMIT, "siblings": siblings})
    }
}

fn head(mut out: &TcpStream, status: u16, headers: &str, length: usize) -> std::io::Result<()> {
    write!(out, "HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n")
}

fn respond(mut out: &TcpStream, status: u16, headers: &str, body: &[u8]) -> std::io::Result<()> {
    head(out, status, headers, body.len())?;
    out.write_all(body)
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Returns the files of a valid model: BERT with one layer of width 4.
pub fn model() -> BTreeMap<String, Vec<u8>> {
    let config = json!({
        "model_type": "bert", "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 1,
        "intermediate_size": 8, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "vocab_size": 6,
        "max_position_embeddings": 16, "type_vocab_size": 2, "pad_token_id": 0,
    });
    let modules = json!([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]);
    let pooling = json!({"word_embedding_dimension": 4, "pooling_mode_mean_tokens": true});
    let sentence = json!({"max_seq_length": 12, "do_lower_case": false});
    let tokenizer = json!({"tokenizer_class": "BertTokenizer", "do_lower_case": true});
    [
        ("config.json", config.to_string().into_bytes()),
        ("modules.json", modules.to_string().into_bytes()),
        ("1_Pooling/config.json", pooling.to_string().into_bytes()),
        ("sentence_bert_config.json", sentence.to_string().into_bytes()),
        ("tokenizer_config.json", tokenizer.to_string().into_bytes()),
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n".to_vec()),
        ("README.md", b"not for an encoder".to_vec()),
        ("pytorch_model.bin", b"a pickle".to_vec()),
        (WEIGHTS, weights()),
    ]
    .into_iter()
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .collect()
}

fn weights() -> Vec<u8> {
    let linear = |name: &str, outputs: usize, inputs: usize| {
        [(format!("{name}.weight"), vec![outputs, inputs]), (format!("{name}.bias"), vec![outputs])]
    };
    let norm = |name: &str| [(format!("{name}.weight"), vec![4]), (format!("{name}.bias"), vec![4])];
    let mut tensors = Vec::new();
    for (name, rows) in [("word", 6), ("position", 16), ("token_type", 2)] {
        tensors.push((format!("embeddings.{name}_embeddings.weight"), vec![rows, 4]));
    }
    tensors.extend(norm("embeddings.LayerNorm"));
    for (name, outputs, inputs) in [
        ("attention.self.query", 4, 4),
        ("attention.self.key", 4, 4),
        ("attention.self.value", 4, 4),
        ("attention.output.dense", 4, 4),
        ("intermediate.dense", 8, 4),
        ("output.dense", 4, 8),
    ] {
        tensors.extend(linear(&format!("encoder.layer.0.{name}"), outputs, inputs));
    }
    tensors.extend(norm("encoder.layer.0.attention.output.LayerNorm"));
    tensors.extend(norm("encoder.layer.0.output.LayerNorm"));
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape) in tensors {
        let start = data.len();
        for n in 0..shape.iter().product::<usize>() {
            data.extend(((n % 7) as f32 / 7.0 - 0.4).to_le_bytes());
        }
        header.insert(name, json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}));
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    while !header.len().is_multiple_of(8) {
        header.push(b' ');
    }
    [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
}

/// Returns the files of a model with 4 MB of meaningless weights, for tests of interrupted downloads. The model cannot
/// be opened.
pub fn large_model() -> BTreeMap<String, Vec<u8>> {
    let mut files = model();
    let bytes = (0..1_000_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    files.insert(WEIGHTS.to_owned(), bytes);
    files
}

/// Returns the folder of a repository in the Hugging Face cache of the test.
pub fn cached(t: &Turnwise, repository: &str) -> PathBuf {
    t.path(".cache/huggingface/hub").join(format!("models--{}", repository.replace('/', "--")))
}
