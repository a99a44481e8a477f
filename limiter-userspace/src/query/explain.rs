//! The lists and limits that decide about packets of a kind, in order.

use std::{
    net::IpAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
use limiter_common::{
    base::address::Address,
    packet::{
        control::Protocol,
        headers::Packet,
        parse::parse,
        protocol::{TCP, UDP},
    },
    policy::{limit::Key, matching::match_field},
};

use super::{
    Inquiry, Verdict,
    conditions::{self, Accepted},
    decide::{control_protocol, decide, source_key},
    entries::{Entry, prefix_having, source_of},
    frame::{Sighting, Sketch},
    limit::{Kept, LimitReport, OF_SOURCE, kept},
    lists::{Lists, Until},
    state::SourceState,
    words::{has_ports, is_icmp},
};
use crate::{
    datapath::monitoring::Monitoring,
    error::Result,
    policy::{
        List,
        model::{KeyPart, Mode, Policy, Whom},
        run_time::{Layer, Listing, Stated, listing, phases},
    },
};

/// A kind of packets. A field that is `None` may have any value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: Option<IpAddr>,
    /// The IP protocol number.
    pub protocol: Option<u8>,
    /// The destination port.
    pub port: Option<u16>,
    /// The slot of the interface that the packets come in by.
    pub slot: Option<u32>,
    /// The TCP flags.
    pub flags: Option<u8>,
    /// The ICMP type.
    pub icmp: Option<u8>,
    /// Bytes of the frame, from the Ethernet header on.
    pub length: Option<usize>,
    /// Whether the packets are first fragments.
    pub fragment: bool,
}

/// The lists and limits that decide about a kind of packets, in order.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The source: an address, or the prefix that counts as one source.
    pub source: IpNet,
    /// Whether the instance is in monitor mode.
    pub monitoring: Monitoring,
    /// The lists that the source is on, in the order in which they are asked.
    pub lists: Vec<ListReport>,
    /// The tenant of the source, and its longest prefix with the source.
    pub tenant: Option<(String, Option<IpNet>)>,
    /// Every limit, in the order in which they are asked, and then those with `mode: off`.
    pub limits: Vec<(LimitReport, Standing)>,
    /// The name of the control protocol that such packets belong to. No list and no limit applies
    /// to control traffic that has a budget.
    pub control: Option<&'static str>,
    /// The verdict on such a packet now; `None` if a field that was not given may change it.
    pub verdict: Option<Verdict>,
}

/// A list that the source is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListReport {
    /// Its name: `allow`, `deny` or `penalty`.
    pub list: &'static str,
    /// The prefix of its entry, and the set if the prefix is in one. For a block by a limit: the
    /// limit. Empty if the entry ended meanwhile.
    pub entry: String,
    /// Where the entry comes from: `document`, `set`, `run_time`, or `limit` for a block by a
    /// limit.
    pub layer: &'static str,
    /// The reason that was given with the command that set it.
    pub reason: Option<String>,
    /// When it ends.
    pub until: Until,
}

/// How a limit applies to a kind of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It applies to all of them.
    Applies,
    /// It applies to some of them, by these fields, which were not given.
    Depends(Vec<&'static str>),
    /// It does not apply to them, because of this: a word of the fields that limits match on,
    /// `source`, `tenant`, `unlimited`, `control` or `off`.
    Not(&'static str),
}

impl ListReport {
    /// The words `run time` and the reason, in parentheses, for an entry that a command set; empty
    /// for any other.
    pub fn origin(&self) -> String {
        match (self.layer, &self.reason) {
            ("run_time", Some(reason)) => format!(" (run time, {reason})"),
            ("run_time", None) => " (run time)".to_owned(),
            _ => String::new(),
        }
    }
}

impl Inquiry<'_> {
    /// Explains which lists and limits decide about a kind of packets.
    ///
    /// # Errors
    /// - The errors of [`Sketch::build`], such as [`Families`](crate::query::InquiryError::Families).
    /// - [`Changing`](crate::query::InquiryError::Changing), if the policy changed during every attempt.
    /// - A map cannot be read.
    pub fn explain(&mut self, question: &Question, now: u64) -> Result<Explanation> {
        self.steadily(now, |inquiry| inquiry.explanation(question, now))
    }

    fn explanation(&self, question: &Question, now: u64) -> Result<Option<Explanation>> {
        let Self { tables, entries, .. } = self;
        let policy = entries.policy();
        let frame = question.sketch().build()?;
        let frame = Sighting::whole(&frame);
        let mut packet = Packet::UNREADABLE;
        // A sketch is always IP.
        let _ = parse(&frame, &mut packet);
        let key = source_key(tables, Address::from(question.source));
        let Some(source) = source_of(policy.key_prefix, &key) else { return Ok(None) };
        let Some(state) = SourceState::find(tables, key, now)?.settled() else { return Ok(None) };
        let tenant = entries.tenant(state.profile.tenant);
        let slot = question.slot.unwrap_or(0);
        let given = question.given();
        let accepted = Accepted::by(tables, (&packet, frame.total as u64, slot), given)?;

        let control = control_protocol(tables, &packet, slot)?;

        let mut limits = Vec::new();
        for entry in entries.iter() {
            let applies = state.profile.limits & entry.bit != 0;
            let open = conditions::asked(entry.limit) & !given;
            let standing = match (applies, accepted.against(entry.bit)) {
                _ if control.is_some() => Standing::Not("control"),
                (false, _) => Standing::Not(why_not(policy, &entry, source.addr(), tenant)),
                (true, Some(word)) => Standing::Not(word),
                (true, None) if open != 0 => Standing::Depends(conditions::words(open)),
                (true, None) => Standing::Applies,
            };
            let mut report =
                LimitReport::new(&entry, entry.set_for(source.addr(), tenant), policy.key_prefix);
            if !matches!(standing, Standing::Not(_)) {
                let limit = tables.limit(entry.bit)?;
                let known = (&packet, slot, question.known());
                report.kept = kept(tables, &state, &limit, known, now)?;
            }
            limits.push((report, standing));
        }
        let certain = limits.iter().all(|(report, standing)| match standing {
            Standing::Applies => report.kept != Kept::Many,
            Standing::Depends(_) => false,
            Standing::Not(_) => true,
        });
        let lists = self.lists_of(&state, source, now);
        let listed = lists.decide();
        let ruling =
            if certain || listed { decide(tables, None, &frame, slot, now)? } else { None };
        let off = policy.limits.iter().filter(|limit| limit.mode == Mode::Off);
        limits.extend(
            off.map(|limit| (LimitReport::off(limit, policy.key_prefix), Standing::Not("off"))),
        );
        Ok(Some(Explanation {
            source,
            monitoring: tables.monitoring,
            lists: match control {
                Some(_) => Vec::new(),
                None => self.lists(&lists, source),
            },
            control: control.map(Protocol::name),
            tenant: tenant.map(|name| (name.clone(), prefix_of(policy, name, source.addr()))),
            limits,
            verdict: ruling.map(|ruling| self.verdict_of(&ruling)),
        }))
    }

    /// The lists that a source is on. Of `deny` and `penalty`, the tables have only what decides about packets. Who is on both
    /// has to be taken off both.
    pub(super) fn lists_of(&self, state: &SourceState, source: IpNet, now: u64) -> Lists {
        const SECOND: u64 = 1_000_000_000;
        let mut lists = Lists::of(&self.entries, state, now);
        if lists.allowed.is_some() || lists.denied.or(lists.blocked).is_none() {
            return lists;
        }
        let stated = self.entries.layered().around(source);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let alone = |list: List| {
            let stated: Vec<_> = stated.iter().filter(|it| it.list == list).copied().collect();
            let Listing { denied, blocked, .. } = listing(&stated, unix);
            let until = denied.max(blocked);
            Until::left(until.saturating_mul(SECOND), unix.saturating_mul(SECOND))
        };
        lists.denied = lists.denied.or_else(|| alone(List::Deny));
        lists.blocked = lists.blocked.or_else(|| alone(List::Penalty));
        lists
    }

    /// Reports the lists in the order in which the datapath asks them, each with the entry that
    /// decides while its list does.
    pub(super) fn lists(&self, lists: &Lists, source: IpNet) -> Vec<ListReport> {
        let stated = self.entries.layered().around(source);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let phases = phases(&stated, now);
        let of = |list: List, until: Option<Until>| {
            let until = until?;
            let decides = phases.iter().find(|phase| phase.by.list == list).map(|phase| phase.by);
            // A list that is asked after another one may decide at no time. Then its longest entry
            // is reported.
            let longest = || {
                let same = stated.iter().filter(|it| it.list == list && it.until > now);
                same.max_by_key(|it| (it.until, it.prefix.prefix_len()))
            };
            let (entry, layer, reason) = match decides.or_else(longest) {
                Some(by) => (entry_text(by), layer_name(by), reason_of(by)),
                None => Default::default(),
            };
            Some(ListReport { list: list.name(), entry, layer, reason, until })
        };
        let penalty = lists.penalty.as_ref().map(|block| ListReport {
            list: "penalty",
            entry: block.to_string(),
            layer: if block.pushed { "push" } else { "limit" },
            reason: None,
            until: block.until,
        });
        let of_lists = [
            of(List::Allow, lists.allowed),
            of(List::Deny, lists.denied),
            of(List::Penalty, lists.blocked),
            penalty,
        ];
        of_lists.into_iter().flatten().collect()
    }
}

fn entry_text(by: &Stated<'_>) -> String {
    match by.layer {
        Layer::Document(Whom::Set(name)) => format!("{} in the set {name}", by.prefix),
        _ => by.prefix.to_string(),
    }
}

const fn layer_name(by: &Stated<'_>) -> &'static str {
    match by.layer {
        Layer::Document(Whom::Set(_)) => "set",
        Layer::Document(Whom::Prefix(_)) => "document",
        Layer::RunTime(_) => "run_time",
    }
}

fn reason_of(by: &Stated<'_>) -> Option<String> {
    match by.layer {
        Layer::Document(_) => None,
        Layer::RunTime(entry) => entry.reason.as_deref().map(str::to_owned),
    }
}

/// The longest prefix of a tenant that contains a source.
fn prefix_of(policy: &Policy, tenant: &str, source: IpAddr) -> Option<IpNet> {
    let having = policy.tenants.get(tenant)?.iter().filter(|prefix| prefix.contains(&source));
    having.max_by_key(|prefix| prefix.prefix_len()).copied()
}

/// The reason why a limit does not apply to a source.
fn why_not(
    policy: &Policy,
    entry: &Entry<'_>,
    source: IpAddr,
    tenant: Option<&String>,
) -> &'static str {
    let matching = &entry.limit.matching;
    let named =
        matching.sources.is_empty() || prefix_having(policy, &matching.sources, source).is_some();
    let excepted = prefix_having(policy, &matching.except_sources, source).is_some();
    if !named || excepted {
        "source"
    } else if tenant.is_none() && entry.key().parts.contains(&KeyPart::Tenant) {
        "tenant"
    } else {
        "unlimited"
    }
}

impl Question {
    /// All packets of a source.
    pub const fn of(source: IpAddr) -> Self {
        Self {
            source,
            destination: None,
            protocol: None,
            port: None,
            slot: None,
            flags: None,
            icmp: None,
            length: None,
            fragment: false,
        }
    }

    /// The fields that are known: constants of [`match_field`], or-ed. A field that the protocol
    /// does not have counts as known.
    fn given(&self) -> u32 {
        let other_than = |is: fn(u8) -> bool| self.protocol.is_some_and(|protocol| !is(protocol));
        [
            (match_field::PROTOCOL, self.protocol.is_some()),
            (match_field::PORT, self.port.is_some() || other_than(has_ports)),
            (match_field::SOURCE_PORT, other_than(has_ports)),
            (match_field::FLAGS, self.flags.is_some() || other_than(|protocol| protocol == TCP)),
            (match_field::ICMP, self.icmp.is_some() || other_than(is_icmp)),
            (match_field::FRAGMENT, true),
            (match_field::LENGTH, self.length.is_some()),
            (match_field::INTERFACE, self.slot.is_some()),
            (match_field::DESTINATION, self.destination.is_some()),
        ]
        .into_iter()
        .filter(|(_, given)| *given)
        .fold(0, |match_fields, (match_field, _)| match_fields | match_field)
    }

    /// The parts of keys that are known: constants of [`Key`], or-ed.
    fn known(&self) -> u32 {
        let ports = self.protocol.is_some_and(|it| self.port.is_some() || !has_ports(it));
        [
            (Key::DESTINATION, self.destination.is_some()),
            (Key::PORT, ports),
            // Without ports, the key of a connection has no source port either.
            (Key::SOURCE_PORT, self.protocol.is_some_and(|it| !has_ports(it))),
            (Key::INTERFACE, self.slot.is_some()),
        ]
        .into_iter()
        .filter(|(_, known)| *known)
        .fold(OF_SOURCE, |parts, (part, _)| parts | part)
    }

    /// Makes a packet of this kind. A field that is not given gets a value that does not matter.
    fn sketch(&self) -> Sketch {
        let protocol = self.protocol.unwrap_or(if self.port.is_some() { TCP } else { UDP });
        let nobody = match self.source {
            IpAddr::V4(_) => IpAddr::from([0; 4]),
            IpAddr::V6(_) => IpAddr::from([0_u8; 16]),
        };
        Sketch {
            ports: [0, self.port.unwrap_or(0)],
            flags: self.flags.unwrap_or(0),
            icmp: self.icmp.unwrap_or(0),
            fragment: self.fragment,
            length: self.length,
            ..Sketch::new(self.source, self.destination.unwrap_or(nobody), protocol)
        }
    }
}
