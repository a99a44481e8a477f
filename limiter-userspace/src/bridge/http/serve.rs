//! Accepting connections, and how many there may be.

use std::{
    collections::VecDeque,
    future::ready,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{io::AsyncWriteExt as _, select, sync::watch, task::AbortHandle, time::sleep};

use super::Service;
use crate::bridge::{
    end::ended,
    event::Event,
    listener::{Listener, Peer, Stream},
    tls::{Acceptor, HandshakeResult, Unfinished},
};

/// The most connections of users who may ask, and as many by loopback addresses, and of proxies on other hosts. One more is
/// answered 503 at once.
const CONNECTIONS: usize = 4_096;
/// The most connections of others, who may read what is no secret. They take no place of those who may ask.
const OTHERS: usize = 64;
/// The most handshakes of a listener at once. One more takes the place of the oldest: whoever is silent holds up nobody.
const HANDSHAKES: usize = 256;
/// How long is waited where no connection can be accepted, as there are no more descriptors.
const PAUSE: Duration = Duration::from_millis(100);
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
/// then are answered to their end. With `tls`, a peer has to present a certificate before.
pub(in crate::bridge) async fn serve<C: Future<Output = ()> + Send + 'static>(
    listener: Listener,
    tls: Option<Acceptor>,
    service: Arc<Service>,
    end: watch::Receiver<bool>,
    converse: fn(Accepted) -> C,
) {
    // At the end, those that wait already are answered still.
    let mut ended = pin!(ended(end.clone()));
    let mut handshakes = Handshakes::default();
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
        let Ok((stream, peer)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let Some(tls) = &tls else {
            admit(stream, peer, &service, end.clone(), converse).await;
            continue;
        };
        let task = tokio::spawn(meet(tls.clone(), stream, peer, Arc::clone(&service), converse));
        if handshakes.add(task.abort_handle()) {
            service.tallies.shook_hands(HandshakeResult::Displaced);
        }
    }
}

/// Has a connection answered whose peer is known, if there is a place for it.
async fn admit<C: Future<Output = ()> + Send + 'static>(
    mut stream: Box<dyn Stream>,
    peer: Peer,
    service: &Arc<Service>,
    end: watch::Receiver<bool>,
    converse: fn(Accepted) -> C,
) {
    if let Some(place) = Place::take(service, peer) {
        tokio::spawn(converse(Accepted { stream, peer, end, place }));
        return;
    }
    service.tallies.turned_away();
    // Into an empty buffer, so that nothing is waited for.
    let write = async { drop(stream.write_all(TURNED_AWAY).await) };
    select! { biased; () = write => {}, () = sleep(Duration::ZERO) => {} }
}

/// Has a connection answered if its peer presents a certificate.
async fn meet<C: Future<Output = ()> + Send + 'static>(
    tls: Acceptor,
    stream: Box<dyn Stream>,
    peer: Peer,
    service: Arc<Service>,
    converse: fn(Accepted) -> C,
) {
    match tls.accept(stream).await {
        Ok((stream, end)) => {
            service.tallies.shook_hands(HandshakeResult::Completed);
            admit(stream, Peer::Certificate, &service, end, converse).await;
        }
        Err(Unfinished::Failed(result)) => {
            service.tallies.shook_hands(result);
            if let Peer::Address(from) = peer
                && tls.may_tell()
            {
                service.link.tell(Event::HandshakeFailed { from, result });
            }
        }
        Err(Unfinished::End) => {}
    }
}

/// The handshakes of a listener that are under way, the oldest first, and some that are over.
#[derive(Default)]
struct Handshakes(VecDeque<AbortHandle>);

impl Handshakes {
    /// Adds one. Where there are too many, the oldest is given up; returns whether one was.
    fn add(&mut self, task: AbortHandle) -> bool {
        if self.0.len() >= HANDSHAKES {
            self.0.retain(|it| !it.is_finished());
        }
        let oldest = if self.0.len() >= HANDSHAKES { self.0.pop_front() } else { None };
        if let Some(oldest) = &oldest {
            oldest.abort();
        }
        self.0.push_back(task);
        oldest.is_some()
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
            Peer::Address(_) => (1, CONNECTIONS),
            Peer::Certificate => (3, CONNECTIONS),
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

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, DuplexStream, duplex},
        task::yield_now,
    };

    use super::*;
    use crate::bridge::{
        http::{NOBODY, converse},
        kernel::Kernel,
    };

    /// Connects, and is answered or turned away.
    async fn connected(
        service: &Arc<Service>,
        peer: Peer,
        end: &watch::Receiver<bool>,
    ) -> DuplexStream {
        let (near, far) = duplex(1 << 10);
        admit(Box::new(near), peer, service, end.clone(), converse).await;
        far
    }

    /// The status of the answer to a request.
    async fn ask(stream: &mut DuplexStream) -> String {
        // Who was turned away has its answer already.
        let _: std::io::Result<()> =
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: bridge\r\n\r\n").await;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        String::from_utf8(status.to_vec()).unwrap()
    }

    #[test]
    fn one_proxy_elsewhere_too_many_is_turned_away_and_others_are_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let service = Service::of("version: 1\n", Kernel::new(NOBODY.as_ref()));
            let (_ending, end) = watch::channel(false);
            let mut all = Vec::new();
            for _ in 0..CONNECTIONS {
                all.push(connected(&service, Peer::Certificate, &end).await);
            }
            let mut more = connected(&service, Peer::Certificate, &end).await;
            assert_eq!(ask(&mut more).await, "HTTP/1.1 503");
            assert_eq!(ask(&mut all[0]).await, "HTTP/1.1 200");
            // These have places of their own.
            for peer in [Peer::User(7), Peer::Address(([127, 0, 0, 1], 7).into()), Peer::User(8)] {
                assert_eq!(ask(&mut connected(&service, peer, &end).await).await, "HTTP/1.1 200");
            }
            all.pop();
            while service.connections[3].load(Relaxed) >= CONNECTIONS {
                yield_now().await;
            }
            let mut next = connected(&service, Peer::Certificate, &end).await;
            assert_eq!(ask(&mut next).await, "HTTP/1.1 200");
        });
    }

    #[test]
    fn a_handshake_too_many_takes_the_place_of_the_oldest() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let silent = || tokio::spawn(std::future::pending::<()>());
            let mut handshakes = Handshakes::default();
            let mut tasks: Vec<_> = (0..HANDSHAKES).map(|_| silent()).collect();
            for task in &tasks {
                assert!(!handshakes.add(task.abort_handle()));
            }
            // One that is over has a place to give.
            tasks[7].abort();
            assert!(tasks.remove(7).await.unwrap_err().is_cancelled());
            assert!(!handshakes.add(silent().abort_handle()));
            assert!(handshakes.add(silent().abort_handle()));
            assert!(tasks.remove(0).await.unwrap_err().is_cancelled());
            assert!(!tasks[0].is_finished());
            assert_eq!(handshakes.0.len(), HANDSHAKES);
        });
    }
}
