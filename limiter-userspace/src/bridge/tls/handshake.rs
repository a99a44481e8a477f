//! The handshakes of a listener.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::{select, sync::watch, time::sleep};
use tokio_rustls::TlsAcceptor;

use super::{HandshakeResult, Tls};
use crate::bridge::{
    end::ended,
    listener::{Protocol, Stream},
};

/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What connections of a listener are accepted by.
#[derive(Clone)]
pub(in crate::bridge) struct Acceptor {
    pub(super) tls: Tls,
    pub(super) protocol: Protocol,
}

/// Why there is no connection.
pub(in crate::bridge) enum Unfinished {
    /// The bridge ends.
    End,
    /// The handshake failed.
    Failed(HandshakeResult),
}

/// A stream whose peer is known, and what ends it.
type Finished = (Box<dyn Stream>, watch::Receiver<bool>);

impl Acceptor {
    /// Does the handshake of a connection, by the files that are in use now.
    ///
    /// # Errors
    /// [`Unfinished`].
    pub(in crate::bridge) async fn accept(
        &self,
        stream: Box<dyn Stream>,
    ) -> Result<Finished, Unfinished> {
        let (config, end) = {
            let in_use = self.tls.0.in_use.read().unwrap_or_else(PoisonError::into_inner);
            (Arc::clone(&in_use.configs[self.protocol as usize]), in_use.end.subscribe())
        };
        select! {
            biased;
            accepted = TlsAcceptor::from(config).accept(stream) => match accepted {
                Ok(stream) => Ok((Box::new(stream), end)),
                Err(error) => Err(Unfinished::Failed(HandshakeResult::of(&error))),
            },
            () = ended(end.clone()) => Err(Unfinished::End),
            () = sleep(PATIENCE) => Err(Unfinished::Failed(HandshakeResult::Timeout)),
        }
    }

    /// Whether one more that failed is told of.
    pub(in crate::bridge) fn may_tell(&self) -> bool {
        self.tls.0.told.lock().unwrap_or_else(PoisonError::into_inner).has_room()
    }
}
