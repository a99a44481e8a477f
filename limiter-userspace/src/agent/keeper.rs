//! What an agent sees to: interfaces that are to be attached, and a document whose policy is to be in
//! force.
//!
//! It keeps no picture of how things are: each time it looks, and does what is missing. So it does not
//! matter who changed them meanwhile, or that it was not there.

use std::{collections::BTreeSet, path::PathBuf, time::Instant};

use limiter_common::rate::SECOND;

use super::{document::Document, event::Event, faults::Faults};
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
    /// The instance that was there at the last look, by its number.
    instance: Option<u32>,
    /// The links whose programs are of this version, by their numbers.
    current: BTreeSet<u32>,
    /// By how many seconds Unix time was ahead of the clock that packets go by, when it was last looked at.
    ahead: Option<i64>,
    /// What failed, not to be told again.
    faults: Faults,
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
            instance: None,
            current: BTreeSet::new(),
            ahead: None,
            faults: Faults::default(),
        }
    }

    /// Looks at everything, at a time of Unix in seconds, and does what is missing; a document is read
    /// and applied in any case when it is to be `reloaded`. What else failed is among the `errors`.
    pub(super) fn tend(&mut self, now: u64, reload: bool, mut errors: Vec<Error>) -> Vec<Event> {
        let mut events = Vec::new();
        // Before anything that takes time.
        let ahead = now.cast_signed() - (inquiry::now() / SECOND).cast_signed();
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
        errors.extend(self.follow_clock(ahead, &mut events).err());
        errors.extend(self.put_in_force(&mut events).err());
        events.extend(self.faults.news(errors, Instant::now()));
        events
    }

    /// How many things failed at the last look, and are tried again.
    pub(super) fn failing(&self) -> u64 {
        self.faults.failing()
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
            running.iter().any(|it| it.present && it.index == interface.index)
        };
        let mut missing = interface::list()?;
        missing.retain(|it| self.interfaces.contains(&it.name) && !is_running(it));
        // No instance is made, again and again, for one that does not take it.
        missing.retain(|interface| match fitness(interface) {
            Ok(()) => true,
            Err(error) => {
                let is_fault = is_there(interface) && !self.has_attached(interface);
                errors.extend(is_fault.then_some(error));
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
        self.meet(instance.maps().number()?, instance.is_fresh());
        // Somebody may have made it, or attached some, since it was looked at.
        let already = instance.attached()?;
        missing.retain(|it| !already.iter().any(|at| at.present && at.index == it.index));
        let mut made = Vec::new();
        let mut attach = || {
            // The slot of one that is gone is free again.
            instance.reclaim()?;
            for interface in &missing {
                match instance.attach(interface, Choice::Auto) {
                    Ok(outcome) => {
                        made.push(interface.index);
                        events.push(Event::Attached {
                            interface: interface.name.clone(),
                            mode: outcome.mode,
                        });
                    }
                    // One that cannot be attached keeps no other from it.
                    Err(error) => errors.extend(is_there(interface).then_some(error)),
                }
            }
            Ok(())
        };
        let result = attach();
        for attached in instance.attached()? {
            // It was just loaded.
            if attached.present && made.contains(&attached.index) {
                self.current.insert(attached.link);
            }
        }
        instance.close()?;
        result
    }

    /// Puts the programs of this version in the place of those that another agent, or a command, left.
    fn replace(&mut self, mut running: Vec<Attached>, events: &mut Vec<Event>) -> Result<()> {
        running.retain(|it| it.exists && !self.current.contains(&it.link));
        if running.is_empty() {
            return Ok(());
        }
        let Some(mut instance) = Instance::open(&self.pins)? else { return Ok(()) };
        for attached in running {
            instance.replace(&attached)?;
            self.current.insert(attached.link);
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
    /// that nobody sets, which Unix time is so many seconds `ahead` of.
    fn follow_clock(&mut self, ahead: i64, events: &mut Vec<Event>) -> Result<()> {
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

    /// Notes the number of the instance that is there. Where somebody else made it anew meanwhile, the document
    /// is to be in force there too, as it would be if this agent had come only now.
    fn meet(&mut self, number: u32, is_own: bool) {
        let before = self.instance.replace(number);
        if !is_own && before.is_some_and(|before| before != number) {
            self.due = self.due.or(self.good.as_ref().map(|_| Due::Another));
        }
    }

    /// Whether an interface is attached to this instance by now.
    fn has_attached(&self, interface: &Interface) -> bool {
        let list = || match exists(&self.pins)? {
            true => attached(&self.pins, &Maps::open(&self.pins)?),
            false => Ok(Vec::new()),
        };
        let is_it = |at: &Attached| at.present && at.index == interface.index;
        list().is_ok_and(|list| list.iter().any(is_it))
    }

    /// What is attached.
    fn running(&mut self) -> Result<Vec<Attached>> {
        if !exists(&self.pins)? {
            return Ok(Vec::new());
        }
        let maps = Maps::open(&self.pins)?;
        self.meet(maps.number()?, false);
        let running = attached(&self.pins, &maps)?;
        self.current.retain(|link| running.iter().any(|attached| attached.link == *link));
        Ok(running)
    }
}

/// Whether a program can come to be on an interface that has none of this instance.
fn fitness(interface: &Interface) -> Result<()> {
    interface.check_ethernet()?;
    match interface.program() {
        Some(program) => Err(Error::ForeignProgram { interface: interface.name.clone(), program }),
        None => Ok(()),
    }
}

/// Whether an interface is still there, and so what was done about it really failed.
fn is_there(interface: &Interface) -> bool {
    interface::list().is_ok_and(|here| here.contains(interface))
}
