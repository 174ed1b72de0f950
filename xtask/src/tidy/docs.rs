//! Every path that a document names exists: renaming a file must not leave the docs behind.

use std::path::Path;

use super::Text;
use crate::paths;

/// A word that ends so is meant as a file, in whatever directory.
const FILE_ENDINGS: [&str; 8] = [".rs", ".md", ".yaml", ".toml", ".lua", ".json", ".sh", ".py"];

pub fn broken_paths(texts: &[Text]) -> Vec<String> {
    let mut wrong = Vec::new();
    for text in texts.iter().filter(|text| text.has_extension("md")) {
        for (number, line) in text.content.lines().enumerate() {
            let linked = links(line).into_iter().filter(|link| !link_exists(text, link));
            let named = code_words(line)
                .into_iter()
                .filter(|word| looks_like_path(word) && !path_exists(texts, word));
            wrong.extend(linked.chain(named).map(|missing| {
                format!("{}:{}: `{missing}` does not exist", text.path, number + 1)
            }));
        }
    }
    wrong
}

/// Targets of `[text](target)` that lie in the repository, without their anchors.
fn links(line: &str) -> Vec<&str> {
    let after = line.split("](").skip(1);
    let targets = after.filter_map(|rest| rest.split_once(')'));
    targets
        .map(|(target, _)| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains(':'))
        .collect()
}

fn link_exists(text: &Text, link: &str) -> bool {
    let file = paths::root().join(&text.path);
    file.parent().is_some_and(|dir| dir.join(link).exists())
}

/// What stands in backticks, if it is a single word.
fn code_words(line: &str) -> Vec<&str> {
    let between = line.split('`').skip(1).step_by(2);
    between.filter(|code| !code.is_empty() && !code.contains(char::is_whitespace)).collect()
}

/// A word that begins with a directory of the repository, or ends like a file. Patterns,
/// placeholders, URLs and paths in them do not.
fn looks_like_path(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if !word.chars().all(is_plain) || word.starts_with('/') || word.contains("//") {
        return false;
    }
    let ends_like_file = FILE_ENDINGS.iter().any(|ending| word.ends_with(ending));
    match word.split_once('/') {
        Some(("target", _)) => false,
        Some((first, _)) => ends_like_file || paths::root().join(first).is_dir(),
        None => ends_like_file && !word.starts_with('.'),
    }
}

/// A name without a directory may be any file of that name.
fn path_exists(texts: &[Text], word: &str) -> bool {
    paths::root().join(word).exists()
        || (!word.contains('/')
            && texts
                .iter()
                .any(|text| Path::new(&text.path).file_name().is_some_and(|name| name == word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(content: &str) -> usize {
        let texts = ["README.md", "envoy/envoy.yaml"]
            .map(|path| Text { path: path.to_owned(), content: content.to_owned() });
        broken_paths(&texts).len()
    }

    #[test]
    fn paths_that_exist_are_fine() {
        assert_eq!(broken("see `xtask/src/main.rs`, `envoy.yaml`, `xtask/`"), 0);
        assert_eq!(broken("[code](xtask/src/main.rs#L1), [web](https://example.com/x)"), 0);
    }

    #[test]
    fn paths_that_do_not_exist_are_found() {
        assert_eq!(broken("see `xtask/src/gone.rs`, `gone.yaml` and [this](gone.md)"), 3);
    }

    #[test]
    fn what_is_no_path_is_left_alone() {
        assert_eq!(
            broken("`GET /v1/limits`, `application/json`, `target/gone`, `a.b`, `/healthz`"),
            0
        );
    }
}
