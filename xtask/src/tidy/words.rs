//! Nothing in the repository holds on one machine only.

use super::Text;

/// Directories of the root that are somebody's own: a path that begins so is of one machine.
const OWN: [&str; 5] = ["home", "Users", "root", "work", "tmp"];
/// The one place that dependencies come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub fn machine_specific(texts: &[Text]) -> Vec<String> {
    let mut wrong = Vec::new();
    for text in texts {
        for (number, line) in text.content.lines().enumerate() {
            let place = format!("{}:{}", text.path, number + 1);
            if let Some(path) = own_path(line) {
                wrong.push(format!("{place}: `{path}` is a path of one machine"));
            }
            if text.path == "Cargo.lock" && names_other_source(line) {
                wrong.push(format!("{place}: dependencies come from crates.io only"));
            }
        }
    }
    wrong
}

fn own_path(line: &str) -> Option<String> {
    OWN.iter()
        .map(|dir| format!("/{dir}/"))
        .find(|path| line.match_indices(path.as_str()).any(|(at, _)| begins_a_path(&line[..at])))
}

/// After a letter or a dot, the slash goes on with a path that began earlier.
fn begins_a_path(before: &str) -> bool {
    let is_inside = |c: char| c.is_alphanumeric() || "._-~})$*".contains(c);
    !before.ends_with(is_inside)
}

fn names_other_source(line: &str) -> bool {
    line.strip_prefix("source = ").is_some_and(|source| source.trim_matches('"') != REGISTRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_machine_are_found_and_others_not() {
        let path = format!("/{}/x", OWN[0]);
        for found in [format!("see {path}"), path.clone(), format!("\"{path}\"")] {
            assert!(own_path(&found).is_some(), "{found}");
        }
        for fine in [format!("target{path}"), format!("https://example.com{path}")] {
            assert!(own_path(&fine).is_none(), "{fine}");
        }
    }

    #[test]
    fn only_the_public_registry_is_a_source() {
        assert!(!names_other_source(&format!("source = \"{REGISTRY}\"")));
        assert!(names_other_source("source = \"registry+https://mirror.example/index\""));
        assert!(!names_other_source("name = \"source\""));
    }
}
