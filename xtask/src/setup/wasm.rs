//! The Wasm modules: the filter (`target/wasm/weir.wasm`) and the filters it is measured against
//! (`target/wasm/baseline.wasm`), with whichever toolchain on this machine has a standard library
//! for `wasm32-unknown-unknown`: the normal one, the normal one after `rustup target add`, or
//! Debian's `rustc-web`, which carries the library's source.
//!
//! They have a target directory of their own, so a build here and one in `target/` do not wait
//! for each other's lock.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::apt;
use crate::{cargo, paths, run};

const TARGET: &str = "wasm32-unknown-unknown";
/// Package, the file cargo makes of it, the name we give it.
const MODULES: [(&str, &str, &str); 2] =
    [("weir-filter", "weir_filter.wasm", "weir"), ("baseline", "baseline.wasm", "baseline")];
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
/// `edition = "2024"` and the workspace's `rust-version` need it.
const OLDEST_RUST: (u32, u32) = (1, 90);
/// Where Debian's packages are at hand, a mirror that does not answer is given up early.
const RUSTUP_LIMIT: Duration = Duration::from_secs(30);
const RUSTUP_LIMIT_WITHOUT_ALTERNATIVE: Duration = Duration::from_secs(300);
/// `rustup` or `debian` overrides the choice, to try one of them.
const CHOICE: &str = "WEIR_WASM_TOOLCHAIN";

enum Toolchain {
    Normal,
    /// Debian's `rustc-web`; the standard library is built along (`-Zbuild-std`).
    Debian {
        linker: PathBuf,
    },
}

/// Builds the modules if they are not up to date.
pub fn build() -> Result<()> {
    let toolchain = toolchain()?;
    let mut command = match &toolchain {
        Toolchain::Normal => cargo::cargo(&[]),
        Toolchain::Debian { linker } => debian_cargo(linker),
    };
    command.args(["build", "--profile", "wasm", "--lib", "--target", TARGET]);
    command.arg("--target-dir").arg(build_dir(&toolchain));
    for (package, ..) in MODULES {
        command.args(["--package", package]);
    }
    if matches!(toolchain, Toolchain::Debian { .. }) {
        command.arg("-Zbuild-std=std,panic_abort");
    }
    run::check(&mut command).context("the Wasm modules cannot be built")?;
    let built = build_dir(&toolchain).join(TARGET).join("wasm");
    for (_, file, name) in MODULES {
        replace_if_different(&built.join(file), &paths::wasm_module(name))?;
    }
    Ok(())
}

/// One per toolchain: they would throw away each other's artefacts.
fn build_dir(toolchain: &Toolchain) -> PathBuf {
    paths::target(match toolchain {
        Toolchain::Normal => "wasm-build",
        Toolchain::Debian { .. } => "wasm-build-debian",
    })
}

fn toolchain() -> Result<Toolchain> {
    match std::env::var(CHOICE).as_deref() {
        Ok("debian") => return debian().map(|linker| Toolchain::Debian { linker }),
        Ok("rustup") | Err(_) => {}
        Ok(other) => bail!("{CHOICE}={other}: allowed are rustup and debian"),
    }
    if normal_has_target() {
        return Ok(Toolchain::Normal);
    }
    let alternative = debian_is_possible();
    let failure = match rustup_target_add(alternative) {
        Ok(()) if normal_has_target() => return Ok(Toolchain::Normal),
        Ok(()) => "`rustup target add` did not add the library".to_owned(),
        Err(e) => format!("{e:#}"),
    };
    if alternative {
        return debian().map(|linker| Toolchain::Debian { linker });
    }
    bail!(
        "the standard library for {TARGET} is missing ({failure}): install it with \
         `rustup target add {TARGET}`, or on Debian with `apt-get install {}`",
        DEBIAN_PACKAGES.join(" ")
    )
}

fn normal_has_target() -> bool {
    let Ok(dir) =
        run::output(run::command("rustc").args(["--print", "target-libdir", "--target", TARGET]))
    else {
        return false;
    };
    std::fs::read_dir(dir).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
    })
}

/// A failure is remembered if there is another way: a closed network costs its time-out once.
fn rustup_target_add(alternative: bool) -> Result<()> {
    let note = paths::tools("rustup-target-add.failed");
    if alternative && note.exists() {
        bail!("failed before, see {}", paths::shown(&note));
    }
    if paths::on_path("rustup").is_none() {
        bail!("there is no rustup");
    }
    run::say(format!("fetching the {TARGET} standard library (rustup target add)"));
    let limit = match alternative {
        true => RUSTUP_LIMIT,
        false => RUSTUP_LIMIT_WITHOUT_ALTERNATIVE,
    };
    let result = run::check_within(limit, run::command("rustup").args(["target", "add", TARGET]));
    if let Err(e) = &result {
        std::fs::create_dir_all(paths::tools(""))?;
        std::fs::write(&note, format!("{e:#}\nDelete this file to have it tried again.\n"))?;
        run::say(format!("that did not work: {e:#}"));
    }
    result
}

fn debian_is_possible() -> bool {
    debian_is_installed() || (apt::usable() && Path::new("/etc/debian_version").exists())
}

/// `/usr/bin/rustc` also is the name of Debian's older `rustc`, which is too old for this.
fn debian_is_installed() -> bool {
    Path::new("/usr/bin/cargo").exists()
        && Path::new("/usr/lib/rustlib/src/rust/library/std").exists()
        && debian_version().is_some_and(|version| version >= OLDEST_RUST)
}

fn debian_version() -> Option<(u32, u32)> {
    let text = run::output(run::command("/usr/bin/rustc").arg("--version")).ok()?;
    let mut numbers = text.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Makes sure that Debian's toolchain is there, and gives a linker for it.
fn debian() -> Result<PathBuf> {
    if !debian_is_installed() {
        if !apt::usable() {
            bail!(
                "the standard library for {TARGET} is missing: run `apt-get install {}` as root",
                DEBIAN_PACKAGES.join(" ")
            );
        }
        apt::install(&DEBIAN_PACKAGES)?;
        if !debian_is_installed() {
            bail!(
                "Debian's rustc-web is older than {}.{}, which this project needs",
                OLDEST_RUST.0,
                OLDEST_RUST.1
            );
        }
    }
    if let Some(linker) = linker() {
        return Ok(linker);
    }
    if apt::usable() {
        apt::install(&["lld"])?;
    }
    linker().context("a linker for Wasm is missing: run `apt-get install lld` as root")
}

/// rustup's own `rust-lld` does; else LLVM's.
fn linker() -> Option<PathBuf> {
    let of_rustup = || {
        let host_libs =
            run::output(run::command("rustc").args(["--print", "target-libdir"])).ok()?;
        let file = Path::new(&host_libs).parent()?.join("bin/rust-lld");
        file.exists().then_some(file)
    };
    of_rustup().or_else(|| paths::on_path("wasm-ld"))
}

fn debian_cargo(linker: &Path) -> Command {
    let mut command = run::command("/usr/bin/cargo");
    // The outer cargo's library path names the other compiler's libraries.
    for name in ["RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    command
        .env("RUSTC", "/usr/bin/rustc")
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
    command
}

/// By rename: an Envoy that is just reading the old module goes on reading the old one.
fn replace_if_different(from: &Path, to: &Path) -> Result<()> {
    let new = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if std::fs::read(to).is_ok_and(|old| old == new) {
        return Ok(());
    }
    let dir = to.parent().context("a module lies in a directory")?;
    std::fs::create_dir_all(dir)?;
    let temporary = to.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&temporary, &new)?;
    std::fs::rename(&temporary, to)?;
    run::say(format!("{} ({} kB)", paths::shown(to), new.len() / 1000));
    Ok(())
}
