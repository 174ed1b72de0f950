//! What `weir serve` was told: flags, then environment variables, then a file, then defaults.
//!
//! Promise: a [`Settings`] that exists can be used as it is; one conversion makes it.

use std::{
    fmt, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueEnum};
use limits::policy::Policy;
use redis::{ClientTlsConfig, TlsCertificates};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::Deserialize;

use crate::{
    document::yaml,
    doors::{CONNECTIONS, CONNECTIONS_MAX},
    store::redis::target::{FORMS, Target, TargetError},
};

const LISTEN: &str = "127.0.0.1:8080";
const DRAIN: Duration = Duration::from_secs(2);
const DRAIN_MAX: Duration = Duration::from_secs(300);

/// Options of `weir serve`. Each can also be set by its environment variable or, in the form
/// `listen: 127.0.0.1:8080`, in the file named by --config; a flag wins over the environment, and
/// the environment over the file.
#[derive(Debug, Default, Args)]
pub struct Options {
    /// YAML file with any of: policy, listen, store, store_ca, store_cert, store_key,
    /// store_deadline, connections, drain, log_format
    #[arg(long, env = "WEIR_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The policy file (YAML or JSON)
    #[arg(long, env = "WEIR_POLICY", value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Address and port to serve HTTP/1.1 and HTTP/2 (h2c) on [default: 127.0.0.1:8080]
    #[arg(long, env = "WEIR_LISTEN", value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Where limits are kept: `memory` (one process, lost at its end), or a Redis:
    /// `redis://[USER:PASSWORD@]HOST:PORT/DB`, `redis+cluster://[USER:PASSWORD@]HOST:PORT,HOST:PORT`
    /// or `redis+sentinel://[USER:PASSWORD@]HOST:PORT,HOST:PORT/PRIMARY`; rediss for TLS
    /// [default: memory]
    #[arg(long, env = "WEIR_STORE", value_name = "STORE", hide_env_values = true)]
    pub store: Option<String>,
    /// With rediss: the authorities to trust, a PEM file [default: the system's]
    #[arg(long, env = "WEIR_STORE_CA", value_name = "FILE")]
    pub store_ca: Option<PathBuf>,
    /// With rediss: the certificate to show, a PEM file; with --store-key
    #[arg(long, env = "WEIR_STORE_CERT", value_name = "FILE")]
    pub store_cert: Option<PathBuf>,
    /// The private key of --store-cert, a PEM file
    #[arg(long, env = "WEIR_STORE_KEY", value_name = "FILE")]
    pub store_key: Option<PathBuf>,
    /// Longest wait for the store, like 40ms [default: 80 % of the policy's decider.timeout]
    #[arg(long, env = "WEIR_STORE_DEADLINE", value_name = "DURATION")]
    pub store_deadline: Option<String>,
    /// Connections at the same time; further ones are closed at once [default: 1000]
    #[arg(long, env = "WEIR_CONNECTIONS", value_name = "NUMBER")]
    pub connections: Option<u32>,
    /// At the end, how long to wait for requests that are in flight [default: 2s]
    #[arg(long, env = "WEIR_DRAIN", value_name = "DURATION")]
    pub drain: Option<String>,
    /// Form of the log on standard error [default: text]
    #[arg(long, env = "WEIR_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// The file named by `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    policy: Option<PathBuf>,
    listen: Option<String>,
    store: Option<String>,
    store_ca: Option<PathBuf>,
    store_cert: Option<PathBuf>,
    store_key: Option<PathBuf>,
    store_deadline: Option<String>,
    connections: Option<u32>,
    drain: Option<String>,
    log_format: Option<LogFormat>,
}

/// All but the deadline, whose bounds are the policy's.
#[derive(Debug)]
pub struct Settings {
    pub policy: PathBuf,
    pub listen: SocketAddr,
    pub store: StoreChoice,
    pub connections: u32,
    pub drain: Duration,
    pub log_format: LogFormat,
    store_deadline: Option<Duration>,
}

pub enum StoreChoice {
    Memory,
    Redis {
        /// Without a password.
        shown: String,
        target: Box<Target>,
    },
    /// For measuring: grants everything.
    Nothing,
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("{path}: cannot be read")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{path}: {message}")]
    File { path: String, message: String },
    #[error(
        "no policy; allowed: a file by --policy, WEIR_POLICY or `policy:` in the --config file"
    )]
    NoPolicy,
    #[error("{field}: `{value}` is not allowed; allowed: {allowed}")]
    Bad { field: &'static str, value: String, allowed: String },
}

impl Settings {
    /// # Errors
    /// The file cannot be read or has unknown fields, or a value cannot be used.
    pub fn resolve(options: Options) -> Result<Self, SettingsError> {
        let file = options.config.as_ref().map_or(Ok(File::default()), read)?;
        let listen = options.listen.or(file.listen).unwrap_or(LISTEN.to_owned());
        let store = options.store.or(file.store);
        let certificates = certificates(
            options.store_ca.or(file.store_ca),
            options.store_cert.or(file.store_cert),
            options.store_key.or(file.store_key),
        )?;
        let drain = options.drain.or(file.drain);
        let deadline = options.store_deadline.or(file.store_deadline);
        Ok(Self {
            policy: options.policy.or(file.policy).ok_or(SettingsError::NoPolicy)?,
            listen: listen.parse().map_err(|_| SettingsError::Bad {
                field: "listen",
                value: listen,
                allowed: "an IP address and a port, like 127.0.0.1:8080 or [::]:8080".to_owned(),
            })?,
            store: store_choice(store.as_deref().unwrap_or("memory"), certificates)?,
            connections: connections(options.connections.or(file.connections))?,
            drain: drain
                .map_or(Ok(DRAIN), |text| duration("drain", &text, Duration::ZERO, DRAIN_MAX))?,
            log_format: options.log_format.or(file.log_format).unwrap_or(LogFormat::Text),
            store_deadline: deadline
                .map(|text| duration("store_deadline", &text, Duration::ZERO, DRAIN_MAX))
                .transpose()?,
        })
    }

    /// How long the store may take: less than a gateway waits, so that the gateway hears why.
    ///
    /// # Errors
    /// The configured one is not from 1 ms to the policy's decider.timeout.
    pub fn deadline(&self, policy: &Policy) -> Result<Duration, SettingsError> {
        let timeout = Duration::from_micros(policy.decider_timeout.0);
        let Some(deadline) = self.store_deadline else {
            return Ok(timeout * 4 / 5);
        };
        if (Duration::from_millis(1)..=timeout).contains(&deadline) {
            return Ok(deadline);
        }
        Err(SettingsError::Bad {
            field: "store_deadline",
            value: humantime::format_duration(deadline).to_string(),
            allowed: format!("1ms to the policy's decider.timeout of {}", policy.decider_timeout),
        })
    }
}

fn read(path: &PathBuf) -> Result<File, SettingsError> {
    let shown = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|source| SettingsError::Unreadable { path: shown.clone(), source })?;
    yaml(&text).map_err(|message| SettingsError::File { path: shown, message })
}

fn bytes(path: &Path) -> Result<Vec<u8>, SettingsError> {
    fs::read(path)
        .map_err(|source| SettingsError::Unreadable { path: path.display().to_string(), source })
}

fn duration(
    field: &'static str,
    text: &str,
    low: Duration,
    high: Duration,
) -> Result<Duration, SettingsError> {
    humantime::parse_duration(text)
        .ok()
        .filter(|duration| (low..=high).contains(duration))
        .ok_or_else(|| SettingsError::Bad {
            field,
            value: text.to_owned(),
            allowed: format!(
                "a duration up to {}, like 40ms or 2s",
                humantime::format_duration(high)
            ),
        })
}

fn connections(number: Option<u32>) -> Result<u32, SettingsError> {
    let number = number.unwrap_or(CONNECTIONS);
    if (1..=CONNECTIONS_MAX).contains(&number) {
        return Ok(number);
    }
    Err(SettingsError::Bad {
        field: "connections",
        value: number.to_string(),
        allowed: format!("1 to {CONNECTIONS_MAX}"),
    })
}

fn store_choice(
    text: &str,
    certificates: Option<TlsCertificates>,
) -> Result<StoreChoice, SettingsError> {
    let bad = |allowed: String| SettingsError::Bad { field: "store", value: masked(text), allowed };
    match text {
        "memory" | "none" if certificates.is_some() => {
            Err(bad("with certificates, a rediss URL".to_owned()))
        }
        "memory" => Ok(StoreChoice::Memory),
        "none" => Ok(StoreChoice::Nothing),
        url => match Target::parse(url, certificates) {
            Ok(target) => Ok(StoreChoice::Redis { shown: masked(url), target: Box::new(target) }),
            Err(TargetError::Form) => Err(bad(format!("memory, {FORMS}"))),
            Err(error) => Err(bad(format!("memory, {FORMS}; but here {error}"))),
        },
    }
}

/// What TLS to the store needs, if any of it was named.
fn certificates(
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<TlsCertificates>, SettingsError> {
    let client_tls = match (cert, key) {
        (None, None) => None,
        (Some(cert), Some(key)) => {
            Some(ClientTlsConfig { client_cert: bytes(&cert)?, client_key: bytes(&key)? })
        }
        (Some(alone), None) | (None, Some(alone)) => {
            return Err(SettingsError::Bad {
                field: "store_cert",
                value: alone.display().to_string(),
                allowed: "store_cert and store_key together".to_owned(),
            });
        }
    };
    let root_cert = ca.map(authorities).transpose()?;
    let is_any = client_tls.is_some() || root_cert.is_some();
    Ok(is_any.then_some(TlsCertificates { client_tls, root_cert }))
}

/// A file without any would trust nobody, and say so only when connecting.
fn authorities(path: PathBuf) -> Result<Vec<u8>, SettingsError> {
    let pem = bytes(&path)?;
    if matches!(CertificateDer::pem_slice_iter(&pem).next(), Some(Ok(_))) {
        return Ok(pem);
    }
    Err(SettingsError::Bad {
        field: "store_ca",
        value: path.display().to_string(),
        allowed: "a PEM file with a certificate in it".to_owned(),
    })
}

/// A URL as it may be logged: without what stands before the host, and without a query.
fn masked(url: &str) -> String {
    let (url, query) = url.split_once('?').map_or((url, ""), |(url, _)| (url, "?***"));
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://***@{host}{query}"),
        (None, Some((_, host))) => format!("***@{host}{query}"),
        (_, None) => format!("{url}{query}"),
    }
}

impl fmt::Display for StoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis { shown, .. } => f.write_str(shown),
            Self::Nothing => f.write_str("none"),
        }
    }
}

/// By hand, so that no password can be printed.
impl fmt::Debug for StoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(store: &str) -> Options {
        Options {
            policy: Some("policy.yaml".into()),
            store: Some(store.to_owned()),
            ..Options::default()
        }
    }

    fn check_refused(options: Options, expected: &str) {
        assert_eq!(Settings::resolve(options).unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_password_is_never_shown() {
        let url = "redis://user:se:c@ret/@127.0.0.1:6379/0";
        assert_eq!(masked(url), "redis://***@127.0.0.1:6379/0");
        let settings = Settings::resolve(options("redis://:secret@127.0.0.1:6379/0")).unwrap();
        assert_eq!(settings.store.to_string(), "redis://***@127.0.0.1:6379/0");
        assert!(!format!("{settings:?}").contains("secret"));
        for store in
            ["http://:secret@127.0.0.1", "u:secret@127.0.0.1", "redis:/:secret@h", "x?p=secret"]
        {
            let refused = Settings::resolve(options(store)).unwrap_err();
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_what_can() {
        check_refused(
            options("file"),
            &format!("store: `file` is not allowed; allowed: memory, {FORMS}"),
        );
        check_refused(
            Options { listen: Some("8080".to_owned()), ..options("memory") },
            "listen: `8080` is not allowed; allowed: an IP address and a port, like 127.0.0.1:8080 or [::]:8080",
        );
        check_refused(
            Options { drain: Some("1d".to_owned()), ..options("memory") },
            "drain: `1d` is not allowed; allowed: a duration up to 5m, like 40ms or 2s",
        );
        check_refused(
            Options { connections: Some(0), ..options("memory") },
            "connections: `0` is not allowed; allowed: 1 to 100000",
        );
        assert!(matches!(Settings::resolve(Options::default()), Err(SettingsError::NoPolicy)));
    }

    #[test]
    fn the_files_unknown_fields_are_refused() {
        assert!(yaml::<File>("listen: 127.0.0.1:1\n").is_ok());
        let refused = yaml::<File>("lissten: 127.0.0.1:1\n").unwrap_err();
        assert!(refused.contains("lissten"), "{refused}");
    }
}
