//! What the bridge counts of requests to it, for monitoring systems.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{
    bridge::tls::{HandshakeResult, Loaded},
    metrics::{
        Family, Kind,
        Value::{Real, Whole},
    },
};

/// The upper bounds of the buckets of the histogram of times, in microseconds.
const BUCKETS: [u64; 10] = [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000];

/// Endpoints that decide about requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) enum Timed {
    /// `/v1/auth`.
    Auth,
    /// `/v1/ext_authz`.
    ExtAuthz,
    /// `ShouldRateLimit`.
    RateLimit,
    /// The questions of HAProxy.
    Spop,
}

impl Timed {
    const ALL: [Self; 4] = [Self::Auth, Self::ExtAuthz, Self::RateLimit, Self::Spop];

    /// The label of the endpoint.
    pub(in crate::bridge) const fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::ExtAuthz => "ext_authz",
            Self::RateLimit => "ratelimit",
            Self::Spop => "spop",
        }
    }
}

/// The times that the answers of an endpoint took.
#[derive(Debug, Default)]
struct Times {
    /// Answers by the first bucket that they fit in; the last are beyond all of them.
    buckets: [AtomicU64; BUCKETS.len() + 1],
    /// The sum of the times, in ns.
    sum: AtomicU64,
}

/// When certificates in use end, in seconds of Unix time, and whether the files are as they were read last.
#[derive(Debug)]
struct Certificate {
    expires: u64,
    ca_expires: u64,
    is_current: bool,
}

/// The counts of requests, of handshakes, and of documents.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Tallies {
    /// By endpoint and status.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// By the place of the endpoint in [`Timed::ALL`].
    times: [Times; Timed::ALL.len()],
    /// Connections that were turned away.
    turned_away: AtomicU64,
    /// Handshakes by their place in [`HandshakeResult::ALL`].
    handshakes: [AtomicU64; HandshakeResult::ALL.len()],
    /// What of the files of mutual TLS is in use.
    certificate: Mutex<Option<Certificate>>,
    applied: AtomicU64,
    rejected: AtomicU64,
    /// Whether the document that was read last is in force: 1 or 0.
    successful: AtomicU64,
    /// When a document was put in force last, in seconds of Unix time.
    success: AtomicU64,
}

impl Tallies {
    /// Counts an answer.
    pub(in crate::bridge) fn answered(&self, endpoint: &'static str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((endpoint, status)).or_default() += 1;
    }

    /// Counts the time that an answer took.
    pub(in crate::bridge) fn took(&self, endpoint: Timed, time: Duration) {
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS.partition_point(|bound| *bound < microseconds);
        let times = &self.times[endpoint as usize];
        times.buckets[bucket].fetch_add(1, Relaxed);
        times.sum.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Counts a connection that was turned away.
    pub(super) fn turned_away(&self) {
        self.turned_away.fetch_add(1, Relaxed);
    }

    /// Counts a handshake.
    pub(super) fn shook_hands(&self, result: HandshakeResult) {
        self.handshakes[result as usize].fetch_add(1, Relaxed);
    }

    /// Notes that the files of mutual TLS are in use.
    pub(in crate::bridge) fn certified(&self, loaded: &Loaded) {
        let Loaded { expires, ca_expires, .. } = *loaded;
        *self.certificate.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Certificate { expires, ca_expires, is_current: true });
    }

    /// Notes that the files of mutual TLS were read and are not used.
    pub(in crate::bridge) fn certificate_rejected(&self) {
        let mut certificate = self.certificate.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(certificate) = &mut *certificate {
            certificate.is_current = false;
        }
    }

    /// Notes that a document was put in force at a time of Unix, in seconds.
    pub(in crate::bridge) fn applied(&self, unix: u64) {
        self.applied.fetch_add(1, Relaxed);
        self.successful.store(1, Relaxed);
        self.success.store(unix, Relaxed);
    }

    /// Notes that a document was rejected.
    pub(in crate::bridge) fn rejected(&self) {
        self.rejected.fetch_add(1, Relaxed);
        self.successful.store(0, Relaxed);
    }

    /// The same for monitoring systems, and the numbers of open connections and of answers that are held back.
    pub(super) fn families(&self, connections: usize, held: usize) -> Vec<Family> {
        let counter = |name, help| Family::new(name, Kind::Counter, help);
        let gauge = |name, help| Family::new(name, Kind::Gauge, help);
        let of = |count: &AtomicU64| Whole(count.load(Relaxed));
        let mut requests = counter(
            "limiter_bridge_requests_total",
            "Requests to the bridge that were answered, by endpoint and status; of auth, 204 passes, and of ext_authz and ratelimit, 200.",
        );
        for ((endpoint, code), number) in
            &*self.requests.lock().unwrap_or_else(PoisonError::into_inner)
        {
            requests.push([("endpoint", *endpoint), ("code", &code.to_string())], Whole(*number));
        }
        let mut handshakes = counter(
            "limiter_bridge_handshakes_total",
            "Handshakes of mutual TLS by how they ended: completed, or why they failed.",
        );
        for (result, count) in HandshakeResult::ALL.iter().zip(&self.handshakes) {
            handshakes.push([("result", result.name())], of(count));
        }
        let mut expires = gauge(
            "limiter_bridge_certificate_expiry_timestamp_seconds",
            "Until when the certificate of the bridge is valid, in Unix time; nothing without mutual TLS.",
        );
        let mut ca_expires = gauge(
            "limiter_bridge_client_ca_expiry_timestamp_seconds",
            "The same of the CA that certificates of proxies are signed by.",
        );
        let mut is_current = gauge(
            "limiter_bridge_certificate_last_reload_successful",
            "1 where the certificate, the key and the CA that were read last are used.",
        );
        if let Some(certificate) = &*self.certificate.lock().unwrap_or_else(PoisonError::into_inner)
        {
            expires.push([], Whole(certificate.expires));
            ca_expires.push([], Whole(certificate.ca_expires));
            is_current.push([], Whole(certificate.is_current.into()));
        }
        vec![
            requests,
            handshakes,
            expires,
            ca_expires,
            is_current,
            self.histogram(),
            gauge("limiter_bridge_connections", "Connections to the bridge that are open.")
                .with([], Whole(connections as u64)),
            gauge(
                "limiter_bridge_held",
                "Answers that are held back until the turn of their requests (delay).",
            )
            .with([], Whole(held as u64)),
            counter(
                "limiter_bridge_connections_turned_away_total",
                "Connections that were answered 503 at once, as there were too many.",
            )
            .with([], of(&self.turned_away)),
            counter(
                "limiter_policy_reloads_total",
                "How often the document was read: applied, in force already, or rejected.",
            )
            .with([("result", "applied")], of(&self.applied))
            .with([("result", "rejected")], of(&self.rejected)),
            gauge(
                "limiter_policy_last_reload_successful",
                "1 where the document that was read last is used: it was applied then, or was in force already.",
            )
            .with([], of(&self.successful)),
            gauge(
                "limiter_policy_last_reload_success_timestamp_seconds",
                "When a document was put in force last, in Unix time; 0 if none was.",
            )
            .with([], of(&self.success)),
        ]
    }

    fn histogram(&self) -> Family {
        let mut family = Family::new(
            "limiter_bridge_seconds",
            Kind::Histogram,
            "Time from a request to an endpoint that decides until its answer, without reading and writing them.",
        );
        for (endpoint, times) in Timed::ALL.iter().zip(&self.times) {
            let (label, mut sum) = (("endpoint", endpoint.name()), 0);
            for (place, count) in times.buckets.iter().enumerate() {
                sum += count.load(Relaxed);
                let bound = BUCKETS.get(place).map(|bound| (*bound as f64 / 1e6).to_string());
                let bound = bound.as_deref().unwrap_or("+Inf");
                family.push_part("_bucket", [label, ("le", bound)], Whole(sum));
            }
            let time = Duration::from_nanos(times.sum.load(Relaxed)).as_secs_f64();
            family.push_part("_sum", [label], Real(time));
            family.push_part("_count", [label], Whole(sum));
        }
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_its_bucket_and_all_above() {
        let tallies = Tallies::default();
        for microseconds in [0, 50, 51, 50_000, 50_001] {
            tallies.took(Timed::Auth, Duration::from_micros(microseconds));
        }
        let text = tallies.histogram().to_string();
        for line in [
            "# TYPE limiter_bridge_seconds histogram",
            "limiter_bridge_seconds_bucket{endpoint=\"auth\",le=\"0.00005\"} 2",
            "limiter_bridge_seconds_bucket{endpoint=\"auth\",le=\"0.0001\"} 3",
            "limiter_bridge_seconds_bucket{endpoint=\"auth\",le=\"0.025\"} 3",
            "limiter_bridge_seconds_bucket{endpoint=\"auth\",le=\"0.05\"} 4",
            "limiter_bridge_seconds_bucket{endpoint=\"auth\",le=\"+Inf\"} 5",
            "limiter_bridge_seconds_sum{endpoint=\"auth\"} 0.100102",
            "limiter_bridge_seconds_count{endpoint=\"auth\"} 5",
        ] {
            assert!(text.lines().any(|it| it == line), "no {line} in\n{text}");
        }
    }
}
