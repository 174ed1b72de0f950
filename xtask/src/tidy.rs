//! `cargo xtask tidy`: rules that no compiler checks. Each says where it is broken and how.

mod docs;
mod sample;
mod source;
mod tools;
mod words;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{paths, run};

/// Directories that hold what was built or fetched, not written.
const NOT_OURS: [&str; 2] = ["target", ".git"];

/// One text of the repository.
struct Text {
    /// From the root, with `/`.
    path: String,
    content: String,
}

impl Text {
    fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|of| of == extension)
    }
}

/// Runs every check; says all that is wrong before it fails.
pub fn check_all() -> Result<()> {
    let texts = texts()?;
    let mut wrong = Vec::new();
    wrong.extend(docs::broken_paths(&texts));
    wrong.extend(source::too_long(&texts));
    wrong.extend(source::outside_boundary(&texts));
    wrong.extend(words::machine_specific(&texts));
    wrong.extend(sample::differences()?);
    for line in &wrong {
        run::say(format!("tidy: {line}"));
    }
    let tools = tools::format_and_lint();
    if !wrong.is_empty() {
        bail!("{} rules are broken", wrong.len());
    }
    tools
}

/// Every file that is text, in order of its path. A walk, not `git ls-files`: a copy without its
/// history, or one that git does not trust, is checked all the same.
fn texts() -> Result<Vec<Text>> {
    let mut texts = Vec::new();
    let mut directories = vec![paths::root().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_symlink() || is_not_ours(&path) {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
            } else if let Ok(content) = std::fs::read_to_string(&path) {
                texts.push(Text { path: from_root(&path)?, content });
            }
        }
    }
    texts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(texts)
}

fn is_not_ours(path: &Path) -> bool {
    NOT_OURS.iter().any(|name| *path == paths::root().join(name))
}

fn from_root(path: &Path) -> Result<String> {
    let relative: PathBuf = path.strip_prefix(paths::root())?.to_owned();
    let text = relative.to_str();
    Ok(text.context("paths in the repository are UTF-8")?.to_owned())
}
