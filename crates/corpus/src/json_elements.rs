//! Streaming reader for the elements of one large JSON document.
//!
//! Many corpora are one JSON array or object of many megabytes. The reader finds the boundaries of the values at a
//! given nesting depth without parsing the values. It holds only one value in memory at a time.

use std::io::{self, BufRead};

/// One value of a JSON document, not yet parsed.
#[derive(Debug, PartialEq, Eq)]
pub struct Element {
    /// The path of keys to the value, outermost first. The key of an array element is its index in decimal.
    pub keys: Vec<String>,
    /// The line where the value starts, counted from 1.
    pub line: u64,
    /// JSON text of the value.
    pub json: Vec<u8>,
}

/// Error while reading the next value.
#[derive(Debug)]
pub enum ElementError {
    /// The value is longer than `limit` bytes. It was skipped, and reading continues.
    TooLong { keys: Vec<String>, line: u64, bytes: u64, limit: usize },
    /// The document is invalid JSON, ends early or is nested too deeply. No more values follow.
    Broken { line: u64, what: String },
    /// The stream failed. No more values follow.
    Stream { line: u64, source: io::Error },
}

/// Iterator over the values at one nesting depth of a JSON document. The values at depth 1 are the members of the
/// outermost array or object. Scalars at smaller depths are skipped.
pub struct Elements<R> {
    bytes: Bytes<R>,
    depth: usize,
    limit: usize,
    /// The arrays and objects that contain the next value, outermost first.
    open: Vec<Container>,
    started: bool,
    ended: bool,
}

#[derive(Debug)]
struct Container {
    object: bool,
    /// The current key or array index.
    key: String,
    position: usize,
    empty: bool,
}

const EARLY_END: &str = "the file ends in the middle of a JSON value";

/// Maximum nesting depth within a value. A document with deeper nesting is probably damaged or malicious.
const MAX_DEPTH: usize = 256;

impl<R: BufRead> Elements<R> {
    /// Creates an iterator over the values at `depth`. A depth of 0 is treated as 1. For a value longer than `limit`
    /// bytes, the iterator returns an error.
    pub fn at_depth(stream: R, depth: usize, limit: usize) -> Self {
        let bytes = Bytes { stream, line: 1 };
        Elements { bytes, depth: depth.max(1), limit, open: Vec::new(), started: false, ended: false }
    }

    fn keys(&self) -> Vec<String> {
        self.open.iter().map(|c| c.key.clone()).collect()
    }

    fn step(&mut self) -> Result<Option<Element>, ElementError> {
        if !self.started {
            match self.bytes.skip_space()? {
                Some(b'[') => self.enter(false),
                Some(b'{') => self.enter(true),
                Some(b) => return Err(self.bytes.unexpected("`[` or `{`", b)),
                None => return Err(self.bytes.broken("the file is empty")),
            }
            self.started = true;
        }
        loop {
            let Some(top) = self.open.last_mut() else {
                self.ended = true;
                return match self.bytes.skip_space()? {
                    None => Ok(None),
                    Some(b) => Err(self
                        .bytes
                        .broken(format!("unexpected {} after the end of the document", show(b)))),
                };
            };
            let mut b = self.bytes.need()?;
            if b == if top.object { b'}' } else { b']' } {
                self.open.pop();
                continue;
            }
            if !top.empty {
                if b != b',' {
                    let wanted = if top.object { "`,` or `}`" } else { "`,` or `]`" };
                    return Err(self.bytes.unexpected(wanted, b));
                }
                b = self.bytes.need()?;
                top.position += 1;
            }
            top.empty = false;
            if top.object {
                if b != b'"' {
                    return Err(self.bytes.unexpected("a key", b));
                }
                let mut key = vec![b'"'];
                self.bytes.string(&mut |b| key.push(b))?;
                top.key =
                    serde_json::from_slice(&key).map_err(|_| self.bytes.broken("a key is not valid JSON"))?;
                match self.bytes.need()? {
                    b':' => b = self.bytes.need()?,
                    other => return Err(self.bytes.unexpected("`:`", other)),
                }
            } else {
                top.key = top.position.to_string();
            }
            if self.open.len() == self.depth {
                return self.take(b).map(Some);
            }
            match b {
                b'[' | b'{' => self.enter(b == b'{'),
                _ => self.bytes.value(b, &mut |_| {})?,
            }
        }
    }

    fn enter(&mut self, object: bool) {
        self.open.push(Container { object, key: String::new(), position: 0, empty: true });
    }

    fn take(&mut self, first: u8) -> Result<Element, ElementError> {
        let line = self.bytes.line;
        let limit = self.limit;
        let mut json = Vec::new();
        let mut length = 0u64;
        self.bytes.value(first, &mut |b| {
            length += 1;
            if length <= limit as u64 {
                json.push(b);
            }
        })?;
        if length > limit as u64 {
            return Err(ElementError::TooLong { keys: self.keys(), line, bytes: length, limit });
        }
        Ok(Element { keys: self.keys(), line, json })
    }
}

impl<R: BufRead> Iterator for Elements<R> {
    type Item = Result<Element, ElementError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let element = self.step();
        self.ended |= matches!(element, Err(ElementError::Broken { .. } | ElementError::Stream { .. }));
        element.transpose()
    }
}

fn show(b: u8) -> String {
    if b.is_ascii_graphic() { format!("`{}`", b as char) } else { format!("byte 0x{b:02x}") }
}

/// Reader of single bytes that counts lines.
struct Bytes<R> {
    stream: R,
    line: u64,
}

impl<R: BufRead> Bytes<R> {
    fn broken(&self, what: impl Into<String>) -> ElementError {
        ElementError::Broken { line: self.line, what: what.into() }
    }

    fn unexpected(&self, wanted: &str, found: u8) -> ElementError {
        self.broken(format!("expected {wanted}, found {}", show(found)))
    }

    fn peek(&mut self) -> Result<Option<u8>, ElementError> {
        loop {
            match self.stream.fill_buf() {
                Ok(bytes) => return Ok(bytes.first().copied()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(ElementError::Stream { line: self.line, source }),
            }
        }
    }

    fn bump(&mut self, b: u8) {
        self.line += u64::from(b == b'\n');
        self.stream.consume(1);
    }

    /// Consumes and returns the next byte of a value, and passes the byte to `sink`.
    fn take(&mut self, sink: &mut dyn FnMut(u8)) -> Result<u8, ElementError> {
        let b = self.peek()?.ok_or_else(|| self.broken(EARLY_END))?;
        self.bump(b);
        sink(b);
        Ok(b)
    }

    fn skip_space(&mut self) -> Result<Option<u8>, ElementError> {
        while let Some(b) = self.peek()? {
            self.bump(b);
            if !b.is_ascii_whitespace() {
                return Ok(Some(b));
            }
        }
        Ok(None)
    }

    fn need(&mut self) -> Result<u8, ElementError> {
        self.skip_space()?.ok_or_else(|| self.broken(EARLY_END))
    }

    /// Reads the rest of a string up to its closing quote. The opening quote is already consumed.
    fn string(&mut self, sink: &mut dyn FnMut(u8)) -> Result<(), ElementError> {
        loop {
            match self.take(sink)? {
                b'"' => return Ok(()),
                b'\\' => _ = self.take(sink)?,
                _ => {}
            }
        }
    }

    /// Reads a value whose first byte is already consumed. Finds the end of the value without validating the JSON.
    fn value(&mut self, first: u8, sink: &mut dyn FnMut(u8)) -> Result<(), ElementError> {
        sink(first);
        match first {
            b'"' => return self.string(sink),
            b'{' | b'[' => {}
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                while let Some(b) = self.peek()? {
                    if b.is_ascii_whitespace() || matches!(b, b',' | b']' | b'}') {
                        break;
                    }
                    self.bump(b);
                    sink(b);
                }
                return Ok(());
            }
            other => return Err(self.unexpected("a value", other)),
        }
        let mut depth = 1usize;
        while depth > 0 {
            match self.take(sink)? {
                b'"' => self.string(sink)?,
                b'{' | b'[' => {
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return Err(self.broken(format!("JSON is nested deeper than {MAX_DEPTH} levels")));
                    }
                }
                b'}' | b']' => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(json: &str, depth: usize, limit: usize) -> Vec<String> {
        Elements::at_depth(io::BufReader::with_capacity(2, json.as_bytes()), depth, limit)
            .map(|e| match e {
                Ok(e) => format!("{} {} {}", e.keys.join("/"), e.line, String::from_utf8_lossy(&e.json)),
                Err(ElementError::TooLong { line, bytes, .. }) => format!("long {line} {bytes}"),
                Err(ElementError::Broken { line, what }) => format!("broken {line} {what}"),
                Err(ElementError::Stream { line, .. }) => format!("stream {line}"),
            })
            .collect()
    }

    #[test]
    fn members_of_arrays_and_objects_come_with_key_and_line() {
        assert_eq!(all("[1, {\"a\":\"]}\"},\n \"x\"]", 1, 99), ["0 1 1", "1 1 {\"a\":\"]}\"}", "2 2 \"x\""]);
        assert_eq!(all("{\"k\\\"1\": [1,2],\n\"k2\":null}", 1, 99), ["k\"1 1 [1,2]", "k2 2 null"]);
        assert_eq!(all("[]", 1, 99), Vec::<String>::new());
        assert_eq!(all(" { } ", 1, 99), Vec::<String>::new());
    }

    #[test]
    fn deeper_values_have_the_full_path_of_keys() {
        assert_eq!(
            all(r#"{"v":1,"d":{"x":[{},{}],"y":[3]}}"#, 3, 99),
            ["d/x/0 1 {}", "d/x/1 1 {}", "d/y/0 1 3"]
        );
    }

    #[test]
    fn an_oversized_value_is_skipped_and_invalid_json_ends_reading() {
        assert_eq!(all("[\"0123456789\",7]", 1, 5), ["long 1 12", "1 1 7"]);
        assert_eq!(
            all("[1,\n{\"a\":", 1, 99),
            ["0 1 1", "broken 2 the file ends in the middle of a JSON value"]
        );
        assert_eq!(all("[1 2]", 1, 99), ["0 1 1", "broken 1 expected `,` or `]`, found `2`"]);
        assert_eq!(all("", 1, 99), ["broken 1 the file is empty"]);
        let deep = "[".repeat(100_000);
        assert_eq!(all(&deep, 1, 9).last().map(|s| s.contains("deeper than 256")), Some(true));
    }
}
