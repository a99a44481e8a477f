//! What an agent sees to: interfaces that are to be attached, and a document whose policy is to be in
//! force.
//!
//! It keeps no picture of how things are: each time it looks, and does what is missing. So it does not
//! matter who changed them meanwhile, or that it was not there.

use std::{collections::BTreeSet, path::PathBuf};

use limiter_common::rate::SECOND;

use super::{document::Document, event::Event};
use crate::{
    datapath::{
        bpffs::Pins,
        instance::{Attached, Choice, Instance, attached, exists},
        interface::{self, Interface},
        maps::Maps,
        policy::Origin,
        sizes::Sizes,
    },
    error::{Error, Result},
    inquiry,
    policy::{Policy, reading::name, spec::diff},
};

/// Seconds by which the clock has to be set for that to be noticed; both clocks are read a moment apart.
const STEP: i64 = 3;

/// How things are kept.
#[derive(Debug)]
pub(super) struct Keeper {
    pins: Pins,
    interfaces: Vec<String>,
    document: Option<Document>,
    /// The last policy of the document that could be read.
    good: Option<Good>,
    /// Whether it is to be compared with the one in force, and what for.
    due: Option<Due>,
    /// The slots whose programs are of this version.
    current: BTreeSet<u32>,
    /// By how many seconds Unix time was ahead of the clock that packets go by, when it was last looked at.
    ahead: Option<i64>,
    /// What failed last time, not to be told again.
    told: BTreeSet<String>,
}

/// A policy of a document.
#[derive(Debug)]
struct Good {
    policy: Policy,
    origin: Origin,
}

/// When a policy is put in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// If the document is another one: what commands changed since is meant to stay.
    Another,
    /// In any case.
    Anew,
}

impl Keeper {
    pub(super) fn new(pins: Pins, interfaces: Vec<String>, document: Option<PathBuf>) -> Self {
        Self {
            pins,
            interfaces,
            document: document.map(Document::new),
            good: None,
            due: None,
            current: BTreeSet::new(),
            ahead: None,
            told: BTreeSet::new(),
        }
    }

    /// Looks at everything, at a time of Unix in seconds, and does what is missing; a document is read
    /// and applied in any case when it is to be `reloaded`. What else failed is among the `errors`.
    pub(super) fn tend(&mut self, now: u64, reload: bool, mut errors: Vec<Error>) -> Vec<Event> {
        let mut events = Vec::new();
        self.read(now, reload, &mut events);
        match self.running() {
            Ok(running) => {
                let done = self.attach(&running, &mut events, &mut errors);
                errors.extend(done.err());
                errors.extend(self.replace(running, &mut events).err());
            }
            Err(error) => errors.push(error),
        }
        errors.extend(self.fit().err());
        errors.extend(self.follow_clock(now, &mut events).err());
        errors.extend(self.put_in_force(&mut events).err());
        let mut failures = BTreeSet::new();
        for error in errors {
            let what = match &error {
                // How long it is waited for is another time with each look.
                Error::Unconfirmed { .. } => "a trial".to_owned(),
                error => error.to_string(),
            };
            if failures.insert(what.clone()) && !self.told.contains(&what) {
                events.push(Event::Failed(error));
            }
        }
        self.told = failures;
        events
    }

    /// How many things failed at the last look, and are tried again.
    pub(super) fn failing(&self) -> u64 {
        self.told.len() as u64
    }

    /// Reads the document, if it is time to.
    fn read(&mut self, now: u64, reload: bool, events: &mut Vec<Event>) {
        let Some(document) = &mut self.document else { return };
        let Some(result) = document.look(now, reload) else { return };
        let read =
            result.and_then(|(policy, warnings)| Ok((Origin::of(&policy)?, policy, warnings)));
        match read {
            Ok((origin, policy, warnings)) => {
                if !warnings.list().is_empty() {
                    events.push(Event::Warned(warnings));
                }
                self.good = Some(Good { policy, origin });
                self.due = Some(if reload { Due::Anew } else { Due::Another });
            }
            Err(error) => events.push(Event::Rejected(error)),
        }
    }

    /// Attaches the interfaces that are there and are not attached.
    fn attach(
        &mut self,
        running: &[Attached],
        events: &mut Vec<Event>,
        errors: &mut Vec<Error>,
    ) -> Result<()> {
        let is_running = |interface: &Interface| {
            running.iter().any(|attached| attached.present && attached.index == interface.index)
        };
        let mut missing = interface::list()?;
        missing.retain(|it| self.interfaces.contains(&it.name) && !is_running(it));
        missing.retain(|interface| match interface.check_ethernet() {
            Ok(()) => true,
            Err(error) => {
                errors.extend(is_there(interface).then_some(error));
                false
            }
        });
        let Some(first) = missing.first() else { return Ok(()) };
        // What is attached is limited from its first packet on.
        let open = match (&self.good, &self.document) {
            (Some(Good { policy, origin }), _) => {
                Instance::open_or_create(&self.pins, &Sizes::default(), policy, Some(*origin))
            }
            (None, None) => {
                Instance::open_or_create(&self.pins, &Sizes::default(), &Policy::default(), None)
            }
            (None, Some(document)) => Instance::open(&self.pins).and_then(|running| {
                running.ok_or_else(|| Error::NoPolicy {
                    interface: first.name.clone(),
                    document: name(document.path()),
                })
            }),
        };
        let mut instance = open?;
        let mut attach = || {
            // The slot of one that is gone is free again.
            instance.reclaim()?;
            for interface in &missing {
                match instance.attach(interface, Choice::Auto) {
                    Ok(outcome) => events.push(Event::Attached {
                        interface: interface.name.clone(),
                        mode: outcome.mode,
                    }),
                    // One that cannot be attached keeps no other from it.
                    Err(error) => errors.extend(is_there(interface).then_some(error)),
                }
            }
            Ok(())
        };
        let result = attach();
        for attached in instance.attached()? {
            // It was just loaded.
            if missing.iter().any(|interface| attached.present && interface.index == attached.index)
            {
                self.current.insert(attached.slot);
            }
        }
        instance.close()?;
        result
    }

    /// Puts the programs of this version in the place of those that another agent, or a command, left.
    fn replace(&mut self, mut running: Vec<Attached>, events: &mut Vec<Event>) -> Result<()> {
        running.retain(|attached| attached.exists && !self.current.contains(&attached.slot));
        if running.is_empty() {
            return Ok(());
        }
        let Some(instance) = Instance::open(&self.pins)? else { return Ok(()) };
        for attached in running {
            instance.replace(&attached)?;
            self.current.insert(attached.slot);
            events.push(Event::Replaced { interface: attached.name });
        }
        Ok(())
    }

    /// Has the policy in force compiled for the interfaces that are attached.
    fn fit(&self) -> Result<()> {
        if !exists(&self.pins)? || Maps::open(&self.pins)?.fits_interfaces()? {
            return Ok(());
        }
        self.compile()
    }

    /// Has the ends of what is listed for a time counted anew, if somebody set the clock: packets go by one
    /// that nobody sets.
    fn follow_clock(&mut self, now: u64, events: &mut Vec<Event>) -> Result<()> {
        let ahead = now.cast_signed() - (inquiry::now() / SECOND).cast_signed();
        let seconds = ahead - *self.ahead.get_or_insert(ahead);
        if seconds.abs() < STEP {
            return Ok(());
        }
        if exists(&self.pins)? {
            self.compile()?;
        }
        self.ahead = Some(ahead);
        events.push(Event::ClockSet { seconds });
        Ok(())
    }

    /// Compiles the policy in force again.
    fn compile(&self) -> Result<()> {
        let Some(mut instance) = Instance::open(&self.pins)? else { return Ok(()) };
        let policy = instance.maps().settled()?;
        instance.maps_mut().apply(&policy)
    }

    /// Puts the policy of the document in force, if that is due.
    fn put_in_force(&mut self, events: &mut Vec<Event>) -> Result<()> {
        let (Some(good), Some(document), Some(due)) = (&self.good, &self.document, self.due) else {
            return Ok(());
        };
        let Some(mut instance) = Instance::open(&self.pins)? else { return Ok(()) };
        let in_force = instance.maps().in_force()?;
        let document = document.path().to_owned();
        if in_force.origin == Some(good.origin) && due == Due::Another {
            self.due = None;
            events.push(Event::Unchanged { document });
            return Ok(());
        }
        let changes = diff(&in_force.policy, &good.policy).len();
        match instance.maps_mut().follow(&good.policy, good.origin) {
            Ok(()) if changes == 0 => events.push(Event::Unchanged { document }),
            Ok(()) => events.push(Event::Applied { document, changes }),
            // It is right in itself, but there is no room for it here.
            Err(error) if error.is_of_policy() => events.push(Event::Rejected(error)),
            Err(error) => return Err(error),
        }
        self.due = None;
        Ok(())
    }

    /// What is attached.
    fn running(&self) -> Result<Vec<Attached>> {
        if exists(&self.pins)? {
            attached(&self.pins, &Maps::open(&self.pins)?)
        } else {
            Ok(Vec::new())
        }
    }
}

/// Whether an interface is still there, and so what was done about it really failed.
fn is_there(interface: &Interface) -> bool {
    interface::list().is_ok_and(|here| here.contains(interface))
}
