//! The shipped example policies, under the traffic they are made for.

use anyhow::Result;
use limiter_common::packet::reason::Reason;
use limiter_tests::packet::{Extension, Frame, SYN};

use super::{
    case::{Case, SOURCE4, SOURCE6, Sources, TARGET4, TARGET6},
    flood::OVER,
    outcome::Outcome,
    setting::Setting,
    shipped::{Example, Traffic},
};

/// An address of the tenant `umbrella` in `tenants.yaml`.
const CUSTOMER: [u8; 4] = [198, 51, 100, 135];
/// The number of IPv6 extension headers in [`Traffic::MadeUpExtended`].
const EXTENSIONS: usize = 8;

impl Traffic {
    fn sources(self) -> Sources {
        match self {
            Self::Udp => Sources::One,
            Self::Syns => Sources::NewConnections,
            Self::MadeUpSyns | Self::MadeUpUdp => Sources::MadeUp,
            Self::MadeUpExtended => Sources::MadeUp6,
        }
    }

    /// A frame from `source` to `port`.
    fn frame(self, source: [u8; 4], port: u16) -> Frame {
        match self {
            Self::Udp | Self::MadeUpUdp => Frame::udp(source, TARGET4, 40_000, port),
            Self::Syns | Self::MadeUpSyns => Frame::tcp(source, TARGET4, 40_000, port, SYN),
            Self::MadeUpExtended => {
                let udp = Frame::udp(SOURCE6, TARGET6, 40_000, port);
                (0..EXTENSIONS)
                    .fold(udp, |frame, _| frame.extension(Extension::destination_options(0)))
            }
        }
    }
}

/// Id and end of the name; policy, traffic, source and destination port; the expected outcome, and the limits
/// to which passed frames are charged.
type Row =
    (&'static str, &'static str, Example, Traffic, [u8; 4], u16, Outcome, &'static [&'static str]);

#[rustfmt::skip]
const ROWS: [Row; 11] = [
    ("web_edge_udp", "one source's UDP", Example::WebEdge, Traffic::Udp, SOURCE4, 443,
        OVER, &["web", "rest"]),
    // In a long run, the penalty of the limit `syn` begins.
    ("web_edge_syn", "one source's SYNs from new ports", Example::WebEdge, Traffic::Syns, SOURCE4, 443,
        Outcome::Most(&[Reason::Exceed, Reason::Penalty], &[Reason::Conform]), &["syn", "web", "rest"]),
    ("web_edge_made_up_syn", "made-up sources' SYNs", Example::WebEdge, Traffic::MadeUpSyns, SOURCE4, 443,
        Outcome::Each(Reason::Conform), &["syn", "web", "rest"]),
    ("web_edge_made_up_udp", "made-up sources' UDP", Example::WebEdge, Traffic::MadeUpUdp, SOURCE4, 443,
        Outcome::Each(Reason::Conform), &["web", "rest"]),
    ("web_edge_made_up_ipv6", "made-up sources' IPv6 with 8 options", Example::WebEdge, Traffic::MadeUpExtended, SOURCE4, 443,
        Outcome::Each(Reason::Conform), &["web", "rest"]),
    ("dns_server_udp", "one source's queries", Example::DnsServer, Traffic::Udp, SOURCE4, 53,
        OVER, &["queries", "bytes", "all-queries"]),
    // Frames exceed `all-queries` if the CPU generates more than it admits.
    ("dns_server_made_up_udp", "made-up sources' queries", Example::DnsServer, Traffic::MadeUpUdp, SOURCE4, 53,
        Outcome::Most(&[Reason::Conform, Reason::Exceed], &[]), &["queries", "bytes", "all-queries"]),
    ("ssh_guard_syn", "one source's SYNs from new ports", Example::SshGuard, Traffic::Syns, SOURCE4, 22,
        Outcome::Most(&[Reason::Monitor], &[Reason::Conform]), &["ssh", "ssh-network"]),
    ("ssh_guard_made_up_syn", "made-up sources' SYNs", Example::SshGuard, Traffic::MadeUpSyns, SOURCE4, 22,
        Outcome::Each(Reason::Conform), &["ssh", "ssh-network"]),
    ("tenants_udp", "UDP of one machine of a customer", Example::Tenants, Traffic::Udp, CUSTOMER, 443,
        Outcome::Both([Reason::Conform, Reason::Exceed]), &["tenant", "machine"]),
    ("tenants_made_up_udp", "made-up sources' UDP", Example::Tenants, Traffic::MadeUpUdp, SOURCE4, 443,
        Outcome::Each(Reason::Conform), &["machine"]),
];

/// Builds the cases.
pub(crate) fn cases() -> Result<Vec<Case>> {
    let case = |(id, what, example, traffic, source, port, outcome, charged): Row| {
        let (file, _) = example.file();
        let name = format!("{file}: {what}");
        let frame = traffic.frame(source, port);
        let case = Case::new(id, name, Setting::Example(example, traffic), &frame)?;
        let charged = charged.iter().map(|limit| (*limit).to_owned()).collect();
        Ok(Case { outcome, charged, ..case.of(traffic.sources()) })
    };
    ROWS.into_iter().map(case).collect()
}
