//! The row of blocks that a process pushes.
//!
//! It is about all sources and no packet: it has no meter, and is charged nothing. Its penalty has the blocks
//! ([`Penalty::PUSHED`]). The row is there from the first policy on whose limits push, or else from the first push on. It is in no
//! other tables, as sources without an entry are let pass by no [untracked allowance](limiter_common::table::untracked) from then on.

use limiter_common::{
    abi::policy::{Profile, Settings},
    policy::{
        limit::{COLUMNS, CostClass, Key, LIMITS, Limit as Compiled},
        penalty::Penalty,
    },
};

use super::{classes::Classes, profiles::Profiles};
use crate::policy::error::PolicyError;

/// Adds the row behind all others. [`Settings::longest`] is without it: a pushed block is [as long](Penalty::until) as it was
/// asked for.
pub(super) fn reserve(
    settings: &mut Settings,
    compiled: &mut Vec<Compiled>,
    profiles: &mut Profiles,
    classes: &mut Classes,
) -> Result<(), PolicyError> {
    let at = compiled.len();
    if at >= LIMITS as usize {
        return Err(PolicyError::NoRowForPushes { most: LIMITS - 1 });
    }
    let bit = 1 << at;
    compiled.push(Compiled {
        bit,
        costs: [1; CostClass::COUNT],
        mask: settings.mask,
        key: Key(Key::SOURCE),
        limit_id: 0,
        tally: 0,
        meter: 0,
        shared_meter: 0,
        unused: 0,
        override_column: COLUMNS as u32,
        bytes: 0,
        kind: 0,
        penalty: Penalty {
            after: 1,
            block: Penalty::LONGEST,
            most: Penalty::LONGEST,
            backoff: 1,
            limit: Penalty::PUSHED,
            unproven: 1,
        },
    });
    settings.penalties |= bit;
    settings.default_destination_limits &= !bit;
    for (.., accepted) in &mut classes.destinations {
        *accepted &= !bit;
    }
    for accepted in classes.sets.iter_mut().flat_map(|(_, sets)| sets) {
        *accepted &= !bit;
    }
    // Sources that share an entry are not blocked.
    for (number, profile) in (0..).zip(&mut profiles.profiles) {
        if number != Profile::SHARED {
            profile.limits |= bit;
        }
    }
    Ok(())
}
