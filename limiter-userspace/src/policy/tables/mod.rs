//! Compiles a policy to the flat tables of the datapath.
//!
//! Each layer and each candidate of a limit becomes a row with a bit of its own, in the order in which they are asked. What a
//! row matches is split in two: properties of the packet (classes) and its source (profiles).

mod assignment;
mod classes;
mod context;
mod cost;
mod interfaces;
mod longest;
mod meters;
mod profiles;
mod pushes;
mod rows;

use limiter_common::{
    abi::policy::{Profile, Settings, flag},
    algorithm::{kind::Kind, meter::Meter},
    base::address::{Address, Mask},
    memory::offence::Longest,
    policy::{
        control::Budgets,
        limit::{INLINE, Key, LIMITS, Limit as Row},
        matching::match_field,
    },
};

pub(crate) use self::rows::{WIDTH_OF_TENANT, width_of_parts, width_of_prefix};
pub use self::{
    assignment::Assignment,
    context::Context,
    cost::{Dearest, dearest},
    longest::LongestPrefix,
};
use self::{assignment::Keeping, classes::Classes, meters::Meters, profiles::Profiles, rows::Rows};
use super::{
    error::PolicyError,
    model::{GlobalMode, Policy},
    run_time::Layered,
};

/// A policy as the datapath reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// The settings for every packet.
    pub settings: Settings,
    /// The limits, in the order of their bits.
    pub rows: Vec<Row>,
    /// Arrays of sets of limits, each with the index of its first set in the `MATCHING` map.
    pub classes: Vec<(u32, Vec<u64>)>,
    /// The meters, each once. The first stands for no limit.
    pub meters: Vec<Meter>,
    /// The profiles, each once. The first is the default profile, of sources within no prefix; the second is
    /// that of shared entries, [`Profile::SHARED`].
    pub profiles: Vec<Profile>,
    /// Prefixes of sources: the length in bits, [`Address::FAMILY_BITS`] included; the prefix; and the number
    /// of its profile.
    pub prefixes: Vec<(u32, Address, u32)>,
    /// Prefixes of destinations in the same form, with the set of limits that accept them.
    pub destinations: Vec<(u32, Address, u64)>,
    /// The budgets of control traffic for each slot.
    pub control: Vec<Budgets>,
}

impl Tables {
    /// The inline limits that the entry of a source needs room for.
    pub fn places(&self) -> usize {
        self.settings.inline.iter().rposition(|bit| *bit != 0).map_or(0, |last| last + 1)
    }

    /// Whether a limit keeps buckets by another key than `all`.
    pub fn needs_buckets(&self) -> bool {
        let is_keyed = |row: &Row| row.bit & self.settings.buckets_by_key != 0;
        self.rows.iter().any(|row| is_keyed(row) && row.key != Key::ALL)
    }
}

/// Compiles a policy and the run-time lists beside it. `held` is the assignment of the policy in force;
/// limits that stay keep their state. Returns the tables and their assignment.
///
/// # Errors
/// Any [`PolicyError`] of a policy that cannot be compiled.
pub fn compile<'a>(
    layered: impl Into<Layered<'a>>,
    held: &Assignment,
    context: &Context,
) -> Result<(Tables, Assignment), PolicyError> {
    let layered = layered.into();
    match compile_held(layered, held, Keeping::All, context) {
        // Limits that could be inline may be keyed only because they were so before: try again with those moved.
        Err(PolicyError::TooManyAtOnce { .. } | PolicyError::TooManyColumns { .. }) => {
            compile_held(layered, held, Keeping::ButKeyed, context)
        }
        compiled => compiled,
    }
}

fn compile_held(
    layered: Layered<'_>,
    held: &Assignment,
    keeping: Keeping,
    context: &Context,
) -> Result<(Tables, Assignment), PolicyError> {
    let policy = layered.policy;
    policy.key_prefix.check()?;
    let rows = Rows::new(policy)?;
    let limits = || rows.iter().map(rows::Row::identity);
    let mut numbered = held.clone();
    numbered.number_tenants(policy.tenants.keys(), limits())?;
    let places = if context.places == 0 { INLINE } else { context.places };
    let mut held = numbered.next(limits(), keeping, context.epoch, places);
    let limit_ids = rows.limit_ids(&held);
    held.know_penalties(&numbered, limit_ids.into_iter());
    held.slots = policy.slots(&context.interfaces, &numbered.slots);
    // So that the first push needs no other tables. Without room for the row, the push tells.
    let pushes = policy.on_requests.iter().any(|limit| limit.penalty.is_some());
    held.takes_pushes |= pushes && rows.iter().count() < LIMITS as usize;
    let (tables, stale) = compile_rows(layered, &rows, &held, context)?;
    held.stale = stale;
    held.compiled = Some((context.unix, context.monotonic));
    Ok((tables, held))
}

/// Compiles the policy in force again, to the same tables, from what is stored with it. An older version
/// stored no time of compilation; then ends of list entries may be off by a second.
///
/// # Errors
/// As [`compile`].
pub fn recompile(
    layered: Layered<'_>,
    held: &Assignment,
    context: &Context,
) -> Result<Tables, PolicyError> {
    let (unix, monotonic) = held.compiled.unwrap_or((context.unix, context.monotonic));
    let context = &Context { unix, monotonic, ..context.clone() };
    let (tables, _) = compile_rows(layered, &Rows::new(layered.policy)?, held, context)?;
    Ok(tables)
}

/// Returns the tables, and when they become stale: see [`Profiles::stale`].
fn compile_rows(
    layered: Layered<'_>,
    rows: &Rows<'_>,
    held: &Assignment,
    context: &Context,
) -> Result<(Tables, Option<u64>), PolicyError> {
    let policy = layered.policy;
    let mut meters = Meters::default();
    let mut compiled = rows.compile(policy, held, &mut meters)?;
    let mut classes = Classes::new(policy, rows, held)?;
    let mut profiles = Profiles::new(layered, rows, &compiled, held, context, &mut meters)?;

    let set = |wanted: &dyn Fn(usize) -> bool| {
        (0..compiled.len()).filter(|at| wanted(*at)).fold(0, |set, at| set | 1_u64 << at)
    };
    let word = |at: usize| held.get(&rows.identity(at)).and_then(|place| place.word);
    let mask = Mask::new(policy.key_prefix.ipv4, policy.key_prefix.ipv6);
    // The parts of a key that the key of the source does not tell; `None` if packets of the limit are not leased.
    let half = Mask::new(32, 64);
    let rest = |at: usize| {
        let Row { kind, key, bytes, costs, mask: of_limit, .. } = compiled[at];
        let is_bucket = word(at).is_none() && Kind::of(kind.into()) == Kind::Bucket;
        let is_bucket = is_bucket && !rows.drops_at_once(at);
        let costs_one = bytes == 0 && costs.iter().all(|cost| *cost == 1);
        let is_told = key.0 & Key::SOURCE == 0 || of_limit.is_within(&mask);
        let of_source = if is_told { 0 } else { Key::SOURCE };
        let rest = key.0 & (Key::DESTINATION | Key::PORT | Key::SOURCE_PORT) | of_source;
        let is_kept = is_told || half.is_within(&mask);
        (is_bucket && costs_one && is_kept && key.0 & Key::INTERFACE == 0).then_some(rest)
    };
    let leasable = set(&|at| rest(at).is_some());
    let by_rest = set(&|at| rest(at).is_some_and(|parts| parts != 0));
    let rest = Key((0..compiled.len()).filter_map(rest).fold(0, |all, parts| all | parts));
    let mut settings = Settings {
        mask,
        flags: 0,
        match_fields: classes.match_fields,
        seed: held.seed(),
        table_seed: held.table_seed(),
        sets: 0,
        bucket_sets: 0,
        wide_sets: 0,
        rest,
        offence_sets: 0,
        handshake_sets: 0,
        unused: 0,
        enforced: set(&|at| rows.is_enforced(at)),
        unit: set(&|at| {
            compiled[at].bytes == 0 && compiled[at].costs.iter().all(|cost| *cost == 1)
        }),
        keyed: set(&|at| word(at).is_none()),
        buckets_by_key: set(&|at| {
            let is_bucket = word(at).is_none() && !Kind::is_wide(compiled[at].kind.into());
            is_bucket && !rows.drops_at_once(at)
        }),
        leasable,
        by_rest,
        penalties: set(&|at| rows.is_enforced(at) && compiled[at].penalty.after != 0),
        longest: longest(
            (0..compiled.len()).filter(|at| rows.is_enforced(*at)).map(|at| &compiled[at]),
        ),
        connections: set(&|at| rows.counts_connections(at)),
        newcomers: set(&|at| {
            let costs = compiled[at].costs.iter().all(|cost| *cost == 1);
            word(at).is_some() && (compiled[at].bytes != 0 || costs)
        }),
        default_destination_limits: classes.elsewhere,
        inline: [0; INLINE],
        limit_ids: [0; INLINE],
        tallies: [0; INLINE],
        default_profile: Profile::default(),
        drops: set(&|at| rows.drops_at_once(at)),
        reserved: [[0; 17]; 4],
    };
    for (at, row) in compiled.iter().enumerate() {
        if let Some(word) = word(at) {
            settings.inline[word] = row.bit;
            settings.limit_ids[word] = row.limit_id;
            settings.tallies[word] = row.tally;
        }
    }
    // The cost of a packet may depend on its protocol too.
    let by_header = set(&|at| {
        let Row { key, costs, .. } = compiled[at];
        key.0 & (Key::PORT | Key::SOURCE_PORT) != 0 || costs.iter().any(|cost| *cost != costs[0])
    });
    let of_header = match_field::PROTOCOL
        | match_field::PORT
        | match_field::SOURCE_PORT
        | match_field::FLAGS
        | match_field::ICMP;
    // A source may have packets leased that a push blocks: they pass until the next tick is over.
    profiles.find_leases(&settings, &compiled, &meters, context.tick, context.cpus);
    if held.takes_pushes {
        pushes::reserve(&mut settings, &mut compiled, &mut profiles, &mut classes)?;
    }
    profiles.find_untracked_allowances(&settings, &meters);
    // Now the first profile is complete.
    settings.default_profile = profiles.profiles.first().copied().unwrap_or_default();
    let enforced = policy.mode == GlobalMode::Enforce;
    let refuses = profiles.profiles.iter().any(|profile| {
        profile.limits & settings.enforced != 0 || profile.denied | profile.blocked != 0
    });
    for (flag, on) in [
        (flag::FRAGMENTS, settings.match_fields & of_header != 0 || by_header != 0),
        (flag::PREFIXES, !profiles.prefixes.is_empty()),
        (flag::LIMITS, refuses),
        (flag::MONITOR, !enforced),
    ] {
        settings.flags |= if on { flag } else { 0 };
    }
    let tables = Tables {
        settings,
        rows: compiled,
        classes: classes.sets,
        meters: meters.meters,
        profiles: profiles.profiles,
        prefixes: profiles.prefixes,
        destinations: classes.destinations,
        control: policy.control_budgets(|word, slot| held.means(word, slot))?,
    };
    Ok((tables, profiles.stale))
}

/// The longest times of the penalties of these rows.
fn longest<'a>(rows: impl Iterator<Item = &'a Row>) -> Longest {
    rows.map(|row| row.penalty).filter(|penalty| penalty.after != 0).fold(
        Longest::default(),
        |Longest { most, rest }, penalty| Longest {
            most: most.max(penalty.most),
            rest: rest.max(penalty.rest()),
        },
    )
}

/// The tallies of a policy: one for each limit, for each further layer, and for a candidate.
///
/// # Errors
/// As [`compile`].
pub fn tallies(policy: &Policy, held: &Assignment) -> Result<Vec<Tallied>, PolicyError> {
    let rows = Rows::new(policy)?;
    Ok(rows
        .iter()
        .filter_map(|row| {
            let place = held.get(&row.identity())?.tally;
            let limit = row.limit.name.clone();
            let (layer, candidate) = (row.layer, row.candidate);
            Some(Tallied { limit, name: row.name(), place, layer, candidate })
        })
        .collect())
}

/// A layer or a candidate, with its tally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tallied {
    /// The name of the limit.
    pub limit: String,
    /// The display name of the layer or candidate.
    pub name: String,
    /// See [`Limit::tally`](limiter_common::policy::limit::Limit::tally).
    pub place: u32,
    /// The index of the layer; 0 for a candidate.
    pub layer: usize,
    /// Whether it is the candidate.
    pub candidate: bool,
}

#[cfg(test)]
pub(crate) mod tests;
