//! The host's format of a list of header fields: a count, the sizes of each name and value, then the
//! texts with a zero byte after each. Numbers are 32 bit, little-endian.
//!
//! Promise: a list is read in place, in one go: a call into the host that returns data costs about a
//! microsecond, whatever it returns, and looking through the bytes next to nothing. Bytes that are
//! no such list are an empty one.

/// All fields of a request or a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs(Vec<u8>);

impl Pairs {
    pub fn of(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Names (lower case, as Envoy keeps them) and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let count = number(&self.0, 0).unwrap_or(0);
        let mut text = count.saturating_mul(8).saturating_add(4);
        (0..count).map_while(move |index| {
            let sizes = index.saturating_mul(8).saturating_add(4);
            let mut next = |size: usize| {
                let end = text.saturating_add(size);
                let found = self.0.get(text..end);
                text = end.saturating_add(1);
                found
            };
            let name = next(number(&self.0, sizes)?)?;
            Some((name, next(number(&self.0, sizes.saturating_add(4))?)?))
        })
    }

    /// The value of the first field of that name.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(known, _)| *known == name.as_bytes()).map(|(_, value)| value)
    }
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..at.saturating_add(4))?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(word)).ok()
}

/// Writes a list.
pub fn write(pairs: &[(&str, String)]) -> Vec<u8> {
    let size = |text: &str| u32::try_from(text.len()).unwrap_or(0).to_le_bytes();
    let mut bytes = u32::try_from(pairs.len()).unwrap_or(0).to_le_bytes().to_vec();
    for (name, value) in pairs {
        bytes.extend_from_slice(&size(name));
        bytes.extend_from_slice(&size(value));
    }
    for text in pairs.iter().flat_map(|(name, value)| [*name, value]) {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_as_it_went() {
        let list = [("a", "1".to_owned()), ("b", String::new()), ("a", "\u{fc}".to_owned())];
        let pairs = Pairs::of(write(&list));
        let read: Vec<_> = pairs.iter().collect();
        assert_eq!(read, list.each_ref().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        assert_eq!(pairs.first("a"), Some(b"1".as_slice()), "the first of several");
        assert_eq!(pairs.first("c"), None);
    }

    #[test]
    fn what_is_no_list_is_empty_or_shorter() {
        let whole = write(&[("name", "value".to_owned()), ("other", "value".to_owned())]);
        for end in 0..whole.len() - 1 {
            assert!(Pairs::of(whole[..end].to_vec()).iter().count() < 2, "{end}");
        }
        assert_eq!(Pairs::of(vec![0xff; 64]).iter().count(), 0);
    }
}
