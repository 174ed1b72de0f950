//! Header fields of a request, kept after the request is gone.

use axum::http::HeaderMap;

/// A request's header fields in one piece of memory: holding on to the parsed map would hold
/// on to the connection's read buffer, which may be far larger.
#[derive(Debug, Default)]
pub struct HeaderBytes {
    text: Vec<u8>,
    /// Ends of name, value, name, value, ... in `text`.
    ends: Vec<u32>,
}

impl HeaderBytes {
    pub fn new(headers: &HeaderMap) -> Self {
        let mut kept =
            Self { text: Vec::with_capacity(512), ends: Vec::with_capacity(2 * headers.len()) };
        for (name, value) in headers {
            kept.push(name.as_str().as_bytes());
            kept.push(value.as_bytes());
        }
        kept
    }

    pub fn bytes(&self) -> usize {
        self.text.len() + size_of_val(self.ends.as_slice())
    }

    fn push(&mut self, piece: &[u8]) {
        self.text.extend_from_slice(piece);
        self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
    }

    /// Names and values; repeats of a name stand together, in order. What is no UTF-8 is replaced.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let mut start = 0;
        let mut piece = |end: u32| {
            let end = end as usize;
            let text = String::from_utf8_lossy(&self.text[start..end]).into_owned();
            start = end;
            text
        };
        let ends = self.ends.chunks_exact(2);
        ends.map(|pair| (piece(pair[0]), piece(pair[1]))).collect()
    }
}
