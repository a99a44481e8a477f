//! The policy in force and what decides by it, for whoever serves.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    answer::{Answer, Standing},
    decide::{Counts, Decider, Item, OpenRequests, PARTS, Settlement, compile},
    lease::Leases,
    request::Request,
    table::Table,
};
use crate::{
    policy::{Policy, PolicyError},
    query,
};

/// A decider and its policy, which change together.
pub struct InForce(Mutex<Inner>);

struct Inner {
    decider: Decider,
    policy: Arc<Policy>,
}

impl InForce {
    /// Puts a first policy in force.
    ///
    /// # Errors
    /// As [`Decider::new`].
    pub fn new(policy: Policy, table: Table) -> Result<Self, PolicyError> {
        let decider = Decider::new(&policy, table)?;
        Ok(Self(Mutex::new(Inner { decider, policy: Arc::new(policy) })))
    }

    /// What is hashed with; see [`Decider::seed`].
    pub fn seed(&self) -> [u64; 2] {
        self.lock().decider.seed()
    }

    /// See [`Decider::repeats`]. Decisions wait for one part at a time.
    pub(super) fn repeats(&self, now: u64) -> Vec<[u64; 4]> {
        let mut all = Vec::new();
        for part in 0..PARTS {
            all.extend(self.lock().decider.repeats(part, now));
        }
        all
    }

    /// See [`Decider::repeat_changes`].
    pub(super) fn repeat_changes(&self) -> u64 {
        self.lock().decider.repeat_changes()
    }

    /// See [`Decider::restore_repeats`].
    pub(super) fn restore_repeats(&self, repeats: &[[u64; 4]]) {
        self.lock().decider.restore_repeats(repeats);
    }

    /// Puts another policy in force.
    ///
    /// # Errors
    /// As [`Decider::apply`]; the policy before stays.
    pub fn apply(&self, policy: Policy) -> Result<(), PolicyError> {
        // Requests are decided about meanwhile: long lists take seconds.
        let seed = self.lock().decider.seed();
        let compiled = compile(&policy, seed)?;
        let policy = Arc::new(policy);
        let mut inner = self.lock();
        let before = (inner.decider.adopt(compiled), std::mem::replace(&mut inner.policy, policy));
        drop(inner);
        drop(before);
        Ok(())
    }

    /// Decides about a request that costs `cost`, at `now` in ns of `CLOCK_MONOTONIC`; with `peek`, nothing is charged. Returns
    /// the policy that the answer is of, too.
    pub fn decide(
        &self,
        request: &Request<'_>,
        cost: u64,
        peek: bool,
        now: u64,
    ) -> (Answer, Arc<Policy>) {
        let mut answer = Answer::default();
        let mut inner = self.lock();
        match peek {
            true => inner.decider.peek(request, cost, now, &mut answer),
            false => inner.decider.decide(request, cost, now, &mut answer),
        }
        (answer, Arc::clone(&inner.policy))
    }

    /// Decides about several requests at once, as [`Decider::decide_all`] does. The answers are in their order.
    pub fn decide_all(&self, items: &[Item<'_>], now: u64) -> (Vec<Answer>, Arc<Policy>) {
        let mut answers = vec![Answer::default(); items.len()];
        let mut inner = self.lock();
        inner.decider.decide_all(items, now, &mut answers);
        (answers, Arc::clone(&inner.policy))
    }

    /// Settles `cost` times what a request costs, as [`Decider::settle`], at `now` in ns of `CLOCK_MONOTONIC`. Returns whether
    /// anything is about the request, what is left, and the policy that the answer is of.
    pub fn settle(
        &self,
        request: &Request<'_>,
        cost: u64,
        settlement: Settlement,
        now: u64,
    ) -> (bool, Answer, Arc<Policy>) {
        let mut answer = Answer::default();
        let mut inner = self.lock();
        let is_about = inner.decider.settle(request, cost, settlement, now, &mut answer);
        (is_about, answer, Arc::clone(&inner.policy))
    }

    /// What limits that count by the source alone have left for a source, and the policy that these are of: as
    /// [`Decider::of_source`].
    pub fn of_source(&self, source: IpAddr, now: u64) -> (Vec<Standing>, Arc<Policy>) {
        let mut inner = self.lock();
        (inner.decider.of_source(source, now), Arc::clone(&inner.policy))
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.lock().policy)
    }

    /// Gives back the places of requests that ended by `now` in ns of `CLOCK_MONOTONIC`, as [`Decider::release`].
    pub fn release(&self, leases: &Leases, now: u64) {
        self.lock().decider.release(leases, now);
    }

    /// What was counted by the limits of the policy in force, what counts their open requests, and that policy.
    pub fn counts(&self) -> (Counts, OpenRequests, Arc<Policy>) {
        let inner = self.lock();
        (inner.decider.counts(), inner.decider.open(), Arc::clone(&inner.policy))
    }

    /// The places that an answer has, until it is told.
    pub fn untold(self: &Arc<Self>, answer: &Answer) -> Untold {
        let leases = answer.leases.clone();
        Untold { in_force: Arc::clone(self), leases }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each charge is whole, whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places of a request whose answer was told to nobody yet. They are given back if this is dropped before, as where the
/// connection breaks: nobody else can.
pub struct Untold {
    in_force: Arc<InForce>,
    leases: Leases,
}

impl Untold {
    /// Leaves the places to whoever was told of them.
    pub fn tell(mut self) {
        self.leases = Leases::default();
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        if !self.leases.is_empty() {
            self.in_force.release(&self.leases, query::now());
        }
    }
}

#[cfg(test)]
mod tests;
