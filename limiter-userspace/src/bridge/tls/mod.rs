//! Mutual TLS, by which proxies on other hosts ask: both sides present a certificate.
//!
//! `Files` are read and followed, `Tls` has what is in use of them, and an `Acceptor` does the handshakes of a listener.

mod error;
mod handshake;
mod load;
mod result;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use rustls::{ServerConfig, pki_types::ServerName};
use tokio::sync::watch;

pub(super) use self::handshake::{Acceptor, Unfinished};
pub use self::{error::TlsError, load::Loaded, result::HandshakeResult};
use super::{listener::Protocol, told::Told};
use crate::{agent::document::Followed, error::Error};

/// The files of mutual TLS, and who may ask by it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The certificate of the bridge, and those that lead from it to its CA.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CA that certificates of proxies are signed by, or several.
    pub client_ca: PathBuf,
    /// The names that a certificate has to have one of; any name will do without them.
    pub names: Vec<ServerName<'static>>,
}

/// Reads a name that certificates of proxies may have.
///
/// # Errors
/// What may be given.
pub fn name(text: &str) -> Result<ServerName<'static>, String> {
    let name = ServerName::try_from(text.to_owned());
    name.map_err(|_| {
        "give a DNS name or an address that certificates have as another name".to_owned()
    })
}

/// The files of mutual TLS, which are followed as they change.
#[derive(Debug)]
pub(super) struct Files {
    options: Options,
    followed: Followed,
}

impl Files {
    pub(super) fn new(options: Options) -> Self {
        let Options { certificate, key, client_ca, .. } = &options;
        let followed = Followed::new(vec![certificate.clone(), key.clone(), client_ca.clone()]);
        Self { options, followed }
    }

    /// Reads them at the start.
    ///
    /// # Errors
    /// [`TlsError`], or they change all the time.
    pub(super) fn first(&mut self) -> Result<Loaded, Error> {
        let Self { options, followed } = self;
        let loaded = followed.first(|each| load::load(options, each));
        let action = || format!("read {}", options.certificate.display());
        Ok(loaded.map_err(|error| Error::system(action(), error))??)
    }

    /// Reads them if one changed, as [`Followed::look`] says.
    pub(super) fn look(&mut self, must: bool) -> Option<Result<Loaded, TlsError>> {
        let Self { options, followed } = self;
        followed.look(must, |each| load::load(options, each))
    }
}

/// What connections of other hosts are accepted by.
#[derive(Clone)]
pub(super) struct Tls(Arc<Shared>);

struct Shared {
    in_use: RwLock<InUse>,
    /// The handshakes that failed and were told of.
    told: Mutex<Told>,
}

/// The configurations for each protocol, and the end of the connections that were made by them.
struct InUse {
    configs: [Arc<ServerConfig>; Protocol::ALL.len()],
    end: watch::Sender<bool>,
}

impl InUse {
    fn new(config: &ServerConfig) -> Self {
        let configs = Protocol::ALL.map(|protocol| {
            let mut config = config.clone();
            config.alpn_protocols = protocol.alpn().into_iter().map(<[u8]>::to_vec).collect();
            Arc::new(config)
        });
        Self { configs, end: watch::channel(false).0 }
    }
}

impl Tls {
    pub(super) fn new(loaded: &Loaded) -> Self {
        let in_use = RwLock::new(InUse::new(&loaded.config));
        Self(Arc::new(Shared { in_use, told: Mutex::default() }))
    }

    /// Uses other files. Connections that were made by those before end soon, so that their peers present a certificate that
    /// these accept.
    pub(super) fn adopt(&self, loaded: &Loaded) {
        let next = InUse::new(&loaded.config);
        *self.0.in_use.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Has all connections end.
    pub(super) fn end(&self) {
        self.0.in_use.read().unwrap_or_else(PoisonError::into_inner).end.send_replace(true);
    }

    /// What connections for a protocol are accepted by.
    pub(super) fn acceptor(&self, protocol: Protocol) -> Acceptor {
        Acceptor { tls: self.clone(), protocol }
    }
}
