//! Redis behind TLS: whom we trust, what we show, and that nothing goes without.

use std::{fs, sync::Arc};

use decider::store::redis::{Redis, target::Target};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use redis::{ClientTlsConfig, TlsCertificates};

use crate::{
    load::{Load, RECOVERY},
    policies,
    program::{Weir, get},
    redis_server::{RedisServer, connected, directory, free_port},
};

/// An authority, and what it made for 127.0.0.1.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut parameters = CertificateParams::new([]).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new([name.to_owned()]).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        (parameters.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// What a client takes along; `own`: a certificate of this authority, too.
    fn trusted(&self, own: bool) -> TlsCertificates {
        let client_tls = own.then(|| {
            let (client_cert, client_key) = self.issue("decider");
            ClientTlsConfig {
                client_cert: client_cert.into_bytes(),
                client_key: client_key.into_bytes(),
            }
        });
        TlsCertificates { client_tls, root_cert: Some(self.pem().into_bytes()) }
    }

    /// A Redis with a certificate for `name` that wants one of its clients, or not.
    fn serve(&self, port: u16, name: &str, wants: &str, options: &[&str]) -> RedisServer {
        let directory = directory(port);
        let (certificate, key) = self.issue(name);
        let file = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let files = [
            file("certificate.pem", &certificate),
            file("key.pem", &key),
            file("authority.pem", &self.pem()),
        ];
        let port_text = port.to_string();
        let mut all = vec!["--port", "0", "--tls-port", &port_text, "--save", ""];
        all.extend(["--tls-cert-file", &files[0], "--tls-key-file", &files[1]]);
        all.extend(["--tls-ca-cert-file", &files[2], "--tls-auth-clients", wants]);
        all.extend(options);
        RedisServer::spawn(port, &all)
    }
}

fn url(port: u16) -> String {
    format!("rediss://127.0.0.1:{port}/0")
}

fn store(url: &str, certificates: TlsCertificates) -> Arc<Redis> {
    let account = policies::account("sample", policies::SAMPLE);
    let target = Target::parse(url, Some(certificates)).unwrap();
    Arc::new(Redis::new(target, &[account]).unwrap())
}

#[tokio::test]
async fn a_redis_with_tls_is_used_and_found_again() {
    let authority = Authority::new("ours");
    let port = free_port();
    let server = authority.serve(port, "127.0.0.1", "no", &[]);
    let store = store(&url(port), authority.trusted(false));
    connected(store.as_ref()).await;
    let load = Load::start(store, 0);
    load.until_granted(RECOVERY).await;
    drop(server);
    load.until_failed().await;
    let _server = authority.serve(port, "127.0.0.1", "no", &[]);
    load.until_granted(RECOVERY).await;
    load.check(1);
}

/// Why the store has no connection, once it has tried.
async fn refusal(url: &str, certificates: TlsCertificates) -> String {
    let load = Load::start(store(url, certificates), 0);
    let start = std::time::Instant::now();
    loop {
        let error = load.until_failed().await.to_string();
        if !error.contains("not connected yet") {
            return error;
        }
        assert!(start.elapsed() < RECOVERY, "no attempt was made");
    }
}

#[tokio::test]
async fn nobody_is_trusted_but_the_authority_that_was_named() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("a stranger"));
    let port = free_port();
    let _server = authority.serve(port, "127.0.0.1", "no", &[]);
    let error = refusal(&url(port), stranger.trusted(false)).await;
    assert!(error.contains("invalid peer certificate: UnknownIssuer"), "{error}");

    let port = free_port();
    let _server = authority.serve(port, "other.example.com", "no", &[]);
    let error = refusal(&url(port), authority.trusted(false)).await;
    assert!(error.contains("invalid peer certificate: certificate not valid for name"), "{error}");
}

#[tokio::test]
async fn a_certificate_of_our_own_is_shown_where_redis_wants_one() {
    let authority = Authority::new("ours");
    let port = free_port();
    let _server = authority.serve(port, "127.0.0.1", "yes", &[]);
    refusal(&url(port), authority.trusted(false)).await;
    connected(store(&url(port), authority.trusted(true)).as_ref()).await;
}

/// A node that the first one names is connected to in the same way.
#[tokio::test]
async fn nodes_of_a_cluster_are_reached_by_tls_too() {
    let authority = Authority::new("ours");
    let options = ["--cluster-enabled", "yes", "--tls-cluster", "yes"];
    let ports = [free_port(), free_port()];
    let _nodes = ports.map(|port| authority.serve(port, "127.0.0.1", "no", &options));
    let tell = async |port: u16, words: &str| {
        let client = redis::Client::build_with_tls(url(port), authority.trusted(true)).unwrap();
        let mut raw = client.get_multiplexed_async_connection().await.unwrap();
        let words: Vec<&str> = words.split(' ').collect();
        redis::cmd("CLUSTER").arg(words).query_async::<redis::Value>(&mut raw).await.unwrap()
    };
    // All slots on the second node, the first is the only one that we are told of.
    let slots: Vec<String> = (0..16_384).map(|slot| slot.to_string()).collect();
    tell(ports[1], &format!("ADDSLOTS {}", slots.join(" "))).await;
    tell(ports[1], &format!("MEET 127.0.0.1 {}", ports[0])).await;
    let url = format!("rediss+cluster://127.0.0.1:{}", ports[0]);
    let load = Load::start(store(&url, authority.trusted(true)), 0);
    load.until_granted(std::time::Duration::from_secs(20)).await;
}

#[test]
fn the_program_takes_the_files_and_says_which_it_cannot_read() {
    let authority = Authority::new("ours");
    let port = free_port();
    let _server = authority.serve(port, "127.0.0.1", "yes", &[]);
    let (certificate, key) = authority.issue("decider");
    let file = |name: &str, text: &str| {
        let path = directory(port).join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let ca = file("ca.pem", &authority.pem());
    let (certificate, key) = (file("own.pem", &certificate), file("own-key.pem", &key));
    let store = url(port);
    let mut told = vec!["--store", &store, "--store-ca", &ca];
    told.extend(["--store-cert", &certificate, "--store-key", &key]);
    let (mut weir, address) = Weir::serving(&told);
    weir.until("connected to Redis");
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 200"));
}
