//! Accepting connections, and how many there may be.

use std::{
    future::ready,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{io::AsyncWriteExt as _, select, sync::watch, time::sleep};

use super::Service;
use crate::bridge::listener::{Listener, Peer, Stream};

/// The most connections of users who may ask, and as many by loopback addresses. One more is answered 503 at once.
const CONNECTIONS: usize = 4_096;
/// The most connections of others, who may read what is no secret. They take no place of those who may ask.
const OTHERS: usize = 64;
/// How long is waited where no connection can be accepted, as there are no more descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// How long connections and requests are taken still once the end began. The runtime may not have seen yet what was sent
/// before.
const GRACE: Duration = Duration::from_millis(10);
/// The answer to a connection that is turned away.
const TURNED_AWAY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A connection that was accepted, whose conversation ends soon once `end` is true.
pub(in crate::bridge) struct Accepted {
    pub(in crate::bridge) stream: Box<dyn Stream>,
    pub(in crate::bridge) peer: Peer,
    pub(in crate::bridge) end: watch::Receiver<bool>,
    pub(super) place: Place,
}

impl Accepted {
    /// What its requests are answered by.
    pub(in crate::bridge) const fn service(&self) -> &Arc<Service> {
        &self.place.service
    }

    /// What is read and written, and what counts the connection until it is dropped.
    pub(in crate::bridge) fn into_parts(self) -> (Box<dyn Stream>, impl Sized) {
        (self.stream, self.place)
    }
}

/// Answers the requests of a listener, by a conversation for each connection, until `end` is true. Connections that are open
/// then are answered to their end.
pub(in crate::bridge) async fn serve<C: Future<Output = ()> + Send + 'static>(
    listener: Listener,
    service: Arc<Service>,
    end: watch::Receiver<bool>,
    converse: fn(Accepted) -> C,
) {
    // At the end, those that wait already are answered still.
    let mut ended = pin!(ended(end.clone()));
    let mut left = None;
    loop {
        let accepted = select! {
            biased;
            () = &mut ended, if left.is_none() => {
                left = Some(CONNECTIONS);
                continue;
            }
            accepted = listener.accept() => accepted,
            () = ready(()), if left.is_some() => return,
        };
        left = match left {
            Some(0) => return,
            left => left.map(|left| left - 1),
        };
        let Ok((mut stream, peer)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let Some(place) = Place::take(&service, peer) else {
            service.tallies.turned_away();
            // Into an empty buffer, so that nothing is waited for.
            let write = async { drop(stream.write_all(TURNED_AWAY).await) };
            select! { biased; () = write => {}, () = sleep(Duration::ZERO) => {} }
            continue;
        };
        tokio::spawn(converse(Accepted { stream, peer, end: end.clone(), place }));
    }
}

/// One of the connections that there may be of a kind of peers.
pub(super) struct Place {
    pub(super) service: Arc<Service>,
    kind: usize,
}

impl Place {
    fn take(service: &Arc<Service>, peer: Peer) -> Option<Self> {
        // Who comes by a loopback address may be anybody, and takes no place of those who are known.
        let (kind, most) = match peer {
            _ if service.check(peer).is_err() => (2, OTHERS),
            Peer::User(_) => (0, CONNECTIONS),
            Peer::Host => (1, CONNECTIONS),
        };
        // Its end gives the place back, also where there was none.
        let place = Self { service: Arc::clone(service), kind };
        (place.connections().fetch_add(1, Relaxed) < most).then_some(place)
    }

    fn connections(&self) -> &AtomicUsize {
        &self.service.connections[self.kind]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections().fetch_sub(1, Relaxed);
    }
}

/// Has a connection answer until it ends, or until `end` is true: `shut` begins its end then, and what was asked before is
/// answered still.
pub(in crate::bridge) async fn until<C: Future>(
    connection: C,
    shut: impl FnOnce(Pin<&mut C>),
    end: watch::Receiver<bool>,
) {
    let mut connection = pin!(connection);
    // Whoever asks learns by itself that the connection broke.
    select! {
        biased;
        _ = &mut connection => return,
        () = ended(end) => {}
    }
    shut(connection.as_mut());
    let _: C::Output = connection.await;
}

/// Waits until `end` is true, and a little longer.
pub(in crate::bridge) async fn ended(mut end: watch::Receiver<bool>) {
    // Nobody is left to say so, which is an end too.
    let _: Result<_, _> = end.wait_for(|end| *end).await;
    sleep(GRACE).await;
}
