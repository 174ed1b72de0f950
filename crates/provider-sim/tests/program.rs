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
