//! Code that can be read: bounded files and functions, and a boundary that holds.

use super::Text;

const MAX_FILE: usize = 400;
const MAX_FUNCTION: usize = 70;
const CODE: [&str; 4] = ["src/", "crates/", "xtask/", "tests/"];

/// The host's interface may be named here and nowhere else: everything behind it can be tested
/// without Envoy. In two pieces, so that this file does not name it.
const HOST_INTERFACE: &str = concat!("proxy", "_wasm");
const MAY_NAME_HOST: [&str; 3] = ["src/host.rs", "src/host/", "crates/baseline/"];

pub fn too_long(texts: &[Text]) -> Vec<String> {
    let mut wrong = Vec::new();
    for text in code(texts).filter(|text| text.has_extension("rs") || text.has_extension("lua")) {
        let lines = text.content.lines().count();
        if lines > MAX_FILE {
            let path = &text.path;
            wrong.push(format!("{path}: {lines} lines, at most {MAX_FILE}"));
        }
        for (line, name, length) in functions(&text.content) {
            if length > MAX_FUNCTION {
                let path = &text.path;
                wrong.push(format!(
                    "{path}:{line}: {name} has {length} lines, at most {MAX_FUNCTION}"
                ));
            }
        }
    }
    wrong
}

pub fn outside_boundary(texts: &[Text]) -> Vec<String> {
    let may = |path: &str| MAY_NAME_HOST.iter().any(|allowed| path.starts_with(allowed));
    code(texts)
        .filter(|text| text.has_extension("rs") && !may(&text.path))
        .filter(|text| text.content.contains(HOST_INTERFACE))
        .map(|text| {
            let path = &text.path;
            format!("{path}: names {HOST_INTERFACE}, which only {MAY_NAME_HOST:?} may")
        })
        .collect()
}

fn code(texts: &[Text]) -> impl Iterator<Item = &Text> {
    texts.iter().filter(|text| CODE.iter().any(|dir| text.path.starts_with(dir)))
}

/// Line, name and length of each Rust function. It relies on rustfmt: a body ends at the first
/// closing brace that stands as far to the left as its `fn`.
fn functions(content: &str) -> Vec<(usize, &str, usize)> {
    let lines: Vec<&str> = content.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent = &line[..line.len() - line.trim_start().len()];
        let closing = format!("{indent}}}");
        let has_no_block = |line: &&str| line.ends_with(';') || line.ends_with('}');
        if has_no_block(line) {
            continue;
        }
        if let Some(length) = lines[start..].iter().position(|line| *line == closing) {
            found.push((start + 1, name, length + 1));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().peekable();
    while words.next_if(|word| is_before_fn(word)).is_some() {}
    words.next_if_eq(&"fn")?;
    words.next()?.split(['(', '<']).next()
}

fn is_before_fn(word: &str) -> bool {
    word.starts_with("pub") || matches!(word, "const" | "async" | "unsafe" | "extern" | "\"C\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_from_their_name_to_their_brace() {
        let content = "\
impl X {
    pub(crate) async fn one(&self) {
        if true {
        }
    }
    fn declared();
    fn empty() {}
}
const fn two<T>(
) -> T {
}
";
        assert_eq!(functions(content), [(2, "one", 4), (9, "two", 3)]);
    }

    #[test]
    fn long_code_is_found() {
        let text = |path: &str, lines: usize| Text {
            path: path.to_owned(),
            content: format!("fn f() {{\n{}}}\n", "    x();\n".repeat(lines)),
        };
        assert_eq!(too_long(&[text("src/a.rs", 68)]).len(), 0);
        assert_eq!(too_long(&[text("src/a.rs", 69)]).len(), 1);
        assert_eq!(too_long(&[text("src/a.rs", 399)]).len(), 2);
        assert_eq!(too_long(&[text("docs/a.rs", 399)]).len(), 0);
    }

    #[test]
    fn the_host_is_named_at_the_boundary_only() {
        let text = |path: &str| Text {
            path: path.to_owned(),
            content: format!("use {HOST_INTERFACE}::traits;"),
        };
        assert!(outside_boundary(&[text("src/host.rs")]).is_empty());
        assert_eq!(outside_boundary(&[text("src/exchange.rs")]).len(), 1);
    }
}
