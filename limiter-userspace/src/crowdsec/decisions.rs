//! The bans of CrowdSec that run, and what they make: entries of the run-time list `deny`, and pushed blocks of single sources.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use limiter_common::{algorithm::rate::SECOND, policy::penalty::Penalty};

use super::{
    SET,
    answer::{Answer, Decision, Origin, Scope, Subject},
};
use crate::policy::{
    Layered, List,
    guard::{Harm, Host, without_harm},
    run_time::Entry,
};

/// The end of an entry is rounded up to the minute if it is this many seconds away, or more. Entries that end at the same time share a
/// profile of the policy and are stored as one, and a community list has as many ends as bans.
const LONG: u64 = 3600;
/// Seconds that an end is rounded up to.
const MINUTE: u64 = 60;
/// Seconds by which the end of an entry may be early. What is left of a ban is told a moment before it is read.
const EARLY: u64 = 2;
/// Seconds by which the end of an entry may be late, as it was rounded up. Its ban ends in time where the agent runs.
const LATE: u64 = MINUTE + EARLY;

/// The bans that run.
#[derive(Debug, Default)]
pub struct Decisions {
    bans: HashMap<Subject, Ban>,
}

#[derive(Clone, Debug)]
struct Ban {
    prefix: IpNet,
    /// When it ends, in seconds of Unix time.
    until: u64,
    /// Whether it ends then also after the clock was set, as an entry in force does.
    is_fixed: bool,
    origin: Origin,
    reason: Arc<str>,
}

/// The blocks that are pushed for bans.
#[derive(Clone, Debug, Default)]
pub struct Pushed {
    /// Sources, by their first address, and when their blocks end, in seconds of Unix time.
    pub ends: BTreeMap<IpAddr, u64>,
    /// How many more may be pushed.
    pub room: usize,
}

impl Pushed {
    /// Whether a source is blocked until then, or about.
    pub fn is_until(&self, source: IpAddr, until: u64) -> bool {
        self.ends.get(&source).is_some_and(|end| end.abs_diff(until) <= EARLY)
    }
}

/// What the set of the run-time list, and the pushed blocks, are to be.
#[derive(Debug, Default)]
pub struct Plan {
    /// All of its entries. Those that are there already are as they are.
    pub entries: Vec<Entry>,
    /// How many these are.
    pub total: usize,
    /// How many of them are new.
    pub added: usize,
    /// How many of them were there with another end or reason.
    pub changed: usize,
    /// How many entries of the set are to be removed.
    pub ended: usize,
    /// All blocks that are to be pushed, as in [`Pushed::ends`].
    pub pushed: BTreeMap<IpAddr, u64>,
    /// The number of prefixes that are banned and left out, since `allow` has them.
    pub allowed: usize,
    /// The prefixes that are banned and left out, since a list may not have them.
    pub harmful: Vec<(IpNet, Harm)>,
}

impl Plan {
    /// Whether the set is to be another one than it is.
    pub const fn is_change(&self) -> bool {
        self.added + self.changed + self.ended > 0
    }
}

impl Decisions {
    /// Takes in an answer at `now`, in seconds of Unix time. A whole one has all bans that run, another one what changed since the
    /// one before.
    pub fn apply(&mut self, answer: &Answer, is_whole: bool, now: u64) {
        if is_whole {
            self.bans.clear();
        }
        // A ban that is made anew is told as one that ended and one that was made.
        for subject in &answer.ended {
            self.bans.remove(subject);
        }
        for Decision { subject, prefix, seconds, origin, reason } in &answer.made {
            let until = now.saturating_add(*seconds);
            let (origin, reason) = (*origin, Arc::clone(reason));
            let ban = Ban { prefix: *prefix, until, is_fixed: false, origin, reason };
            // Of several about the same subject, the one that ends last.
            let longer = self.bans.get(subject).is_none_or(|before| before.until < until);
            if longer {
                self.bans.insert(subject.clone(), ban);
            }
        }
    }

    /// Takes over the entries and the pushed blocks of an agent before, which are all that is known until LAPI answers.
    pub fn restore<'e>(&mut self, entries: impl Iterator<Item = &'e Entry>, pushed: &Pushed) {
        let entries = entries.filter(|it| is_of_set(it)).map(|entry| {
            let reason = entry.reason.clone().unwrap_or_else(|| SET.into());
            (entry.prefix, entry.until.unwrap_or(u64::MAX), true, reason)
        });
        let pushed = pushed.ends.iter();
        let pushed = pushed.map(|(source, end)| ((*source).into(), *end, false, SET.into()));
        for (prefix, until, is_fixed, reason) in entries.chain(pushed) {
            let subject = Subject { scope: Scope::Range, value: prefix.to_string().into() };
            let ban = Ban { prefix, until, is_fixed, origin: Origin::Other, reason };
            self.bans.insert(subject, ban);
        }
    }

    /// Moves the ends by so many seconds, since the clock was set by them. What is left of a ban stays the same. Only bans of restored
    /// entries end when they did.
    pub fn shift(&mut self, seconds: i64) {
        for ban in self.bans.values_mut().filter(|ban| !ban.is_fixed) {
            ban.until = ban.until.saturating_add_signed(seconds);
        }
    }

    /// Forgets the bans that are over at `now`, in seconds of Unix time.
    pub fn drop_over(&mut self, now: u64) {
        self.bans.retain(|_, ban| ban.until > now);
    }

    /// The number of bans by origin, in the order of [`Origin::ALL`].
    pub fn by_origin(&self) -> [u64; Origin::ALL.len()] {
        let mut counts = [0; Origin::ALL.len()];
        for ban in self.bans.values() {
            counts[ban.origin as usize] += 1;
        }
        counts
    }

    /// What the set and the pushed blocks are to be at `now`, in seconds of Unix time, beside a policy and run-time lists, on this host.
    ///
    /// What `allow` has is left out: a prefix that is longer would decide before it. So is what would cut the host off.
    ///
    /// Bans of single sources are pushed as long as there is room. A ban that is in force stays where it is. Long lists are in the
    /// set, which is made for them: they would leave no room to others.
    pub fn plan(&self, layered: Layered<'_>, host: &Host, pushed: &Pushed, now: u64) -> Plan {
        let Layered { policy, run_time } = layered;
        let mut plan = Plan::default();
        let mut wanted: BTreeMap<IpNet, &Ban> = BTreeMap::new();
        for ban in self.bans.values().filter(|ban| ban.until > now) {
            let prefix = policy.key_prefix.widened(ban.prefix);
            let one = wanted.entry(prefix).or_insert(ban);
            // The reason makes it the same one each time.
            if (ban.until, &ban.reason) > (one.until, &one.reason) {
                *one = ban;
            }
        }
        let allowed = layered.allowed(now);
        wanted.retain(|prefix, _| {
            let is_allowed = allowed.has(*prefix);
            plan.allowed += usize::from(is_allowed);
            !is_allowed
        });
        let document = policy.deny.iter().filter(|it| !it.is_over(now));
        let document = document.flat_map(|it| policy.prefixes(&it.whom)).copied();
        let others = run_time.list(List::Deny);
        let others = others.filter(|it| !it.exception && !is_of_set(it) && !it.is_over(now));
        let known = document.chain(others.map(|it| it.prefix));
        let (harmless, harmful) = without_harm(known, wanted.keys().copied().collect(), host);
        plan.harmful = harmful;
        let mut before: HashMap<IpNet, &Entry> = run_time
            .entries()
            .iter()
            .filter(|it| is_of_set(it) && !it.is_over(now))
            .map(|it| (it.prefix, it))
            .collect();
        let mut room = pushed.room;
        for prefix in harmless {
            let Some(ban) = wanted.get(&prefix) else { continue };
            let is_pushed = prefix.prefix_len() == policy.key_prefix.length_for(&prefix)
                && ban.is_short(now)
                && {
                    let is_new = room > 0 && !ban.origin.is_list() && !before.contains_key(&prefix);
                    let is_kept = pushed.ends.contains_key(&prefix.addr());
                    room -= usize::from(is_new && !is_kept);
                    is_kept || is_new
                };
            if is_pushed {
                plan.pushed.insert(prefix.addr(), ban.until);
                continue;
            }
            let entry = match before.remove(&prefix) {
                Some(entry) if is_same(entry, ban) => entry.clone(),
                other => {
                    *(if other.is_some() { &mut plan.changed } else { &mut plan.added }) += 1;
                    ban.entry(prefix, now)
                }
            };
            plan.entries.push(entry);
        }
        (plan.total, plan.ended) = (plan.entries.len(), before.len());
        // Those next to each other that differ in their prefixes only are stored as one.
        plan.entries.sort_by(|one, other| {
            (one.until, &one.reason, one.prefix).cmp(&(other.until, &other.reason, other.prefix))
        });
        plan
    }
}

impl Ban {
    /// Whether a push can last as long.
    const fn is_short(&self, now: u64) -> bool {
        self.until.saturating_sub(now) < Penalty::LONGEST / SECOND
    }

    fn entry(&self, prefix: IpNet, now: u64) -> Entry {
        let until = match self.until.saturating_sub(now) < LONG {
            true => self.until,
            false => self.until.div_ceil(MINUTE).saturating_mul(MINUTE),
        };
        Entry {
            until: Some(until).filter(|until| *until != u64::MAX),
            reason: Some(Arc::clone(&self.reason)),
            set: Some(SET.into()),
            since: Some(now),
            ..Entry::new(List::Deny, prefix)
        }
    }
}

/// Whether an entry is one of the set of decisions.
fn is_of_set(entry: &Entry) -> bool {
    entry.list == List::Deny && !entry.exception && entry.set.as_deref() == Some(SET)
}

/// Whether an entry says what a ban does.
fn is_same(entry: &Entry, ban: &Ban) -> bool {
    let until = entry.until.unwrap_or(u64::MAX);
    let range = ban.until.saturating_sub(EARLY)..=ban.until.saturating_add(LATE);
    range.contains(&until) && entry.reason.as_deref() == Some(&*ban.reason)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::{
        Layers, Policy,
        model::{Listed, Whom},
    };

    const NOW: u64 = 1_800_000_000;
    const HOUR: u64 = 3600;

    /// What a fake LAPI answers; each decision is a scope, a value and a duration.
    fn answer(made: &[(&str, &str, &str)], ended: &[(&str, &str)]) -> Answer {
        let one = |(scope, value, duration): &(&str, &str, &str)| {
            format!(
                r#"{{"type":"ban","origin":"cscli","scenario":"s","scope":"{scope}","value":"{value}","duration":"{duration}"}}"#
            )
        };
        let made: Vec<_> = made.iter().map(one).collect();
        let ended: Vec<_> =
            ended.iter().map(|(scope, value)| one(&(scope, value, "-1s"))).collect();
        let text = format!(r#"{{"new":[{}],"deleted":[{}]}}"#, made.join(","), ended.join(","));
        Answer::read(text.as_bytes()).unwrap()
    }

    struct Case {
        decisions: Decisions,
        layers: Layers,
        host: Host,
        pushed: Pushed,
    }

    impl Case {
        fn new() -> Self {
            Self {
                decisions: Decisions::default(),
                layers: Layers::default(),
                host: Host::default(),
                pushed: Pushed::default(),
            }
        }

        /// A case with room for so many pushed blocks.
        fn with_room(room: usize) -> Self {
            Self { pushed: Pushed { room, ..Pushed::default() }, ..Self::new() }
        }

        fn plan(&self, now: u64) -> Plan {
            self.decisions.plan(self.layers.view(), &self.host, &self.pushed, now)
        }

        /// Puts in force what is to be, and returns how many entries are new, changed and ended.
        fn enforce(&mut self, now: u64) -> [usize; 3] {
            let plan = self.plan(now);
            let counts = [plan.added, plan.changed, plan.ended];
            assert_eq!(plan.is_change(), counts != [0; 3]);
            let Layers { policy, run_time, .. } = &mut self.layers;
            run_time.replace(policy, (List::Deny, SET), plan.entries, now).unwrap();
            let all = self.pushed.room + self.pushed.ends.len();
            assert!(plan.pushed.len() <= all);
            self.pushed = Pushed { room: all - plan.pushed.len(), ends: plan.pushed };
            assert!(!self.plan(now).is_change(), "nothing is left to do");
            counts
        }

        /// The entries in force, each with the seconds that are left.
        fn in_force(&self, now: u64) -> String {
            let entries = self.layers.run_time.list(List::Deny).filter(|it| !it.is_over(now));
            let text = |it: &Entry| format!("{} {}", it.prefix, it.until.unwrap() - now);
            let mut all: Vec<_> = entries.map(text).collect();
            all.sort();
            all.join(", ")
        }

        /// Sets the clock of this host by so many seconds; pushed blocks end by another one.
        fn set_clock(&mut self, seconds: i64) {
            self.decisions.shift(seconds);
            for end in self.pushed.ends.values_mut() {
                *end = end.saturating_add_signed(seconds);
            }
        }

        /// The blocks that are pushed, each with the seconds that are left.
        fn pushed(&self, now: u64) -> String {
            let text = |(source, end): (&IpAddr, &u64)| format!("{source} {}", end - now);
            self.pushed.ends.iter().map(text).collect::<Vec<_>>().join(", ")
        }

        fn allow(&mut self, prefix: &str) {
            let entry = Entry::new(List::Allow, prefix.parse().unwrap());
            self.layers.run_time.put(&self.layers.policy, entry, NOW).unwrap();
        }
    }

    #[test]
    fn bans_are_entries_until_lapi_ends_them() {
        let mut case = Case::new();
        let made = [("Ip", "192.0.2.5", "30s"), ("Range", "198.51.100.0/24", "50s")];
        case.decisions.apply(&answer(&made, &[]), true, NOW);
        assert_eq!(case.enforce(NOW), [2, 0, 0]);
        assert_eq!(case.in_force(NOW), "192.0.2.5/32 30, 198.51.100.0/24 50");
        assert_eq!(&*case.layers.run_time.entries()[0].reason.clone().unwrap(), "crowdsec s");
        case.decisions.apply(
            &answer(&[("Ip", "192.0.2.6", "9s")], &[("Ip", "192.0.2.5")]),
            false,
            NOW,
        );
        assert_eq!(case.enforce(NOW), [1, 0, 1]);
        assert_eq!(case.in_force(NOW), "192.0.2.6/32 9, 198.51.100.0/24 50");
        // LAPI is away: each ends by its time.
        case.decisions.drop_over(NOW + 9);
        assert_eq!(case.enforce(NOW + 9), [0; 3]);
        assert_eq!(case.in_force(NOW + 9), "198.51.100.0/24 41");
        assert_eq!(case.decisions.by_origin().iter().sum::<u64>(), 1);
        // It ends what nobody knows of, and what is made anew in the same answer is banned.
        let anew = answer(
            &[("Range", "198.51.100.0/24", "9s")],
            &[("Range", "198.51.100.0/24"), ("Ip", "192.0.2.77")],
        );
        case.decisions.apply(&anew, false, NOW);
        assert_eq!(case.enforce(NOW), [0; 3], "less than a minute earlier: LAPI ends it");
        case.decisions.apply(&answer(&[], &[]), true, NOW);
        assert_eq!(case.enforce(NOW), [0, 0, 1]);
        assert_eq!(case.in_force(NOW), "");
    }

    #[test]
    fn bans_of_single_sources_are_pushed_as_far_as_there_is_room() {
        let mut case = Case::with_room(2);
        let made = [
            ("Ip", "192.0.2.5", "30s"),
            ("Ip", "2001:db8::7", "40s"),
            ("Ip", "2001:db8::8", "50s"),
            ("Range", "198.51.100.0/24", "50s"),
            ("Ip", "203.0.113.5", "9000h"),
        ];
        case.decisions.apply(&answer(&made, &[]), true, NOW);
        assert_eq!(case.enforce(NOW), [2, 0, 0]);
        assert_eq!(case.pushed(NOW), "192.0.2.5 30, 2001:db8:: 50");
        let set = case.in_force(NOW);
        assert!(
            set.starts_with("198.51.100.0/24 50, 203.0.113.5/32 "),
            "no push is as long: {set}"
        );
        // A source that finds no room is in the set, and stays there when there is room again.
        case.decisions.apply(&answer(&[("Ip", "192.0.2.6", "60s")], &[]), false, NOW);
        assert_eq!(case.enforce(NOW), [1, 0, 0]);
        case.decisions.apply(&answer(&[], &[("Ip", "192.0.2.5")]), false, NOW);
        assert_eq!(case.enforce(NOW), [0; 3]);
        assert_eq!(case.pushed(NOW), "2001:db8:: 50");
        // The last to end counts, and each ends apart.
        case.decisions.apply(&answer(&[], &[("Ip", "2001:db8::8")]), false, NOW);
        assert_eq!(case.enforce(NOW), [0; 3]);
        assert_eq!(case.pushed(NOW), "2001:db8:: 40");
        // Another agent, before LAPI answers it.
        case.decisions = Decisions::default();
        case.decisions.restore(case.layers.run_time.entries().iter(), &case.pushed);
        assert_eq!(case.enforce(NOW), [0; 3]);
        assert_eq!(case.pushed(NOW), "2001:db8:: 40");
        // `allow` comes first.
        case.allow("2001:db8::/32");
        assert_eq!(case.enforce(NOW), [0; 3]);
        assert_eq!(case.pushed(NOW), "");
        // Nothing may be pushed any more: all are in the set.
        case.pushed.room = 0;
        case.decisions.apply(&answer(&made[..1], &[]), true, NOW);
        assert_eq!(case.enforce(NOW), [1, 0, 3]);
    }

    #[test]
    fn lists_that_others_publish_are_in_the_set() {
        let mut case = Case::with_room(9);
        for (origin, is_pushed) in
            [("CAPI", false), ("lists:firehol", false), ("cscli", true), ("crowdsec", true)]
        {
            let text = format!(
                r#"{{"new":[{{"type":"ban","origin":"{origin}","scope":"Ip","value":"192.0.2.5","duration":"9s"}}],"deleted":[]}}"#
            );
            case.decisions.apply(&Answer::read(text.as_bytes()).unwrap(), true, NOW);
            assert_eq!(case.plan(NOW).pushed.len() == 1, is_pushed, "{origin}");
        }
    }

    #[test]
    fn the_end_of_a_ban_ends_no_other_one_of_the_same_source() {
        let mut case = Case::new();
        let made = [
            ("Ip", "2001:db8::7", "40s"),
            ("Ip", "2001:db8::8", "30s"),
            ("Ip", "192.0.2.5", "40s"),
            ("Range", "192.0.2.5/32", "30s"),
        ];
        case.decisions.apply(&answer(&made, &[]), true, NOW);
        let by_hand = Entry {
            until: Some(NOW + 5),
            ..Entry::new(List::Deny, "203.0.113.1/32".parse().unwrap())
        };
        case.layers.run_time.put(&Policy::default(), by_hand.clone(), NOW).unwrap();
        assert_eq!(case.enforce(NOW), [2, 0, 0]);
        assert_eq!(case.in_force(NOW), "192.0.2.5/32 40, 2001:db8::/64 40, 203.0.113.1/32 5");
        let ended = answer(&[], &[("Ip", "2001:db8::7"), ("Ip", "192.0.2.5")]);
        case.decisions.apply(&ended, false, NOW);
        case.enforce(NOW);
        let still = case.in_force(NOW);
        assert_eq!(still, "192.0.2.5/32 40, 2001:db8::/64 40, 203.0.113.1/32 5", "{still}");
        let ended =
            answer(&[], &[("Ip", "2001:db8::8"), ("Range", "192.0.2.5/32"), ("Ip", "203.0.113.1")]);
        case.decisions.apply(&ended, false, NOW);
        assert_eq!(case.enforce(NOW), [0, 0, 2]);
        assert_eq!(case.in_force(NOW), "203.0.113.1/32 5");
    }

    #[test]
    fn the_end_of_a_ban_ends_no_other_one_whose_value_is_the_same_in_other_words() {
        for (one, other) in [
            (("Range", "198.51.100.4/24"), ("Range", "198.51.100.0/24")),
            (("Range", "2001:db8::7/48"), ("Range", "2001:db8::/48")),
            (("Ip", "2001:DB8::7"), ("Ip", "2001:db8::7")),
            (("Ip", "::ffff:192.0.2.5"), ("Ip", "192.0.2.5")),
        ] {
            let mut case = Case::new();
            let made = [one, other].map(|(scope, value)| (scope, value, "30s"));
            case.decisions.apply(&answer(&made, &[]), true, NOW);
            assert_eq!(case.enforce(NOW), [1, 0, 0], "{one:?}");
            case.decisions.apply(&answer(&[], &[one]), false, NOW);
            assert_eq!(case.enforce(NOW), [0; 3], "{one:?}");
            case.decisions.apply(&answer(&[], &[other]), false, NOW);
            assert_eq!(case.enforce(NOW), [0, 0, 1], "{one:?}");
        }
    }

    #[test]
    fn a_longer_ban_makes_an_entry_longer() {
        let mut case = Case::new();
        case.decisions.apply(&answer(&[("Ip", "192.0.2.5", "30s")], &[]), true, NOW);
        case.enforce(NOW);
        case.decisions.apply(&answer(&[("Ip", "192.0.2.5", "20s")], &[]), false, NOW);
        assert_eq!(case.enforce(NOW), [0; 3]);
        case.decisions.apply(&answer(&[("Ip", "192.0.2.5", "33s")], &[]), false, NOW);
        assert_eq!(case.enforce(NOW), [0, 1, 0]);
        assert_eq!(case.in_force(NOW), "192.0.2.5/32 33");
    }

    #[test]
    fn a_whole_answer_again_changes_nothing() {
        let mut case = Case::new();
        let of = |left: u64| {
            answer(
                &[
                    ("Ip", "192.0.2.5", &format!("{left}s")),
                    ("Ip", "192.0.2.6", &format!("{}.4s", left / 100)),
                ],
                &[],
            )
        };
        case.decisions.apply(&of(4 * HOUR), true, NOW + 7);
        case.enforce(NOW + 7);
        let first = case.in_force(NOW);
        let ends = case.layers.run_time.entries()[1].until.unwrap();
        assert_eq!(ends % MINUTE, 0);
        assert!((NOW + 7 + 4 * HOUR..NOW + 67 + 4 * HOUR).contains(&ends));
        // Near the end nothing is rounded, and the answer was on its way for a moment.
        for (at, left) in
            [(8, 4 * HOUR), (8, 4 * HOUR - 2), (HOUR, 3 * HOUR + 7), (4 * HOUR - 60, 67)]
        {
            case.decisions.apply(&of(left), true, NOW + at);
            case.decisions.bans.retain(|subject, _| &*subject.value == "192.0.2.5");
            let plan = case.plan(NOW + at);
            assert_eq!((plan.added, plan.changed), (0, 0), "{at}: {first}");
        }
    }

    #[test]
    fn an_agent_that_starts_again_takes_over_what_is_in_force() {
        let mut case = Case::new();
        case.decisions.apply(
            &answer(&[("Ip", "2001:db8::7", "5h"), ("Ip", "192.0.2.5", "30s")], &[]),
            true,
            NOW,
        );
        case.enforce(NOW);
        case.decisions = Decisions::default();
        case.decisions.restore(case.layers.run_time.entries().iter(), &case.pushed);
        assert_eq!(case.enforce(NOW + 1), [0; 3]);
        assert_eq!(case.decisions.by_origin()[Origin::Other as usize], 2);
        // LAPI answers, and nothing is there twice.
        case.decisions.apply(
            &answer(&[("Ip", "2001:db8::7", "5h"), ("Ip", "192.0.2.5", "29s")], &[]),
            true,
            NOW + 1,
        );
        assert_eq!(case.enforce(NOW + 1), [0; 3]);
        assert_eq!(case.layers.run_time.entries().len(), 2);
    }

    #[test]
    fn allow_comes_first_whatever_the_length_of_its_prefix() {
        let mut case = Case::new();
        let made = [
            ("Ip", "192.0.2.5", "30s"),
            ("Range", "203.0.113.0/24", "30s"),
            ("Ip", "198.51.100.1", "30s"),
        ];
        case.decisions.apply(&answer(&made, &[]), true, NOW);
        case.enforce(NOW);
        case.allow("192.0.2.0/24");
        case.allow("203.0.113.7/32");
        let whom = Whom::Prefix("198.51.100.0/24".parse().unwrap());
        case.layers.policy.allow = vec![Listed { whom, until: Some(NOW + 5) }];
        let plan = case.plan(NOW);
        assert_eq!((plan.allowed, plan.ended), (2, 2));
        case.enforce(NOW);
        assert_eq!(case.layers.run_time.list(List::Deny).count(), 1);
        let allowed = case.layers.view().around("203.0.113.7/32".parse().unwrap());
        let by = crate::policy::run_time::decides(&allowed, NOW).unwrap();
        assert_eq!(by.list, List::Allow);
        // It ends, and the ban is still there.
        assert_eq!(case.enforce(NOW + 5), [1, 0, 0]);
        assert_eq!(case.in_force(NOW + 5), "198.51.100.1/32 25, 203.0.113.0/24 25");
    }

    #[test]
    fn this_host_is_never_banned() {
        let mut case = Case::new();
        case.host.addresses.insert("198.51.100.7".parse().unwrap());
        case.host.gateways.insert("2001:db8:9::1".parse().unwrap());
        let made = [
            ("Ip", "198.51.100.7", "30s"),
            ("Range", "198.51.100.0/28", "30s"),
            ("Range", "0.0.0.0/0", "30s"),
            // Another host in the network that is one source.
            ("Ip", "2001:db8:9::66", "30s"),
            ("Ip", "198.51.100.8", "30s"),
        ];
        case.decisions.apply(&answer(&made, &[]), true, NOW);
        let plan = case.plan(NOW);
        let harmful: Vec<_> = plan.harmful.iter().map(|(prefix, _)| prefix.to_string()).collect();
        assert_eq!(harmful, ["0.0.0.0/0", "198.51.100.0/28", "198.51.100.7/32", "2001:db8:9::/64"]);
        case.enforce(NOW);
        assert_eq!(case.in_force(NOW), "198.51.100.8/32 30");
        // It gets another address.
        case.host.addresses.insert("198.51.100.8".parse().unwrap());
        assert_eq!(case.enforce(NOW), [0, 0, 1]);
    }

    #[test]
    fn what_is_left_of_a_ban_stays_the_same_when_the_clock_is_set() {
        let mut case = Case::new();
        case.decisions.apply(&answer(&[("Ip", "192.0.2.5", "30s")], &[]), true, NOW);
        case.enforce(NOW);
        for step in [-86_400_i64, 86_400, 4] {
            let mut later = Case {
                decisions: Decisions::default(),
                layers: case.layers.clone(),
                host: Host::default(),
                pushed: Pushed::default(),
            };
            later.decisions.apply(&answer(&[("Ip", "192.0.2.5", "30s")], &[]), true, NOW);
            later.decisions.shift(step);
            let now = NOW.saturating_add_signed(step);
            later.enforce(now);
            assert_eq!(later.in_force(now), "192.0.2.5/32 30", "{step}");
        }
    }

    #[test]
    fn long_bans_share_their_ends() {
        let mut case = Case::new();
        let made: Vec<String> = (0..200).map(|at| format!("{}s", 24 * HOUR + at)).collect();
        let made: Vec<_> =
            made.iter().enumerate().map(|(at, left)| (format!("192.0.2.{at}"), left)).collect();
        let made: Vec<_> = made.iter().map(|(value, left)| ("Ip", &**value, &***left)).collect();
        case.decisions.apply(&answer(&made, &[]), true, NOW);
        case.enforce(NOW);
        let mut ends: Vec<_> = case.layers.run_time.entries().iter().map(|it| it.until).collect();
        ends.dedup();
        assert!(ends.len() <= 5, "{}", ends.len());
    }

    /// What LAPI does, as its source has it: it tells of a subject by the decision that ends last, and of changes since the last
    /// question of the key.
    #[derive(Clone, Debug, Default)]
    struct Lapi {
        /// Subject, when it was made, and when it ends.
        decisions: Vec<(u8, u64, u64)>,
        asked: u64,
    }

    impl Lapi {
        fn has(&self, subject: u8, now: u64) -> bool {
            self.decisions.iter().any(|it| it.0 == subject && it.2 > now)
        }

        fn answer(&mut self, is_whole: bool, now: u64) -> Answer {
            let since = std::mem::replace(&mut self.asked, now);
            let is_longest = |it: &&(u8, u64, u64)| {
                self.decisions.iter().all(|other| other.0 != it.0 || other.2 <= it.2)
            };
            let longest = || self.decisions.iter().filter(is_longest);
            let made = longest().filter(|it| it.2 > now && (is_whole || it.1 > since));
            let ended = longest().filter(|it| it.2 <= now && (is_whole || it.2 > since));
            let made: Vec<_> = made.map(|it| (address(it.0), format!("{}s", it.2 - now))).collect();
            let made: Vec<_> = made.iter().map(|(value, left)| ("Ip", &**value, &**left)).collect();
            let ended: Vec<_> = ended.map(|it| address(it.0)).collect();
            let ended: Vec<_> = ended.iter().map(|value| ("Ip", &**value)).collect();
            answer(&made, &ended)
        }
    }

    /// Two neighbours are one source.
    fn address(subject: u8) -> String {
        format!("2001:db8:0:{}::{subject}", subject / 2)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Decide(u8, u64),
        Delete(u8),
        /// Seconds pass.
        Wait(u64),
        /// An answer comes, or is lost.
        Ask(bool),
        Restart,
        SetClock(i64),
        /// LAPI's is set with it.
        SetClocks(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..6_u8, 1..200_u64).prop_map(|(subject, left)| Step::Decide(subject, left)),
            1 => (0..6_u8, HOUR..3 * HOUR).prop_map(|(subject, left)| Step::Decide(subject, left)),
            2 => (0..6_u8).prop_map(Step::Delete),
            2 => (1..100_u64).prop_map(Step::Wait),
            5 => prop_oneof![4 => Just(true), 1 => Just(false)].prop_map(Step::Ask),
            1 => Just(Step::Restart),
            1 => (-9_000..9_000_i64).prop_map(Step::SetClock),
            1 => (-9_000..9_000_i64).prop_map(Step::SetClocks),
        ]
    }

    proptest! {
        /// After each answer, those are denied who have a decision, and nobody else.
        #[test]
        fn what_is_in_force_is_what_lapi_has(room in 0..3_usize, steps in proptest::collection::vec(step(), 1..60)) {
            let (mut case, mut lapi) = (Case::with_room(room), Lapi::default());
            // LAPI's time, and by how much ours is ahead.
            let (mut time, mut skew, mut is_whole) = (NOW, 0_i64, true);
            for step in steps {
                let now = time.saturating_add_signed(skew);
                match step {
                    Step::Decide(subject, left) => {
                        time += 1;
                        lapi.decisions.push((subject, time, time + left));
                    }
                    Step::Delete(subject) => {
                        time += 1;
                        for it in lapi.decisions.iter_mut().filter(|it| it.0 == subject && it.2 > time) {
                            it.2 = time;
                        }
                    }
                    Step::Wait(seconds) => time += seconds,
                    Step::SetClock(seconds) => {
                        skew += seconds;
                        case.set_clock(seconds);
                        is_whole = true;
                    }
                    Step::SetClocks(seconds) => {
                        time = time.saturating_add_signed(seconds);
                        case.set_clock(seconds);
                        is_whole = true;
                    }
                    Step::Restart => {
                        case.decisions = Decisions::default();
                        case.decisions.restore(case.layers.run_time.entries().iter(), &case.pushed);
                        is_whole = true;
                    }
                    Step::Ask(false) => {
                        lapi.answer(is_whole, time);
                        is_whole = true;
                        time += 1;
                    }
                    Step::Ask(true) => {
                        let answer = lapi.answer(is_whole, time);
                        case.decisions.apply(&answer, is_whole, now);
                        case.decisions.drop_over(now);
                        is_whole = false;
                        case.pushed.ends.retain(|_, end| *end > now);
                        case.enforce(now);
                        for pair in 0..3 {
                            let source: IpNet = format!("2001:db8:0:{pair}::/64").parse().unwrap();
                            let is_denied = case.layers.run_time.list(List::Deny).any(|it| {
                                it.prefix == source && !it.is_over(now)
                            });
                            let pushed = case.pushed.ends.get(&source.addr());
                            prop_assert!(!is_denied || pushed.is_none(), "{} twice", source);
                            let is_denied = is_denied || pushed.is_some_and(|end| *end > now);
                            let has = lapi.has(2 * pair, time) || lapi.has(2 * pair + 1, time);
                            prop_assert_eq!(is_denied, has, "{}", source);
                        }
                        time += 1;
                    }
                }
            }
        }
    }
}
