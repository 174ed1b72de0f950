//! Which Redis: one server, a Cluster, or the primary that Sentinels name; with or without TLS.
//!
//! Promise: a [`Target`] that exists can be connected to, as far as one can tell without trying. The
//! `redis` crate reads every URL and certificate; here only a list of hosts is taken apart. No error
//! and no `Debug` shows a password.

use std::fmt;

use ::redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    TlsCertificates, TlsMode,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};

/// The forms of a URL, as they are told to people.
pub const FORMS: &str = "redis://HOST:PORT/DB, redis+cluster://HOST:PORT,HOST:PORT or \
                         redis+sentinel://HOST:PORT,HOST:PORT/PRIMARY, or the same with rediss";

/// Hosts in one URL: more than any list that people write.
const HOSTS_MAX: usize = 64;

pub struct Target(pub(super) Kind);

pub(super) enum Kind {
    One(Box<Client>),
    /// Some nodes of the cluster; the others are learnt from them.
    Cluster(Vec<ConnectionInfo>),
    /// One client per Sentinel: one that is silent must not hold the others up.
    Sentinels(Vec<SentinelClient>),
}

/// Never the URL: there may be a password in it.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("it is none of the forms that are allowed")]
    Form,
    #[error("{0}")]
    Hosts(&'static str),
    #[error("certificates without TLS; allowed: with a rediss URL")]
    NotTls,
    #[error("{0}")]
    Refused(#[from] RedisError),
}

impl Target {
    /// `certificates` for TLS; without them, the system's authorities are trusted.
    ///
    /// # Errors
    /// The URL or a certificate cannot be used.
    pub fn parse(url: &str, certificates: Option<TlsCertificates>) -> Result<Self, TargetError> {
        // Chosen once for the process; another choice that was made before stands.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (scheme, rest) = url.split_once("://").ok_or(TargetError::Form)?;
        let (base, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let is_tls = match base {
            "redis" => false,
            "rediss" => true,
            _ => return Err(TargetError::Form),
        };
        if certificates.is_some() && !is_tls {
            return Err(TargetError::NotTls);
        }
        let urls = || Hosts::parse(base, rest);
        let kind = match kind {
            "" => Kind::One(Box::new(client(url, certificates.as_ref())?)),
            "cluster" => cluster(&urls()?, certificates.as_ref())?,
            "sentinel" => sentinels(&urls()?, is_tls, certificates.as_ref())?,
            _ => return Err(TargetError::Form),
        };
        Ok(Self(kind))
    }
}

/// By hand: what is inside may hold passwords.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::One(_) => "Redis",
            Kind::Cluster(_) => "Redis Cluster",
            Kind::Sentinels(_) => "Redis by Sentinel",
        })
    }
}

fn client(url: &str, certificates: Option<&TlsCertificates>) -> Result<Client, RedisError> {
    match certificates {
        Some(certificates) => Client::build_with_tls(url, certificates.clone()),
        None => Client::open(url),
    }
}

fn cluster(hosts: &Hosts, certificates: Option<&TlsCertificates>) -> Result<Kind, TargetError> {
    if !matches!(hosts.path.as_str(), "" | "0") {
        return Err(TargetError::Hosts("a cluster has database 0 only"));
    }
    let info = |url: &String| Ok(client(url, certificates)?.get_connection_info().clone());
    Ok(Kind::Cluster(hosts.urls.iter().map(info).collect::<Result<_, RedisError>>()?))
}

/// `/PRIMARY` or `/PRIMARY/DB`. The user and password of the URL are those of Redis; Sentinels that
/// want some have theirs in the query, as `sentinel_username` and `sentinel_password`.
fn sentinels(
    hosts: &Hosts,
    is_tls: bool,
    certificates: Option<&TlsCertificates>,
) -> Result<Kind, TargetError> {
    let (primary, db) = hosts.path.split_once('/').unwrap_or((&hosts.path, "0"));
    let db = db.parse().map_err(|_| TargetError::Hosts("the database is no number"))?;
    if primary.is_empty() {
        return Err(TargetError::Hosts("the primary's name is missing; allowed: a path, /NAME"));
    }
    let one = |url: &String| {
        let info = url.as_str().into_connection_info()?;
        let address = info.addr().clone();
        let server = SentinelServerType::Master;
        let mut builder =
            SentinelClientBuilder::new([address], primary, server)?.set_client_to_redis_db(db);
        if let Some(username) = info.redis_settings().username() {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = info.redis_settings().password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if is_tls {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        if let Some(certificates) = certificates {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates.clone());
        }
        let own = hosts.sentinel_settings()?;
        if let Some(username) = own.username() {
            builder = builder.set_client_to_sentinel_username(username);
        }
        if let Some(password) = own.password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
        builder.build()
    };
    Ok(Kind::Sentinels(hosts.urls.iter().map(one).collect::<Result<_, RedisError>>()?))
}

/// A URL of several hosts, taken apart into one URL per host.
struct Hosts {
    /// `redis://USER:PASSWORD@HOST:PORT`, without path and query.
    urls: Vec<String>,
    path: String,
    query: String,
}

impl Hosts {
    fn parse(scheme: &str, rest: &str) -> Result<Self, TargetError> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(login, rest)| (login, rest));
        if login.contains(['/', ',', '@']) {
            return Err(TargetError::Hosts(
                "`/`, `,` and `@` in a password are written %2F, %2C, %40",
            ));
        }
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let at = if login.is_empty() { "" } else { "@" };
        let urls: Vec<String> = hosts
            .split(',')
            .filter(|host| !host.is_empty())
            .map(|host| format!("{scheme}://{login}{at}{host}"))
            .collect();
        if !(1..=HOSTS_MAX).contains(&urls.len()) {
            return Err(TargetError::Hosts("no host, or more than 64"));
        }
        Ok(Self { urls, path: path.to_owned(), query: query.to_owned() })
    }

    /// What the Sentinels themselves want to hear.
    fn sentinel_settings(&self) -> Result<RedisConnectionInfo, RedisError> {
        let part = |name: &str| {
            let parts = self.query.split('&').filter_map(|part| part.split_once('='));
            parts.into_iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
        };
        let (username, password) = (part("sentinel_username"), part("sentinel_password"));
        // As a login, so that the crate takes the percent signs out.
        let login = format!("redis://{username}:{password}@localhost");
        Ok(login.as_str().into_connection_info()?.redis_settings().clone())
    }
}

/// Another node of the same cluster: the same login and certificates.
pub(super) fn sibling(info: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let address = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: &str) {
        let parsed = Target::parse(url, None);
        let shown = parsed.map_or_else(
            |error| error.to_string(),
            |target| match target.0 {
                Kind::One(client) => client.get_connection_info().addr().to_string(),
                Kind::Cluster(nodes) => {
                    nodes.iter().map(|node| node.addr().to_string()).collect::<Vec<_>>().join(" ")
                }
                Kind::Sentinels(sentinels) => format!("{} sentinels", sentinels.len()),
            },
        );
        assert_eq!(shown, expected, "{url}");
    }

    #[test]
    fn each_form_is_understood() {
        check("redis://h:1/3", "h:1");
        check("rediss://:p@h:1", "h:1");
        check("redis+cluster://a:1,b:2", "a:1 b:2");
        check("rediss+cluster://u:p%2C@a:1,b/0", "a:1 b:6379");
        check("redis+sentinel://a,b,c/main", "3 sentinels");
        check("rediss+sentinel://:p@a:1/main/2?sentinel_password=q", "1 sentinels");
    }

    #[test]
    fn what_leads_nowhere_is_refused_and_shows_no_password() {
        check("http://h", "it is none of the forms that are allowed");
        check("redis+ring://h", "it is none of the forms that are allowed");
        check("redis+cluster://", "no host, or more than 64");
        check("redis+cluster://h/1", "a cluster has database 0 only");
        check("redis+sentinel://h", "the primary's name is missing; allowed: a path, /NAME");
        check("redis+sentinel://h/main/x", "the database is no number");
        check(
            "redis+cluster://:a/b,c@h",
            "`/`, `,` and `@` in a password are written %2F, %2C, %40",
        );
        for url in
            ["redis://:secret@h:x", "redis+cluster://:secret@h:x", "redis+sentinel://:secret@h:x/m"]
        {
            let refused = Target::parse(url, None).unwrap_err();
            let all = format!("{refused} {refused:?}");
            assert!(!all.contains("secret"), "{all}");
        }
    }

    #[test]
    fn certificates_are_for_tls_only_and_must_be_some() {
        let certificates = |pem: &str| {
            Some(TlsCertificates { client_tls: None, root_cert: Some(pem.as_bytes().to_vec()) })
        };
        let plain = Target::parse("redis://h", certificates("")).unwrap_err();
        assert_eq!(plain.to_string(), "certificates without TLS; allowed: with a rediss URL");
        let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for url in ["rediss://h", "rediss+cluster://h", "rediss+sentinel://h/m"] {
            assert!(Target::parse(url, certificates(nonsense)).is_err(), "{url}");
        }
    }
}
