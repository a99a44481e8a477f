//! The policy in force: read, and exchanged between two packets.
//!
//! Each epoch has a half of the tables. The next policy is written into the half that no packet
//! reads, and one store of the epoch word makes it the policy; a command that dies before that has
//! changed nothing.

use std::os::fd::AsFd as _;

use aya::maps::{MapData, lpm_trie::Key};
use aya_obj::generated::bpf_map_type;
use limiter_common::{
    address::Address,
    contract::{CHUNK, LAYOUT_VERSION, map, plan_slot},
};

use super::{
    maps::{Maps, object},
    program::lacking,
    sys,
};
use crate::{
    error::{Error, Result},
    policy::{Compiled, Policy, compile},
};

const BPF_F_NO_PREALLOC: u32 = 1;
/// What the kernel says of an operation that a map does not have; libc does not know it.
const ENOTSUPP: i32 = 524;

impl Maps {
    /// The policy in force.
    ///
    /// # Errors
    /// What the system says, or why the document cannot be read.
    pub fn policy(&self) -> Result<Policy> {
        loop {
            let epoch = self.read_epoch()?;
            let document = self.document(epoch as u32 & 1)?;
            // Two changes since would have overwritten what was read.
            if self.read_epoch()? == epoch {
                return Ok(Policy::from_document(&document)?);
            }
        }
    }

    /// Makes `policy` the one in force. The caller holds the lock.
    ///
    /// # Errors
    /// Why the policy is not possible, or what the system says; the policy in force stays then.
    pub fn apply(&mut self, policy: &Policy) -> Result<()> {
        let compiled = compile(policy)?;
        let document = policy.to_document()?;
        let capacity = self.capacity(map::PLANS)? / 2;
        if compiled.plans.len() > capacity as usize {
            return Err(Error::Capacity { needed: compiled.plans.len(), capacity });
        }
        let next = (self.read_epoch()? as u32).wrapping_add(1);
        sys::wait_for_packets().map_err(|error| Error::system("wait for packets", error))?;
        self.write_tables(&compiled, next)?;
        self.write_document(&document, next & 1)?;
        let word = u64::from(LAYOUT_VERSION) << 32 | u64::from(next);
        sys::publish(self.raw(map::HEAD)?.fd().as_fd(), word, compiled.settings)
            .map_err(|error| Error::system("set the epoch", error))
    }

    fn write_tables(&mut self, compiled: &Compiled, epoch: u32) -> Result<()> {
        let slots: Vec<u32> =
            (0..compiled.plans.len() as u32).map(|plan| plan_slot(epoch, plan)).collect();
        let plans = self.raw(map::PLANS)?.fd().as_fd();
        sys::update(plans, &slots, &compiled.plans)
            .map_err(|error| Error::system("write the plans", error))?;
        let half = epoch & 1;
        if compiled.overrides.is_empty() {
            sys::remove(self.raw(map::OVERRIDES)?.fd().as_fd(), half)
                .map_err(|error| Error::system("empty the overrides", error))?;
        } else {
            let overrides = trie(compiled)?;
            self.overrides
                .set(half, &overrides, 0)
                .map_err(|error| object("write the overrides", &error))?;
        }
        Ok(())
    }

    fn document(&self, half: u32) -> Result<Vec<u8>> {
        let mut document = Vec::new();
        for number in 0.. {
            match self.document.get(&[half, number], 0) {
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

    fn write_document(&mut self, document: &[u8], half: u32) -> Result<()> {
        let failed = |error| object("write the policy document", &error);
        let mut number = 0;
        for part in document.chunks(CHUNK) {
            let mut chunk = [0; CHUNK];
            chunk[..part.len()].copy_from_slice(part);
            self.document.insert([half, number], chunk, 0).map_err(failed)?;
            number += 1;
        }
        while let Ok(()) = self.document.remove(&[half, number]) {
            number += 1;
        }
        Ok(())
    }
}

/// A new trie with the overrides of a policy.
fn trie(compiled: &Compiled) -> Result<MapData> {
    let entries = compiled.overrides.len() as u32;
    let definition = aya_obj::Map::new_from_params(
        bpf_map_type::BPF_MAP_TYPE_LPM_TRIE as u32,
        size_of::<Key<Address>>() as u32,
        size_of::<u32>() as u32,
        entries,
        BPF_F_NO_PREALLOC,
    );
    let overrides = MapData::create(definition, "overrides", None)
        .map_err(|error| object(format!("make a table of {entries} overrides"), &error))?;
    let (keys, plans): (Vec<_>, Vec<_>) = compiled
        .overrides
        .iter()
        .map(|(bits, address, plan)| (Key::new(*bits, *address), *plan))
        .unzip();
    sys::update(overrides.fd().as_fd(), &keys, &plans).map_err(|error| {
        if error.raw_os_error() == Some(ENOTSUPP) {
            lacking("batch updates of LPM tries (since 5.13)")
        } else {
            Error::system("write the overrides", error)
        }
    })?;
    Ok(overrides)
}
