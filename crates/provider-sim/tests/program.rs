//! The program: its one line, its signals, its exit codes.

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

type TestResult = Result<(), Box<dyn Error>>;

fn program(args: &[&str]) -> std::io::Result<Child> {
    Command::new(env!("CARGO_BIN_EXE_provider-sim")).args(args).stderr(Stdio::piped()).spawn()
}

/// Everything the program says until it ends by itself, and its exit code.
fn outcome(args: &[&str]) -> Result<(String, Option<i32>), Box<dyn Error>> {
    let output = program(args)?.wait_with_output()?;
    Ok((String::from_utf8(output.stderr)?, output.status.code()))
}

fn check_ends_well_on(signal: &str) -> TestResult {
    let mut child = program(&["--listen", "127.0.0.1:0"])?;
    let mut stderr = BufReader::new(child.stderr.take().ok_or("no stderr")?);
    let mut line = String::new();
    stderr.read_line(&mut line)?;
    let addr = line.trim_end().strip_prefix("listening on ").ok_or("another line")?;
    // An idle connection must not keep the program from ending.
    let idle = std::net::TcpStream::connect(addr)?;

    let taken = outcome(&["--listen", addr])?;
    Command::new("kill").args([signal, &child.id().to_string()]).status()?;
    let status = child.wait()?;
    drop(idle);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest)?;
    assert_eq!((status.code(), rest.as_str()), (Some(0), ""));
    assert_eq!(taken.1, Some(1));
    let message = format!("provider-sim: cannot listen on {addr}: ");
    assert!(taken.0.starts_with(&message), "{}", taken.0);
    Ok(())
}

#[test]
fn sigterm_ends_it_well_and_a_taken_port_is_named() -> TestResult {
    check_ends_well_on("-TERM")
}

#[test]
fn sigint_ends_it_well() -> TestResult {
    check_ends_well_on("-INT")
}

#[test]
fn settings_that_cannot_be_are_refused_by_name() -> TestResult {
    let refused = outcome(&["--listen", "127.0.0.1:0", "--model", "fixed", "--phase", "1s"])?;
    let message = "provider-sim: phase: 1s is not allowed; it must be less than the window, 1s\n";
    assert_eq!(refused, (message.to_owned(), Some(1)));
    let (text, code) = outcome(&["--suspend-after", "soon"])?;
    assert!(text.contains("--suspend-after"), "{text}");
    assert_eq!(code, Some(2));
    Ok(())
}

#[test]
fn help_lists_models_and_replies_by_name() -> TestResult {
    let output = Command::new(env!("CARGO_BIN_EXE_provider-sim")).arg("--help").output()?;
    let text = String::from_utf8(output.stdout)?;
    for name in ["per-100ms:", "leaky:", "completion:", "concurrency:", "minute:", "vonage:"] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
    Ok(())
}

#[test]
fn every_option_reaches_the_settings() -> TestResult {
    let check = |args: &[&str], message: &str| -> TestResult {
        let (text, code) = outcome(args)?;
        assert!(text.contains(message), "{args:?}: {text}");
        assert_eq!(code, Some(1));
        Ok(())
    };
    check(&["--limit", "1000001"], "limit: 1000001")?;
    check(&["--window", "0s"], "window: 0s")?;
    check(&["--status", "7"], "status: 7")?;
    check(&["--retry-after", "1", "--retry-after", "a\nb"], "retry_after: \"a\\nb\"")?;
    check(&["--retry-after-in", "8days"], "retry_after_in: 8days")?;
    check(&["--latency", "soon"], "latency: ")?;
    check(&["--jitter", "8days"], "jitter: 8days")?;
    check(&["--lose-every", "0"], "lose_every: 0")?;
    check(&["--suspend-after", "1000001"], "suspend_after: 1000001")?;
    check(&["--suspend-within", "0s"], "suspend_within: 0s")?;
    check(&["--suspend-for", "0s"], "suspend_for: 0s")?;
    check(&["--model", "leaky", "--limit", "5"], "limit: 5 is not allowed; the model leaky")?;
    check(&["--set", r#"{"limt":5}"#], "--set: limt: unknown field")?;
    Ok(())
}
