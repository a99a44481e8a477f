//! The policy as it is stored in the kernel, beside what it holds of the datapath.

use aya::maps::{Array, HashMap, MapData};
use limiter_common::{
    abi::{
        layout::{CHUNK, map},
        policy::Head,
    },
    base::siphash::SipHash,
};
use serde::{Deserialize, Serialize};

use super::{bpffs::Pins, object::object, open::typed, stored_tries::Tries, sys};
use crate::{
    error::Result,
    policy::{Assignment, Layered, Layers, Policy, PolicyError, RunTime, Tables, units::printable},
};

/// The version of what is stored.
const VERSION: u32 = 9;
/// The first with run-time lists; before, what commands listed was stored in the lists of the policy.
const RUN_TIME: u32 = 8;
/// The oldest that is read: it has no origin.
const OLDEST: u32 = 6;

/// A policy, and what it holds of the datapath.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredPolicy {
    version: u32,
    /// The policy.
    pub policy: Policy,
    /// The run-time lists beside it.
    #[serde(default)]
    pub run_time: RunTime,
    /// See [`Layers::unsorted`].
    #[serde(default)]
    pub unsorted: bool,
    /// Where the state of its limits is.
    pub held: Assignment,
    /// The document that it came from, if one is followed; what commands changed since is not in that.
    pub origin: Option<Origin>,
    /// What the tries have that were written with it, if it says so.
    #[serde(default)]
    tries: Option<Tries>,
}

/// What a document that is followed says, as a hash of its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin(u64);

impl Origin {
    /// That of a document with this policy, wherever its files are.
    ///
    /// # Errors
    /// None that a policy which was read leads to.
    pub fn of(policy: &Policy) -> Result<Self> {
        let mut policy = policy.clone();
        policy.set_files.clear();
        policy.tenant_files.clear();
        let bytes = serde_json::to_vec(&policy).map_err(|error| unreadable(&error))?;
        let words = bytes.chunks(8).map(|part| {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            u64::from_le_bytes(word)
        });
        // Nobody gains by two documents that have the same one, so the key is no secret.
        let hash = SipHash::new([0, 0]).word(bytes.len() as u64);
        Ok(Self(words.fold(hash, SipHash::word).finish()))
    }
}

/// The document of a half; empty if there is none.
pub(super) fn document_of(
    map: &HashMap<MapData, [u32; 2], [u8; CHUNK]>,
    half: u32,
) -> Result<Vec<u8>> {
    let mut document = Vec::new();
    for number in 0.. {
        match map.get(&[half, number], 0) {
            Ok(chunk) => document.extend_from_slice(&chunk),
            Err(aya::maps::MapError::KeyNotFound) => break,
            Err(error) => return Err(object("read the policy document", &error)),
        }
    }
    // The last chunk is filled up with zeros, which a document does not have.
    let end = document.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    document.truncate(end);
    Ok(document)
}

impl StoredPolicy {
    /// The document of a policy with the run-time lists, and what it holds.
    pub(super) fn new(
        layers: Layers,
        held: Assignment,
        origin: Option<Origin>,
        tables: &Tables,
    ) -> Self {
        let Layers { policy, run_time, unsorted } = layers;
        let tries = Tries::of(tables);
        Self { version: VERSION, policy, run_time, unsorted, held, origin, tries }
    }

    /// The same, which does not say what the tries have.
    pub(super) fn without_tries(self) -> Self {
        Self { version: VERSION, tries: None, ..self }
    }

    /// The policy and the run-time lists, to be read.
    pub const fn layered(&self) -> Layered<'_> {
        Layered { policy: &self.policy, run_time: &self.run_time }
    }

    /// The policy and the run-time lists, to be changed.
    pub fn layers(&self) -> Layers {
        let Self { policy, run_time, unsorted, .. } = self;
        Layers { policy: policy.clone(), run_time: run_time.clone(), unsorted: *unsorted }
    }

    /// What is in force in an instance whose other maps may have the layout of an older version.
    ///
    /// # Errors
    /// That these maps are none of an instance, what the system says, or why the document cannot be read.
    pub(crate) fn of_any_layout(pins: &Pins) -> Result<Self> {
        let head: Array<MapData, Head> = typed(pins, map::HEAD)?;
        let head = head.get(&0, 0).map_err(|error| object("read the epoch", &error))?;
        let epoch = in_force(&head, sys::monotonic());
        Self::read(&document_of(&typed(pins, map::DOCUMENT)?, epoch & 1)?)
    }

    /// The document, as it is stored.
    pub(super) fn write(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(self).map_err(|error| unreadable(&error))?)
    }

    /// The same, and the document. Where that has no room for them, it is without the tries: the next policy of the half makes
    /// them whole.
    pub(super) fn write_within(self, room: usize) -> Result<(Self, Vec<u8>)> {
        let document = self.write()?;
        if document.len() <= room {
            return Ok((self, document));
        }
        let without = self.without_tries();
        let document = without.write()?;
        Ok((without, document))
    }

    pub(super) fn read(document: &[u8]) -> Result<Self> {
        /// What every version has.
        #[derive(Deserialize)]
        struct Header {
            version: u32,
        }
        let mut read = match serde_json::from_slice::<Self>(document) {
            Ok(read) if (OLDEST..=VERSION).contains(&read.version) => read,
            // Another version is called that, and not a list of unknown fields.
            failed => {
                let Header { version } =
                    serde_json::from_slice(document).map_err(|error| unreadable(&error))?;
                if !(OLDEST..=VERSION).contains(&version) {
                    let cause = format!(
                        "it is of version {version}, and this limiter reads version {VERSION}"
                    );
                    return Err(PolicyError::Document { cause }.into());
                }
                failed.map_err(|error| unreadable(&error))?
            }
        };
        read.unsorted |= read.version < RUN_TIME;
        Ok(read)
    }
}

/// What the tries have that were written with a document; `None` if that does not say.
pub(super) fn tries_of(document: &[u8]) -> Option<Tries> {
    #[derive(Deserialize)]
    struct Part {
        version: u32,
        tries: Option<Tries>,
    }
    let Part { version, tries } = serde_json::from_slice(document).ok()?;
    tries.filter(|_| version == VERSION)
}

/// Checks that a document of so many bytes, with these run-time entries, fits into its half.
pub(super) fn check_room(bytes: usize, room: usize, entries: usize) -> Result<(), PolicyError> {
    if bytes > room { Err(PolicyError::TooMuch { entries, bytes, room }) } else { Ok(()) }
}

fn unreadable(error: &serde_json::Error) -> PolicyError {
    // Its text may repeat any part of the document.
    const LONGEST: usize = 200;
    let mut cause = printable(&error.to_string(), LONGEST);
    // What is escaped is longer than it was.
    if let Some((end, _)) =
        cause.char_indices().nth(LONGEST).filter(|(end, _)| cause[*end..] != *"…")
    {
        cause.truncate(end);
        cause.push('…');
    }
    PolicyError::Document { cause }
}

/// The epoch that packets go by at a time.
pub(super) fn in_force(head: &Head, now: u64) -> u32 {
    let epoch = head.epoch as u32;
    let reverted = head.revert.at(epoch).is_some_and(|at| now >= at);
    if reverted { epoch.wrapping_add(1) } else { epoch }
}

#[cfg(test)]
mod tests;
