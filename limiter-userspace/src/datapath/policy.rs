//! The policy in force: read, and exchanged between two packets.
//!
//! Each epoch has a half of the tables. The next policy is written into the half that no packet
//! reads, and one store of the epoch word makes it the policy; a command that dies before that has
//! changed nothing. The policy before stays where it is until the next one is written, and can be
//! back by nothing but the clock: see [`Revert`].

mod interfaces;

use std::{
    ops::RangeInclusive,
    os::fd::AsFd as _,
    panic::resume_unwind,
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aya::{
    maps::{ArrayOfMaps, MapData},
    util::nr_cpus,
};
use limiter_common::{
    abi::{
        counters::LimitTally,
        layout::{CHUNK, LAYOUT_VERSION, map},
        policy::{Revert, half},
    },
    base::seed::Seed,
    policy::limit::{INLINE, Limit as Row},
};

pub use super::stored_policy::{Origin, StoredPolicy};
pub(super) use super::stored_policy::{document_of, in_force};
use super::{
    maps::{Maps, Unprepared},
    object::object,
    sizes::NoRoom,
    stored_policy,
    stored_tries::{Prefix, Tries},
    sys,
    trie::{self, Changes},
};
use crate::{
    error::{Error, Result},
    policy::{Assignment, Context, Layers, Policy, Tables, compile},
};

/// Prefixes of sources from which on, and up to which, the other half is [prepared](Maps::prepare) for the next change. Fewer take a few
/// milliseconds. More would take twice their memory, which is told in `docs/sizing.md`, before anything is changed.
const PREPARED: RangeInclusive<usize> = 4_096..=262_144;
/// By how many bytes the documents of both halves differ if their lists do by some thousand prefixes.
const FAR: usize = 32 << 10;

impl Maps {
    /// The policy in force.
    ///
    /// # Errors
    /// What the system says, or why the document cannot be read.
    pub fn policy(&self) -> Result<Policy> {
        Ok(self.in_force()?.policy.clone())
    }

    /// The policy in force, and what it holds of the datapath.
    ///
    /// # Errors
    /// As [`policy`](Self::policy).
    pub fn in_force(&self) -> Result<Arc<StoredPolicy>> {
        self.in_force_with_epoch().map(|(_, in_force)| in_force)
    }

    /// The same, with its epoch.
    pub(super) fn in_force_with_epoch(&self) -> Result<(u32, Arc<StoredPolicy>)> {
        loop {
            let epoch = self.epoch()?;
            if let Some((read, in_force)) = &*self.read.borrow()
                && *read == epoch
            {
                return Ok((epoch, Arc::clone(in_force)));
            }
            let document = self.document(epoch & 1)?;
            // Two changes since would have overwritten what was read.
            if self.epoch()? == epoch {
                let in_force = Arc::new(StoredPolicy::read(&document)?);
                *self.read.borrow_mut() = Some((epoch, Arc::clone(&in_force)));
                return Ok((epoch, in_force));
            }
        }
    }

    /// The epoch that packets go by now.
    pub(crate) fn epoch(&self) -> Result<u32> {
        self.epoch_at(sys::monotonic())
    }

    /// The epoch that packets go by at a time of the monotonic clock.
    pub(crate) fn epoch_at(&self, now: u64) -> Result<u32> {
        Ok(in_force(&self.read_head()?, now))
    }

    /// For how long the policy in force is so unless it is confirmed; `None` if it needs no
    /// confirmation.
    ///
    /// # Errors
    /// What the system says.
    pub fn unconfirmed(&self) -> Result<Option<Duration>> {
        let head = self.read_head()?;
        let left = head.revert.at(head.epoch as u32).map(|at| at.saturating_sub(sys::monotonic()));
        Ok(left.filter(|left| *left > 0).map(Duration::from_nanos))
    }

    /// Checks that `layers` could be put in force, and changes nothing.
    ///
    /// # Errors
    /// Why the policy is not possible, or what the system says.
    pub fn check(&self, layers: &Layers) -> Result<()> {
        let next = self.epoch()?.wrapping_add(1);
        let (tables, _) = compile(layers.view(), &self.in_force()?.held, &self.context(next)?)?;
        self.check_capacity(&tables)
    }

    /// Makes `policy` the one in force, beside the run-time lists that are. The caller holds the lock.
    ///
    /// # Errors
    /// Why the policy is not possible, or what the system says; the policy in force stays then.
    pub fn apply(&mut self, policy: &Policy) -> Result<()> {
        self.apply_for(policy, None)
    }

    /// Makes `policy` the one in force, beside the run-time lists that are, and with a time only for so long,
    /// unless it is [confirmed](Self::confirm). The caller holds the lock.
    ///
    /// # Errors
    /// As [`apply`](Self::apply), and [`Error::Unconfirmed`] while another one waits for that.
    pub fn apply_for(&mut self, policy: &Policy, time: Option<Duration>) -> Result<()> {
        let layers = self.layers()?.under(policy.clone());
        self.put_in_force(layers, time, None)
    }

    /// Puts a policy and run-time lists in force, and with a time only for so long, unless they are
    /// [confirmed](Self::confirm). With an origin, the policy is that of a document that is followed;
    /// without one, the origin stays what it was. The caller holds the lock.
    ///
    /// # Errors
    /// As [`apply_for`](Self::apply_for).
    pub fn put_in_force(
        &mut self,
        layers: Layers,
        time: Option<Duration>,
        origin: Option<Origin>,
    ) -> Result<()> {
        self.put(layers, time, origin, false)
    }

    /// Puts the policy and the lists in force again, with the row that blocks are pushed to. The caller holds the lock.
    ///
    /// # Errors
    /// As [`put_in_force`](Self::put_in_force).
    pub(super) fn put_with_pushes(&mut self) -> Result<()> {
        let layers = self.settled()?;
        self.put(layers, None, None, true)
    }

    /// Puts a policy and lists in force. With `takes_pushes`, the tables have the row of pushed blocks from then on.
    fn put(
        &mut self,
        layers: Layers,
        time: Option<Duration>,
        origin: Option<Origin>,
        takes_pushes: bool,
    ) -> Result<()> {
        if let Some(left) = self.unconfirmed()? {
            return Err(Error::Unconfirmed { left });
        }
        let head = self.read_head()?;
        let epoch = self.epoch()?;
        let failed = |error| Error::system("wait for packets", error);
        // Packets that came before this epoch may still read the other half. They end while the policy is compiled.
        let packets = thread::Builder::new().spawn(sys::wait_for_packets).map_err(failed)?;
        let (mut before, origin_before) = match head.epoch {
            0 => (Assignment::default(), None),
            _ => {
                let in_force = self.in_force()?;
                (in_force.held.clone(), in_force.origin)
            }
        };
        before.takes_pushes |= takes_pushes;
        let is_taken_back = epoch != head.epoch as u32;
        if is_taken_back {
            match StoredPolicy::read(&self.document(head.epoch as u32 & 1)?) {
                Ok(taken_back) => before.skip(&taken_back.held),
                // A command died while it wrote the next one in its place.
                Err(_) => before.skip_all(),
            }
        }
        if before.seed() == Seed::default() {
            let seed = sys::random();
            before.set_seed(seed.map_err(|error| Error::system("get random numbers", error))?);
        }
        let next = epoch.wrapping_add(1);
        let mut context = self.context(next)?;
        if time.is_some() {
            // A trial leaves the places of limits that it may bring back. Room is made for it first if there are no others.
            context.places = INLINE;
        }
        let (tables, held) = compile(layers.view(), &before, &context)?;
        self.check_capacity(&tables)?;
        let stored = StoredPolicy::new(layers, held, origin.or(origin_before), &tables);
        let room = self.capacity(map::DOCUMENT)? as usize / 2 * CHUNK;
        let (stored, document) = stored.write_within(room)?;
        stored_policy::check_room(document.len(), room, stored.run_time.entries().len())?;
        self.make_for(&tables)?;
        let left = stored_policy::tries_of(&self.document(next & 1)?);
        packets.join().unwrap_or_else(|panic| resume_unwind(panic)).map_err(failed)?;
        let is_whole = self.write_tables(&tables, left.as_ref(), next)?;
        self.write_document(&document, next & 1)?;
        for tally in stored.held.new_tallies(&before) {
            self.forget_tally(tally)?;
        }
        let revert = time.map_or(Revert::NEVER, |time| {
            let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            Revert::new(next, sys::monotonic().saturating_add(time))
        });
        let failed = |error| Error::system("set the epoch", error);
        let head = self.raw(map::HEAD)?.fd();
        if is_taken_back {
            // The clock says so as long as the time stands there, which is about to change.
            sys::publish_epoch(head.as_fd(), epoch_word(epoch)).map_err(failed)?;
        }
        let settings = self.with_sets(tables.settings)?;
        sys::publish(head.as_fd(), epoch_word(next), revert, settings).map_err(failed)?;
        *self.read.borrow_mut() = Some((next, Arc::new(stored)));
        self.unprepared = (time.is_none() && PREPARED.contains(&tables.prefixes.len()))
            .then_some(Unprepared { tables, document, epoch: next, is_whole });
        Ok(())
    }

    /// Writes the tries of the policy that this process has put in force into the other half, too, if that is far from having
    /// them: the next change then amends them, and does not write a long list again. The caller holds the lock, which others may
    /// have had since: a policy that they put in force stays as it is.
    ///
    /// # Errors
    /// What the system says. The next change takes longer then.
    pub fn prepare(&mut self) -> Result<()> {
        let Some(Unprepared { tables, document, epoch, is_whole }) = self.unprepared.take() else {
            return Ok(());
        };
        if self.tries(map::PREFIXES).get(&(epoch & 1), 0).is_err() {
            // Nor can the next change by this process open them.
            return Ok(());
        }
        let head = self.read_head()?;
        if head.epoch as u32 != epoch || head.revert.at(epoch).is_some() {
            return Ok(());
        }
        let other = epoch.wrapping_add(1);
        let before = self.document(other & 1)?;
        // Also after a list that was there before, and gone for one change.
        if !is_whole && before.len().abs_diff(document.len()) <= FAR {
            return Ok(());
        }
        sys::wait_for_packets().map_err(|error| Error::system("wait for packets", error))?;
        let left = stored_policy::tries_of(&before);
        self.write_tries(&tables, left.as_ref(), other)?;
        self.write_document(&document, other & 1)
    }

    /// The policy and the run-time lists in force; none of a new instance.
    ///
    /// # Errors
    /// As [`policy`](Self::policy).
    pub fn layers(&self) -> Result<Layers> {
        match self.read_head()?.epoch {
            0 => Ok(Layers::default()),
            _ => Ok(self.in_force()?.layers()),
        }
    }

    /// The policy and the run-time lists in force, which are so for good: none waits to be confirmed.
    /// Whoever holds the lock finds them there until they are changed by them.
    ///
    /// # Errors
    /// [`Error::Unconfirmed`], or as [`policy`](Self::policy).
    pub fn settled(&self) -> Result<Layers> {
        loop {
            let head = self.read_head()?;
            if let Some(left) = self.unconfirmed()? {
                return Err(Error::Unconfirmed { left });
            }
            let layers = self.layers()?;
            let after = self.read_head()?;
            if (after.epoch, after.revert) == (head.epoch, head.revert) {
                return Ok(layers);
            }
        }
    }

    /// Whether the policy that was applied last is not in force any more, since nobody confirmed it.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_taken_back(&self) -> Result<bool> {
        let head = self.read_head()?;
        Ok(in_force(&head, sys::monotonic()) != head.epoch as u32)
    }

    /// Keeps the policy in force, if it would be taken back otherwise, and says whether it would. The
    /// caller holds the lock.
    ///
    /// # Errors
    /// [`Error::NothingToConfirm`] after it was taken back, or what the system says.
    pub fn confirm(&mut self) -> Result<bool> {
        // Not in the last moment: nobody must be interrupted between looking and storing.
        const MARGIN: Duration = Duration::from_millis(100);
        let head = self.read_head()?;
        let Some(at) = head.revert.at(head.epoch as u32) else { return Ok(false) };
        if self.unconfirmed()?.is_none_or(|left| left < MARGIN) {
            return Err(Error::NothingToConfirm);
        }
        self.set_revert(Revert::NEVER)?;
        if sys::monotonic() < at {
            return Ok(true);
        }
        // The time came just before: packets have gone by the policy before already.
        self.set_revert(head.revert)?;
        Err(Error::NothingToConfirm)
    }

    /// Takes the policy in force back now instead of at its time. The caller holds the lock.
    ///
    /// # Errors
    /// [`Error::NothingToConfirm`], or what the system says.
    pub fn revert(&mut self) -> Result<()> {
        if self.unconfirmed()?.is_none() {
            return Err(Error::NothingToConfirm);
        }
        let epoch = self.read_head()?.epoch as u32;
        self.set_revert(Revert::new(epoch, sys::monotonic()))
    }

    fn set_revert(&mut self, revert: Revert) -> Result<()> {
        sys::set_revert(self.raw(map::HEAD)?.fd().as_fd(), revert)
            .map_err(|error| Error::system("change when the policy is taken back", error))
    }

    /// What a policy is compiled for now, to be in force under an epoch.
    pub(super) fn context(&self, epoch: u32) -> Result<Context> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ((unix, monotonic), tick) = (whole_second(unix, sys::monotonic()), sys::tick());
        let cpus = nr_cpus().map_or(1, |cpus| cpus as u64);
        let places = self.inline_room()?;
        Ok(Context { epoch, unix, monotonic, tick, cpus, places, interfaces: self.ports()? })
    }

    pub(super) fn check_capacity(&self, tables: &Tables) -> Result<()> {
        let has = self.sizes()?;
        let needed = has.needed_by(tables);
        if needed != has {
            return Err(NoRoom { has, needed }.into());
        }
        Ok(())
    }

    /// Writes the tables of an epoch. From then on its half has no document until that is [written](Self::write_document).
    /// `left` is what the tries of the half have, if that is known: then they are amended where this is less work. Returns whether
    /// that of sources was written as a whole.
    pub(super) fn write_tables(
        &mut self,
        tables: &Tables,
        left: Option<&Tries>,
        epoch: u32,
    ) -> Result<bool> {
        let at = |number: u32| half(epoch, number);
        let rows: Vec<u32> = tables.rows.iter().map(|row| at(Row::row(row.bit))).collect();
        self.write(map::LIMITS, &rows, &tables.rows)?;
        for (first, sets) in &tables.classes {
            let places: Vec<u32> = (*first..).map(at).take(sets.len()).collect();
            self.write(map::MATCHING, &places, sets)?;
        }
        let meters: Vec<u32> = (0..).map(at).take(tables.meters.len()).collect();
        self.write(map::METERS, &meters, &tables.meters)?;
        let profiles: Vec<u32> = (0..).map(at).take(tables.profiles.len()).collect();
        self.write(map::PROFILES, &profiles, &tables.profiles)?;
        let slots: Vec<u32> = (0..).map(at).take(tables.control.len()).collect();
        self.write(map::CONTROL, &slots, &tables.control)?;
        self.write_tries(tables, left, epoch)
    }

    /// The same of the tries alone.
    fn write_tries(&mut self, tables: &Tables, left: Option<&Tries>, epoch: u32) -> Result<bool> {
        let before = left.and_then(|left| left.prefixes.prefixes());
        let is_whole =
            self.write_trie(map::PREFIXES, epoch, before, &tables.prefixes, |number| *number)?;
        let before = left.and_then(|left| left.destinations.prefixes());
        let halves = |set: &u64| [*set as u32, (*set >> 32) as u32];
        self.write_trie(map::DESTINATIONS, epoch, before, &tables.destinations, halves)?;
        Ok(is_whole)
    }

    /// Writes the trie of an epoch. Returns whether it was written as a whole.
    fn write_trie<T: Copy + PartialEq, V: aya::Pod>(
        &mut self,
        name: &'static str,
        epoch: u32,
        before: Option<Vec<Prefix<T>>>,
        after: &[Prefix<T>],
        value: impl Fn(&T) -> V,
    ) -> Result<bool> {
        if let Some(changes) = before.and_then(|before| Changes::between(&before, after))
            // Opening it takes `CAP_SYS_ADMIN`, which an agent has given up.
            && let Ok(trie) = self.tries(name).get(&(epoch & 1), 0)
        {
            self.forget_document(epoch & 1)?;
            if trie::amend(&trie, &changes, &value).is_ok() {
                return Ok(false);
            }
        }
        let trie = trie::make(&name.to_lowercase(), after, value)?;
        self.forget_document(epoch & 1)?;
        self.exchange(name, epoch, trie).map(|()| true)
    }

    fn write<V: aya::Pod>(&self, name: &'static str, places: &[u32], values: &[V]) -> Result<()> {
        sys::update(self.raw(name)?.fd().as_fd(), places, values)
            .map_err(|error| Error::system(format!("write the map {name}"), error))
    }

    /// Puts a trie in the place of an epoch, or none.
    fn exchange(&mut self, name: &'static str, epoch: u32, trie: Option<MapData>) -> Result<()> {
        let action = format!("write the map {name}");
        let Some(trie) = trie else {
            return sys::remove(self.raw(name)?.fd().as_fd(), &(epoch & 1))
                .map_err(|error| Error::system(action, error));
        };
        self.tries(name).set(epoch & 1, &trie, 0).map_err(|error| object(action, &error))
    }

    fn tries(&mut self, name: &'static str) -> &mut ArrayOfMaps<MapData, MapData> {
        if name == map::PREFIXES { &mut self.prefixes } else { &mut self.destinations }
    }

    /// The document of a half; empty if there is none.
    fn document(&self, half: u32) -> Result<Vec<u8>> {
        document_of(&self.document, half)
    }

    /// Has a half without a document, as its tries are about to be changed. A later command that found the document of other
    /// tries would amend them by the wrong changes.
    fn forget_document(&self, half: u32) -> Result<()> {
        sys::remove(self.raw(map::DOCUMENT)?.fd().as_fd(), &[half, 0_u32])
            .map_err(|error| Error::system("remove the policy document of before", error))
    }

    /// Stores a document for a half. Until it is whole, there is none: the first chunk is written last.
    ///
    /// The others of a half have no gap at any time. Behind a gap, what is left of a longer document would not be found until
    /// another document reaches it.
    pub(super) fn write_document(&mut self, document: &[u8], half: u32) -> Result<()> {
        const WRITE: &str = "write the policy document";
        let failed = |error| object(WRITE, &error);
        self.forget_document(half)?;
        let chunks = || (0_u32..).zip(document.chunks(CHUNK));
        let end = document.len().div_ceil(CHUNK) as u32;
        let left = (end..).take_while(|number| self.document.get(&[half, *number], 0).is_ok());
        for number in (end..end + left.count() as u32).rev() {
            self.document.remove(&[half, number]).map_err(failed)?;
        }
        for (number, part) in chunks().skip(1).chain(chunks().take(1)) {
            let mut chunk = [0; CHUNK];
            chunk[..part.len()].copy_from_slice(part);
            sys::update(self.raw(map::DOCUMENT)?.fd().as_fd(), &[[half, number]], &[chunk])
                .map_err(|error| Error::system(WRITE, error))?;
        }
        Ok(())
    }

    fn forget_tally(&mut self, tally: u32) -> Result<()> {
        let failed = |error| object("reset a tally", &error);
        let cpus = self.tallies.get(&tally, 0).map_err(failed)?.len();
        let zero = aya::maps::PerCpuValues::try_from(vec![LimitTally::default(); cpus])
            .map_err(|error| Error::system("reset a tally", error))?;
        self.tallies.set(tally, zero, 0).map_err(failed)
    }
}

/// The second of Unix time that has begun, and when it began by the monotonic clock. Both clocks were read at once.
///
/// What is listed ends at a whole second. It ends then, and not up to a second later.
fn whole_second(unix: Duration, monotonic: u64) -> (u64, u64) {
    (unix.as_secs(), monotonic.saturating_sub(unix.subsec_nanos().into()))
}

/// The word of an epoch.
pub(super) fn epoch_word(epoch: u32) -> u64 {
    u64::from(LAYOUT_VERSION) << 32 | u64::from(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_compiled_from_the_beginning_of_a_second() {
        let unix = Duration::from_millis(1_000_250);
        assert_eq!(whole_second(unix, 50_000_000_000), (1_000, 49_750_000_000));
        assert_eq!(whole_second(unix, 7), (1_000, 0));
    }
}
