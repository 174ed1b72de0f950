//! Paths and methods of a million arrivals, each distinct text kept once.

use std::collections::HashMap;
use std::sync::Arc;

pub const MAX_TEXTS: usize = 65_536;
/// A longer text is cut: the bytes kept stay below `MAX_TEXTS * MAX_TEXT_BYTES` = 16 MiB.
pub const MAX_TEXT_BYTES: usize = 256;
const TOO_MANY: &str = "(too many distinct texts)";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextId(u32);

#[derive(Debug, Default)]
pub struct Texts {
    texts: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, TextId>,
}

impl Texts {
    pub fn intern(&mut self, text: &str) -> TextId {
        let text = cut(text);
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        match u32::try_from(self.texts.len()) {
            Ok(next) if self.texts.len() < MAX_TEXTS => {
                let text: Arc<str> = text.into();
                self.texts.push(text.clone());
                self.ids.insert(text, TextId(next));
                TextId(next)
            }
            _ => TextId(u32::MAX),
        }
    }

    pub fn get(&self, id: TextId) -> &str {
        self.texts.get(id.0 as usize).map_or(TOO_MANY, |text| text)
    }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_an_id_and_read_back() {
        let mut texts = Texts::default();
        let first = texts.intern("/a");
        assert_ne!(texts.intern("/b"), first);
        assert_eq!(texts.intern("/a"), first);
        assert_eq!(texts.get(first), "/a");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut texts = Texts::default();
        let id = texts.intern(&format!("x{}", "é".repeat(200)));
        assert_eq!(texts.get(id).len(), MAX_TEXT_BYTES - 1);
    }

    #[test]
    fn texts_beyond_the_bound_are_named_so() {
        let mut texts = Texts::default();
        for n in 0..MAX_TEXTS {
            texts.intern(&n.to_string());
        }
        let beyond = texts.intern("one more");
        assert_eq!(texts.get(beyond), TOO_MANY);
        let known = texts.intern("7");
        assert_eq!(texts.get(known), "7");
    }
}
