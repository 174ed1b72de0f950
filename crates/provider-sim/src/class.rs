//! What a body says: above all, which kind of message it carries.
//!
//! Promise: a JSON object with a text field `class` is of that class; any other body is of the
//! class whose name, `otp` or `marketing`, stands first in its text; else it is `unknown`. The
//! judge reads the body because senders' headers are what a gateway may have changed.
//!
//! A body is never kept whole: beyond [`KEPT_BYTES`] it is searched as it passes.

use std::sync::Arc;

use memchr::memmem;

use crate::message::Message;

/// Of a JSON body longer than this no field is read: it is classified by its text only.
pub const KEPT_BYTES: usize = 256 * 1024;

const WORDS: [&str; 2] = ["otp", "marketing"];
/// Enough of the text already passed to see a word that two chunks share.
const OVERLAP: usize = "marketing".len() - 1;

#[derive(Debug, Default)]
pub struct Classifier {
    head: Vec<u8>,
    overflow: Option<Overflow>,
    cost_field: Option<Arc<str>>,
}

/// State for a body that outgrew `head`.
#[derive(Debug)]
struct Overflow {
    word: Option<&'static str>,
    tail: Vec<u8>,
}

impl Classifier {
    /// `cost_field`: the JSON field that says what a call costs.
    pub fn new(cost_field: Option<Arc<str>>) -> Self {
        Self { cost_field, ..Self::default() }
    }

    pub fn feed(&mut self, chunk: &[u8]) {
        if let Some(overflow) = &mut self.overflow {
            overflow.feed(chunk);
        } else if self.head.len() + chunk.len() <= KEPT_BYTES {
            self.head.extend_from_slice(chunk);
        } else {
            let mut overflow =
                Overflow { word: first_word(&self.head), tail: last_bytes(&self.head) };
            self.head = Vec::new();
            overflow.feed(chunk);
            self.overflow = Some(overflow);
        }
    }

    /// What the body says; no class when it names none.
    pub fn finish(self) -> Message {
        let (word, mut message) = match self.overflow {
            Some(overflow) => (overflow.word, Message::default()),
            None => {
                let message = Message::read(&self.head, self.cost_field.as_deref());
                let message = message.unwrap_or_default();
                if message.class.is_some() {
                    return message;
                }
                (first_word(&self.head), message)
            }
        };
        message.class = word.map(str::to_owned);
        message
    }
}

impl Overflow {
    fn feed(&mut self, chunk: &[u8]) {
        if self.word.is_some() {
            return;
        }
        self.tail.extend_from_slice(chunk);
        self.word = first_word(&self.tail);
        self.tail = last_bytes(&self.tail);
    }
}

fn first_word(text: &[u8]) -> Option<&'static str> {
    WORDS
        .into_iter()
        .filter_map(|word| Some((memmem::find(text, word.as_bytes())?, word)))
        .min()
        .map(|(_, word)| word)
}

fn last_bytes(text: &[u8]) -> Vec<u8> {
    text[text.len().saturating_sub(OVERLAP)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::NAME_CHARS;

    fn check(chunks: &[&[u8]], expected: Option<&str>) {
        let mut classifier = Classifier::default();
        for chunk in chunks {
            classifier.feed(chunk);
        }
        assert_eq!(classifier.finish().class.as_deref(), expected);
    }

    #[test]
    fn the_json_field_decides() {
        check(&[br#"{"text":"marketing","class":"otp"}"#], Some("otp"));
        check(&[br#" {"class":"bul"#, br#"k"}"#], Some("bulk"));
    }

    #[test]
    fn without_the_field_the_first_word_decides() {
        check(&[br#"{"to":"1","text":"marketing, not otp"}"#], Some("marketing"));
        check(&[b"class=otp&kind=marketing"], Some("otp"));
        check(&[br#"{"class":7,"text":"otp"}"#], Some("otp"));
        check(&[br#"["marketing"]"#], Some("marketing"));
    }

    #[test]
    fn neither_is_unknown() {
        check(&[], None);
        check(&[b"hello"], None);
        check(&[br#"{"class":null}"#], None);
        check(&[b"\xff\xfe\x00"], None);
    }

    #[test]
    fn a_long_class_name_is_cut() {
        let body = format!(r#"{{"class":"{}"}}"#, "é".repeat(100));
        check(&[body.as_bytes()], Some(&"é".repeat(NAME_CHARS)));
    }

    #[test]
    fn a_long_body_is_searched_as_it_passes() {
        let filler = vec![b'x'; KEPT_BYTES - 4];
        check(&[&filler, b"xxxxxmark", b"eting otp"], Some("marketing"));
        check(&[&filler, b"xxmark", b"eti", b"n", b"g otp"], Some("marketing"));
        check(&[&filler, b"xxo", b"tp"], Some("otp"));
        check(&[b"otp", &filler, b"marketing"], Some("otp"));
        check(&[&filler, &filler, b"x"], None);
    }
}
