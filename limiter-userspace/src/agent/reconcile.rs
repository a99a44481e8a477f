//! What an agent sees to: interfaces that are to be attached, and a document whose policy is to be in
//! force.
//!
//! It keeps no picture of how things are: each time it looks, and does what is missing. So it does not
//! matter who changed them meanwhile, or that it was not there.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Instant};

use limiter_common::algorithm::rate::SECOND;

use super::{
    backoff::Backoff,
    document::Document,
    event::Event,
    faults::Faults,
    offer::{Good, Offer},
    retries::{Retries, Work},
    wanted::{Waits, Wanted, status},
};
use crate::{
    datapath::{
        bpffs::Pins,
        claim::Claim,
        exchange::Exchanged,
        host,
        instance::{Attached, Choice, Instance, attached},
        interface::{self, Interface},
        link::exists,
        main_program,
        maps::Maps,
        policy::Origin,
        sizes::{NoRoom, Sizes},
        sys,
    },
    error::{Error, Result},
    policy::{
        Policy,
        document::diff,
        guard::guard,
        interfaces::{Port, listed},
        reading::name,
    },
    query,
};

/// Seconds by which the clock has to be set for that to be noticed; both clocks are read a moment apart.
const STEP: i64 = 3;

/// How things are kept.
#[derive(Debug)]
pub(super) struct Reconciler {
    pins: Pins,
    interfaces: Vec<String>,
    document: Option<Document>,
    /// The policy of the document that was read last, until it is accepted.
    offer: Option<Offer>,
    /// The last policy of the document that was accepted.
    good: Option<Good>,
    /// Whether it is to be compared with the one in force, and what for.
    due: Option<Due>,
    waits_for_trial: bool,
    /// The instance that was there at the last look, by its number.
    instance: Option<u32>,
    /// The links whose programs are of this version, by their numbers.
    current: BTreeSet<u32>,
    /// By how many seconds Unix time was ahead of the clock that packets go by, when it was last looked at.
    ahead: Option<i64>,
    /// That no other agent sees to the instance.
    claim: Option<Claim>,
    /// The number of the instance and the epoch whose run-time lists are in their file.
    kept: Option<(u32, u32)>,
    /// What the policy in force was last seen to fit.
    fits: Option<Fits>,
    /// Why an exchange that another process began could not be finished, and what became of it, met at this look.
    unfinished: Option<Error>,
    /// What takes long and failed.
    retries: Retries,
    /// When a main program that was missing may be loaded again.
    loads: Backoff,
    /// Why that failed, when it was tried last.
    unloaded: Option<Arc<Error>>,
    /// What failed, not to be told again.
    faults: Faults,
    /// What it waits for, not to be told again.
    waits: Waits,
    /// How things were at the last look, for a service manager.
    status: String,
}

/// What a compiled policy fits.
#[derive(Debug)]
struct Fits {
    /// The number of the instance, and the epoch.
    policy: (u32, u32),
    ports: Vec<Port>,
    /// When it has to be compiled again, in seconds of Unix time; `None`: never.
    stale: Option<u64>,
}

/// When a policy is put in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// If the document is another one: what commands changed since is meant to stay.
    Another,
    /// In any case.
    Anew,
}

impl Reconciler {
    pub(super) fn new(pins: Pins, interfaces: Vec<String>, document: Option<PathBuf>) -> Self {
        Self {
            pins,
            interfaces,
            document: document.map(Document::new),
            offer: None,
            good: None,
            due: None,
            waits_for_trial: false,
            instance: None,
            current: BTreeSet::new(),
            ahead: None,
            claim: None,
            kept: None,
            fits: None,
            unfinished: None,
            retries: Retries::default(),
            loads: Backoff::default(),
            unloaded: None,
            faults: Faults::default(),
            waits: Waits::default(),
            status: String::new(),
        }
    }

    /// What is to be told before anything that takes long, as it takes to verify programs: what is waited for.
    pub(super) fn begin(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        // What fails is met again, and told, at the first look.
        let _: Result<_> = self.see(&mut events);
        events
    }

    /// Looks at everything, at a time of Unix in seconds, and does what is missing; a document is read
    /// and applied in any case when it is to be `reloaded`. What else failed is among the `errors`.
    pub(super) fn reconcile(
        &mut self,
        now: u64,
        reload: bool,
        mut errors: Vec<Error>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        // Before anything that takes time.
        let ahead = now.cast_signed() - (query::now() / SECOND).cast_signed();
        if reload {
            self.retries.clear();
        }
        match self.upgrade() {
            Ok(exchanged) => events.extend(exchanged.map(Event::Upgraded)),
            Err(error) => errors.push(error),
        }
        self.read(now, reload, &mut events);
        errors.extend(self.accept(now, &mut events).err());
        match self.running() {
            Ok(running) => {
                let done = self.attach(&running, &mut events, &mut errors);
                errors.extend(done.err());
                let done = self.replace(running.clone(), &mut events, &mut errors);
                errors.extend(done.err());
                errors.extend(self.load_missing(&running, &mut events).err());
            }
            Err(error) => errors.push(error),
        }
        let is_load = |event: &Event| {
            matches!(
                event,
                Event::Attached { .. }
                    | Event::Replaced { .. }
                    | Event::Loaded { .. }
                    | Event::Upgraded(_)
            )
        };
        if events.iter().any(is_load) {
            sys::trim_memory();
        }
        let seen = self.see(&mut events);
        errors.extend(self.fit(now).err());
        errors.extend(self.follow_clock(ahead, &mut events).err());
        let put = self.put_in_force(&mut events);
        self.waits_for_trial = matches!(put, Err(Error::Unconfirmed { .. }));
        errors.extend(put.err());
        errors.extend(self.keep_run_time().err());
        errors.extend(self.claim().err());
        errors.extend(self.unfinished.take());
        let (wanted, attached) = seen.unwrap_or_else(|error| {
            errors.push(error);
            Default::default()
        });
        events.extend(self.faults.news(errors, Instant::now()));
        let status = status(&self.interfaces, &wanted, &attached, self.failing());
        let parts: Vec<_> = self.refused().into_iter().chain([status]).collect();
        self.status = parts.join("; ");
        events
    }

    /// Whether the document waits for the trial of another policy to end.
    pub(super) const fn waits(&self) -> bool {
        self.waits_for_trial
    }

    /// Checks that programs can be loaded, which takes another process.
    ///
    /// # Errors
    /// [`Error::NoLoader`]: an agent that was started anew has another one.
    pub(super) fn check_loader(&self) -> Result<()> {
        self.pins.check_loader()
    }

    /// How things were at the last look, in a line.
    pub(super) fn status(&self) -> String {
        self.status.clone()
    }

    /// Looks at what is attached by now and what is not there, and tells what is waited for.
    fn see(&mut self, events: &mut Vec<Event>) -> Result<(Wanted, Vec<Attached>)> {
        let (attached, here) = (self.running()?, interface::list()?);
        let wanted = Wanted::of(&self.interfaces, &here, &attached);
        let (words, is_attached) = (&self.interfaces, !attached.is_empty());
        events.extend(self.waits.news(words, &wanted, &here, is_attached, Instant::now()));
        Ok((wanted, attached))
    }

    /// What of the document is refused, in a line; nothing if it is accepted.
    pub(super) fn refused(&self) -> Option<String> {
        self.offer.as_ref().and_then(Offer::refused)
    }

    /// How many things failed at the last look, and are tried again.
    pub(super) fn failing(&self) -> u64 {
        self.faults.failing()
    }

    /// Brings an instance of an older version to this one.
    fn upgrade(&mut self) -> Result<Option<Exchanged>> {
        self.retries.check(Work::Upgrade, Instant::now())?;
        let upgraded = Instance::upgrade(&self.pins);
        self.retries.noted(Work::Upgrade, Instant::now(), upgraded)
    }

    /// Reads the document, if it is time to.
    fn read(&mut self, now: u64, reload: bool, events: &mut Vec<Event>) {
        let Some(document) = &mut self.document else { return };
        let Some(result) = document.look(now, reload) else { return };
        let read = result.and_then(|(policy, warnings, files)| {
            Ok((Origin::of(&policy)?, policy, warnings, files))
        });
        match read {
            Ok((origin, policy, warnings, files)) => {
                if !warnings.list().is_empty() {
                    events.push(Event::Warned(warnings));
                }
                let told = self.offer.take().and_then(|offer| offer.told);
                let good = Good { policy, origin };
                self.offer = Some(Offer { good, files, reload, judged: None, told });
            }
            Err(error) => {
                self.offer = None;
                events.push(Event::Rejected(error));
            }
        }
    }

    /// Accepts the policy of the document, unless its set files change what would cut this host off or lift
    /// most of a list. That is judged by the policy in force, so a command may have it accepted.
    fn accept(&mut self, now: u64, events: &mut Vec<Event>) -> Result<()> {
        let (Some(offer), Some(document)) = (&mut self.offer, &self.document) else {
            return Ok(());
        };
        let running = match !offer.files.is_empty() && exists(&self.pins)? {
            true => Some(Maps::open(&self.pins)?),
            false => None,
        };
        let in_force = match &running {
            Some(maps) => Some((maps.number()?, maps.epoch()?)),
            None => None,
        };
        if offer.judged == Some(in_force) {
            events.extend(offer.again(now));
            return Ok(());
        }
        let refused = match offer.files.is_empty() {
            true => Ok(()),
            false => {
                let running = running.map(|maps| maps.in_force()).transpose()?;
                let before = running.as_ref().map(|it| &it.policy);
                let before = before.or(self.good.as_ref().map(|good| &good.policy));
                guard(before, &offer.good.policy, &offer.files, &host::read()?)
            }
        };
        offer.judged = Some(in_force);
        match refused {
            Ok(()) => {
                let Some(Offer { good, reload, .. }) = self.offer.take() else { return Ok(()) };
                self.good = Some(good);
                self.retries.clear();
                self.due = Some(if reload { Due::Anew } else { Due::Another });
            }
            Err(refusal) => {
                events.extend(offer.refuse(name(document.path()), refusal, now));
            }
        }
        Ok(())
    }

    /// Claims the instance that is there for this agent.
    fn claim(&mut self) -> Result<()> {
        if self.claim.as_ref().is_none_or(|claim| !claim.holds(&self.pins)) {
            self.claim = None;
            self.claim = Claim::take(&self.pins)?;
        }
        Ok(())
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
        let here = interface::list()?;
        self.retries.keep_attaching(&here);
        let mut missing = Wanted::of(&self.interfaces, &here, running).here;
        missing.retain(|it| !is_running(it));
        // No instance is made, again and again, for one that does not take it.
        missing.retain(|interface| match fitness(interface) {
            Ok(()) => true,
            Err(error) => {
                let is_fault = is_there(interface) && !self.has_attached(interface);
                errors.extend(is_fault.then_some(error));
                false
            }
        });
        let now = Instant::now();
        self.retries.retain_due(&mut missing, |it| Work::Attach(it.index), now, errors);
        let Some(first) = missing.first() else { return Ok(()) };
        self.retries.check(Work::Open, now)?;
        // What is attached is limited from its first packet on.
        let open = match (&self.good, &self.document) {
            (Some(Good { policy, origin }), _) => {
                let sizes = Sizes::for_host();
                Instance::open_or_create(&self.pins, &sizes, policy, Some(*origin))
            }
            (None, None) => {
                Instance::open_or_create(&self.pins, &Sizes::for_host(), &Policy::default(), None)
            }
            (None, Some(document)) => Instance::open_to_attach(&self.pins).and_then(|running| {
                running.ok_or_else(|| Error::NoPolicy {
                    interface: first.name.clone(),
                    document: name(document.path()),
                })
            }),
        };
        let mut instance = self.retries.noted(Work::Open, Instant::now(), open)?;
        self.unfinished = instance.take_unfinished().or(self.unfinished.take());
        if let Some(error) = instance.take_unrestored() {
            events.push(Event::Failed(error));
        }
        self.adopt(instance.maps().number()?, instance.is_fresh());
        // Somebody may have made it, or attached some, since it was looked at.
        let already = instance.attached()?;
        missing.retain(|it| !already.iter().any(|at| at.present && at.index == it.index));
        let mut made = Vec::new();
        let mut attach = || {
            // The slot of one that is gone is free again.
            instance.reclaim()?;
            for interface in &missing {
                let attached = instance.attach(interface, Choice::Auto);
                let work = Work::Attach(interface.index);
                match self.retries.noted(work, Instant::now(), attached) {
                    Ok(outcome) => {
                        made.push(interface.index);
                        events.push(Event::Attached {
                            interface: interface.name.clone(),
                            mode: outcome.mode,
                            fallback: outcome.fallback.map(|words| words.to_string()),
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
    fn replace(
        &mut self,
        mut running: Vec<Attached>,
        events: &mut Vec<Event>,
        errors: &mut Vec<Error>,
    ) -> Result<()> {
        running.retain(|it| it.exists && !self.current.contains(&it.link));
        let now = Instant::now();
        self.retries.retain_due(&mut running, |it| Work::Replace(it.link), now, errors);
        if running.is_empty() {
            return Ok(());
        }
        self.retries.check(Work::Open, now)?;
        let open = Instance::open_to_attach(&self.pins);
        let Some(mut instance) = self.retries.noted(Work::Open, Instant::now(), open)? else {
            return Ok(());
        };
        self.unfinished = instance.take_unfinished().or(self.unfinished.take());
        for attached in running {
            let replaced = instance.replace(&attached, false).map_err(|error| {
                let interface = attached.name.clone();
                Error::NotReplaced { interface, source: Box::new(error) }
            });
            match self.retries.noted(Work::Replace(attached.link), Instant::now(), replaced) {
                Ok(()) => {
                    self.current.insert(attached.link);
                    events.push(Event::Replaced { interface: attached.name });
                }
                // One whose programs cannot be replaced keeps no other from it.
                Err(error) => errors.push(error),
            }
        }
        instance.close()
    }

    /// Loads the main program again that interfaces call and do not find, as where somebody took it out of its array.
    fn load_missing(&mut self, running: &[Attached], events: &mut Vec<Event>) -> Result<()> {
        let mut interfaces = Vec::new();
        for attached in running.iter().filter(|it| it.exists) {
            if main_program::is_missing(&self.pins, attached.slot)? {
                interfaces.push(attached.name.clone());
            }
        }
        let now = Instant::now();
        if interfaces.is_empty() {
            self.unloaded = None;
            return Ok(());
        }
        if self.loads.is_due(now) {
            let Some(mut instance) = Instance::open_to_attach(&self.pins)? else { return Ok(()) };
            self.unfinished = instance.take_unfinished().or(self.unfinished.take());
            self.loads.tried(now);
            let loaded = instance.load_missing();
            instance.close()?;
            match loaded {
                Ok(()) => {
                    self.unloaded = None;
                    events.push(Event::Loaded { interfaces });
                    return Ok(());
                }
                Err(error) => self.unloaded = Some(Arc::new(error)),
            }
        }
        Err(Error::Unloaded { interfaces: listed(&interfaces), cause: self.unloaded.clone() })
    }

    /// Has the policy in force compiled for the interfaces that are attached, and for a time of Unix in seconds.
    fn fit(&mut self, now: u64) -> Result<()> {
        if !exists(&self.pins)? {
            return Ok(());
        }
        let maps = Maps::open(&self.pins)?;
        let fits =
            Fits { policy: (maps.number()?, maps.epoch()?), ports: maps.ports()?, stale: None };
        let is_stale = |stale: Option<u64>| stale.is_some_and(|stale| stale <= now);
        // Its lists may be long: it is read once.
        if let Some(known) = &self.fits
            && (known.policy, &known.ports) == (fits.policy, &fits.ports)
            && !is_stale(known.stale)
        {
            return Ok(());
        }
        let in_force = maps.in_force()?;
        let stale = in_force.held.stale();
        if is_stale(stale) || !in_force.held.fits(&in_force.policy, &fits.ports) {
            return self.compile();
        }
        self.fits = Some(Fits { stale, ..fits });
        Ok(())
    }

    /// Keeps the run-time lists in their file, if something else is in force than at the last look. A command that
    /// changed them does so too, but may have been ended before.
    fn keep_run_time(&mut self) -> Result<()> {
        if !exists(&self.pins)? {
            return Ok(());
        }
        let maps = Maps::open(&self.pins)?;
        let kept = (maps.number()?, maps.epoch()?);
        if self.kept == Some(kept) {
            return Ok(());
        }
        let Some(instance) = open(&self.pins, &mut self.unfinished)? else { return Ok(()) };
        instance.keep_run_time()?;
        // Somebody may have changed them again before the lock was taken; then they are kept once more.
        self.kept = Some(kept);
        Ok(())
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
    fn compile(&mut self) -> Result<()> {
        let Some(mut instance) = open(&self.pins, &mut self.unfinished)? else { return Ok(()) };
        let layers = instance.maps().settled()?;
        instance.maps_mut().put_in_force(layers, None, None)
    }

    /// Puts the policy of the document in force, if that is due. Makes room for it where it takes that.
    fn put_in_force(&mut self, events: &mut Vec<Event>) -> Result<()> {
        if self.due.is_none() {
            return Ok(());
        }
        self.retries.check(Work::Room, Instant::now())?;
        let pins = self.pins.clone();
        let mut lacks_room = false;
        let put = Instance::with_room(&pins, || {
            let put = self.try_put_in_force();
            lacks_room = put.as_ref().is_err_and(|error| error.failure::<NoRoom>().is_some());
            put
        });
        // What fails for another reason takes no second set of maps.
        let (put, exchanged) = match put {
            Err(error) if !lacks_room => return Err(error),
            put => self.retries.noted(Work::Room, Instant::now(), put)?,
        };
        if exchanged.is_some() {
            self.adopt(Maps::open(&pins)?.number()?, true);
        }
        if let Some(event) = put {
            self.due = None;
            events.push(event);
        }
        Ok(())
    }

    /// The same where there is room. Returns what is to be told of it, and `None` if it is not due, or has to wait for an instance.
    fn try_put_in_force(&mut self) -> Result<Option<Event>> {
        let (Some(good), Some(document), Some(due)) = (&self.good, &self.document, self.due) else {
            return Ok(None);
        };
        let Some(mut instance) = open(&self.pins, &mut self.unfinished)? else { return Ok(None) };
        let in_force = instance.maps().in_force()?;
        let document = document.path().to_owned();
        if in_force.origin == Some(good.origin) && due == Due::Another {
            if in_force.unsorted {
                // This is the document that it was: what else is listed was set by commands.
                let layers = instance.maps().settled()?.sorted_by(&good.policy);
                instance.maps_mut().put_in_force(layers, None, None)?;
            }
            return Ok(Some(Event::Unchanged { document }));
        }
        let changes = diff(&in_force.policy, &good.policy).len();
        let layers = in_force.layers().under(good.policy.clone());
        match instance.maps_mut().put_in_force(layers, None, Some(good.origin)) {
            Ok(()) if changes == 0 => Ok(Some(Event::Unchanged { document })),
            Ok(()) => Ok(Some(Event::Applied { document, changes })),
            Err(error) if error.failure::<NoRoom>().is_some() => Err(error),
            Err(error) if error.is_of_policy() => Ok(Some(Event::Rejected(error))),
            Err(error) => Err(error),
        }
    }

    /// Notes the number of the instance that is there. Where somebody else made it anew meanwhile, the document
    /// is to be in force there too, as it would be if this agent had come only now. What failed before may succeed there.
    fn adopt(&mut self, number: u32, is_own: bool) {
        let before = self.instance.replace(number);
        if is_own || before == Some(number) {
            return;
        }
        self.retries.clear();
        if before.is_some() {
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
        self.adopt(maps.number()?, false);
        let running = attached(&self.pins, &maps)?;
        self.current.retain(|link| running.iter().any(|attached| attached.link == *link));
        self.retries.keep_replacing(&running);
        Ok(running)
    }
}

/// Opens the instance, to change its policy. What of an exchange could not be finished is noted.
fn open(pins: &Pins, unfinished: &mut Option<Error>) -> Result<Option<Instance>> {
    let mut opened = Instance::open(pins)?;
    if let Some(error) = opened.as_mut().and_then(Instance::take_unfinished) {
        *unfinished = Some(error);
    }
    Ok(opened)
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
    let is_it = |it: &Interface| it.index == interface.index && it.name == interface.name;
    interface::list().is_ok_and(|here| here.iter().any(is_it))
}
