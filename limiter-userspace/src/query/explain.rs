//! Which entries of the policy decide about packets of a kind, in order.

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
    source::found,
    state::SourceState,
    words::{has_ports, is_icmp},
};
use crate::{
    datapath::monitoring::Monitoring,
    error::Result,
    policy::{
        List,
        model::{KeyPart, Mode, Policy, Whom},
        run_time::{Layer, Stated, phases},
    },
};

/// A kind of packets: what is not given may be anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: Option<IpAddr>,
    /// The protocol.
    pub protocol: Option<u8>,
    /// The destination port.
    pub port: Option<u16>,
    /// The slot of the interface.
    pub slot: Option<u32>,
    /// The flags of TCP.
    pub flags: Option<u8>,
    /// The type of ICMP.
    pub icmp: Option<u8>,
    /// Bytes of the frame.
    pub length: Option<usize>,
    /// Whether it is a fragment, the first one.
    pub fragment: bool,
}

/// What decides about a kind of packets, in order.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The source.
    pub source: IpNet,
    /// Whether anything is dropped.
    pub monitoring: Monitoring,
    /// What the lists say, in the order in which they are asked.
    pub lists: Vec<ListReport>,
    /// The tenant that the source is of, and the prefix that says so.
    pub tenant: Option<(String, Option<IpNet>)>,
    /// Every limit, narrow before wide, and those that are off.
    pub limits: Vec<(LimitReport, Standing)>,
    /// The protocol of control traffic that such packets are of; no list and no limit is about those.
    pub control: Option<&'static str>,
    /// What would become of such a packet now, if that is certain.
    pub verdict: Option<Verdict>,
}

/// A list that has the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListReport {
    /// Its name: `allow`, `deny` or `penalty`.
    pub list: &'static str,
    /// Its entry, or why it has none.
    pub entry: String,
    /// Where the entry comes from, in a word: `document`, `set`, `run_time`, or `limit` for a block by one.
    pub layer: &'static str,
    /// Why it was set, if whoever set it said so.
    pub reason: Option<String>,
    /// For how long it holds.
    pub until: Until,
}

/// How a limit stands to a kind of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is about them.
    Applies,
    /// It may be: these things decide, and were not given.
    Depends(Vec<&'static str>),
    /// It is not, for this.
    Not(&'static str),
}

impl ListReport {
    /// Where the entry comes from and why, in words; nothing for the document itself.
    pub fn origin(&self) -> String {
        match (self.layer, &self.reason) {
            ("run_time", Some(reason)) => format!(" (run time, {reason})"),
            ("run_time", None) => " (run time)".to_owned(),
            _ => String::new(),
        }
    }
}

impl Inquiry<'_> {
    /// What decides about a kind of packets.
    ///
    /// # Errors
    /// What the system says, [`Families`](crate::query::InquiryError::Families) and the other errors of
    /// [`Sketch::build`], or [`Changing`](crate::query::InquiryError::Changing).
    pub fn explain(&mut self, question: &Question, now: u64) -> Result<Explanation> {
        self.steadily(now, |inquiry| inquiry.explanation(question, now))
    }

    fn explanation(&self, question: &Question, now: u64) -> Result<Option<Explanation>> {
        let Self { tables, entries, .. } = self;
        let policy = entries.policy();
        let frame = question.sketch().build()?;
        let frame = Sighting::whole(&frame);
        let mut packet = Packet::UNREADABLE;
        // It is IP, as a sketch makes nothing else.
        let _ = parse(&frame, &mut packet);
        let key = source_key(tables, Address::from(question.source));
        let Some(source) = source_of(policy.key_prefix, &key) else { return Ok(None) };
        let Some(state) = found(SourceState::find(tables, key, now)?) else { return Ok(None) };
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
        let lists = Lists::of(&self.entries, &state, now);
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

    /// What the lists say, as the datapath asks them: the entry of each is the one that decides where its list
    /// does.
    pub(super) fn lists(&self, lists: &Lists, source: IpNet) -> Vec<ListReport> {
        let stated = self.entries.layered().around(source);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let phases = phases(&stated, now);
        let of = |list: List, until: Option<Until>| {
            let until = until?;
            let decides = phases.iter().find(|phase| phase.by.list == list).map(|phase| phase.by);
            // One that is asked after another list never decides.
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
            layer: "limit",
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
        Layer::RunTime(entry) => entry.reason.clone(),
    }
}

/// The prefix that makes a source one of a tenant.
fn prefix_of(policy: &Policy, tenant: &str, source: IpAddr) -> Option<IpNet> {
    let having = policy.tenants.get(tenant)?.iter().filter(|prefix| prefix.contains(&source));
    having.max_by_key(|prefix| prefix.prefix_len()).copied()
}

/// Why a limit is not about a source.
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
    /// A kind of packets of which only the source is given.
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

    /// The things of a packet that are given: constants of [`match_field`], or-ed.
    fn given(&self) -> u32 {
        let other_than = |is: fn(u8) -> bool| self.protocol.is_some_and(|protocol| !is(protocol));
        [
            (match_field::PROTOCOL, self.protocol.is_some()),
            (match_field::PORT, self.port.is_some() || other_than(has_ports)),
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
            // A protocol without ports has connections without.
            (Key::SOURCE_PORT, self.protocol.is_some_and(|it| !has_ports(it))),
            (Key::INTERFACE, self.slot.is_some()),
        ]
        .into_iter()
        .filter(|(_, known)| *known)
        .fold(OF_SOURCE, |parts, (part, _)| parts | part)
    }

    /// A packet of the kind.
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
