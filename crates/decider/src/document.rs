//! The policy file.
//!
//! Promise: the words of a refusal are the filter's own. YAML becomes the same value that the
//! filter's JSON becomes, and `limits` alone judges it; only what is no YAML at all is refused here.

use std::{
    fs,
    io::{Read, Write},
    path::Path,
};

use limits::policy::{Policy, PolicyError};
use serde_json::Value;
use serde_saphyr::UserMessageFormatter;

/// A policy of a thousand limits is far below this, in bytes.
const FILE_MAX: u64 = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("cannot be read")]
    Unreadable(#[from] std::io::Error),
    #[error("is longer than the {FILE_MAX} bytes that are allowed")]
    TooLong,
    #[error("is not YAML: {0}")]
    NotYaml(String),
    #[error(transparent)]
    Refused(#[from] PolicyError),
}

/// The document as written, and what it means.
#[derive(Debug)]
pub struct Document {
    pub value: Value,
    pub policy: Policy,
}

/// # Errors
/// The file cannot be read, is no YAML, or is no safe policy.
pub fn read(path: &Path) -> Result<Document, DocumentError> {
    let mut text = String::new();
    fs::File::open(path)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(DocumentError::TooLong);
    }
    parse(&text)
}

/// # Errors
/// The text is no YAML, or is no safe policy.
pub fn parse(text: &str) -> Result<Document, DocumentError> {
    let value = yaml(text).map_err(DocumentError::NotYaml)?;
    let policy = Policy::parse(&value)?;
    Ok(Document { value, policy })
}

/// Prints to standard output; a reader that has had enough, like `head`, is no failure.
///
/// # Errors
/// Any other failure to write.
pub fn print(text: &str) -> std::io::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Any YAML file of ours. Errors are one line.
///
/// # Errors
/// What the reader says to people, without its drawing of the place and its advice to programmers.
pub fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    // A quoted excerpt would put lines of the file, perhaps a password, into the log.
    let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| error.render_with_formatter(&UserMessageFormatter).replace('\n', " "))
}
