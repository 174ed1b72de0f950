//! Certificates for callers and gateway, made anew by each test.

use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use lab::Answer;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::call::HOST;
use super::stack::write_scratch;

const GATEWAY_NAME: &str = "gateway.test";

/// Signs for one mesh.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = named("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// A caller that is `spiffe_ids`, in this order.
    pub fn caller(&self, spiffe_ids: &[&str]) -> Identity {
        let uri = |id: &&str| SanType::URI((*id).try_into().expect("ASCII"));
        self.sign(spiffe_ids.iter().map(uri).collect())
    }

    fn gateway(&self) -> Identity {
        self.sign(vec![SanType::DnsName(GATEWAY_NAME.try_into().expect("ASCII"))])
    }

    fn sign(&self, names: Vec<SanType>) -> Identity {
        let mut params = named("peer");
        params.subject_alt_names = names;
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Identity { certificate, key }
    }

    /// A listener's transport socket: TLS, and a certificate of this authority from whoever has one.
    pub fn transport_socket(&self) -> Value {
        let gateway = self.gateway();
        let file = |name, text: &str| json!({ "filename": write_scratch(name, text) });
        json!({ "name": "envoy.transport_sockets.tls", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {
                "tls_certificates": [{
                    "certificate_chain": file("gateway.pem", &gateway.certificate.pem()),
                    "private_key": file("gateway.key", &gateway.key.serialize_pem()),
                }],
                "validation_context": { "trusted_ca": file("ca.pem", &self.0.pem()) },
            },
        } })
    }

    /// One request over TLS.
    pub async fn call(
        &self,
        gateway: &str,
        identity: Option<&Identity>,
        headers: &[(&str, &str)],
    ) -> Result<Answer, String> {
        let connector = TlsConnector::from(Arc::new(self.client(identity)));
        let stream = TcpStream::connect(gateway).await.expect("the gateway listens");
        let name = ServerName::try_from(GATEWAY_NAME).expect("a name");
        let stream = connector.connect(name, stream).await.map_err(|e| e.to_string())?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        tokio::spawn(connection);
        let mut request = Request::post("/v1/messages").header("host", HOST);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from_static(b"{}"))).expect("a request");
        let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }

    fn client(&self, identity: Option<&Identity>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("an authority");
        let config = ClientConfig::builder().with_root_certificates(roots);
        let Some(Identity { certificate, key }) = identity else {
            return config.with_no_client_auth();
        };
        let chain: Vec<CertificateDer> = vec![certificate.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        config.with_client_auth_cert(chain, key).expect("a certificate and its key")
    }
}

/// Issuer and subject need different names, or a certificate looks as if it had signed itself.
fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params
}
