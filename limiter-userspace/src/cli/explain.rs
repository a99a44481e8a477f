//! `limiter policy explain`.

use std::path::PathBuf;

use clap::Args;
use limiter_common::packet::protocol::TCP;

use super::{maps, test::slot, unix};
use crate::{
    datapath::{bpffs::Pins, instance::attached},
    error::Result,
    output::{self, explanation, stream::Output},
    policy::{reading, units::quoted},
    query::{
        self, Inquiry, InquiryError,
        explain::Question,
        now,
        request::Sent,
        target::{parse_address, parse_target},
        words::{check_protocol, icmp_of, parse_flags, parse_icmp},
    },
};

const HELP: &str = "\
What is not given of a packet may be anything: a limit that asks about it is shown with its condition. A request has the \
headers that are given. Nothing is changed.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Explain {
    /// Source, and destination port and protocol: 203.0.113.9, 203.0.113.9:443/tcp,
    /// 203.0.113.9/icmp, [2001:db8::1]:53/udp
    #[arg(
        value_name = "ADDRESS[:PORT/PROTO]",
        required_unless_present = "request",
        conflicts_with = "request"
    )]
    target: Option<String>,
    /// Destination address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "request")]
    to: Option<String>,
    /// Interface that the packet arrives on [default: the one that is attached, if it is the only one]
    #[arg(long = "in", value_name = "IFACE", conflicts_with = "request")]
    interface: Option<String>,
    /// TCP flags, e.g. syn or syn,ack or none
    #[arg(long, conflicts_with = "request")]
    flags: Option<String>,
    /// ICMP type, e.g. echo-request or 8
    #[arg(long, value_name = "TYPE", conflicts_with_all = ["flags", "request"])]
    icmp: Option<String>,
    /// Length of the frame in bytes, with its Ethernet header
    #[arg(long, value_name = "N", conflicts_with = "request")]
    length: Option<usize>,
    /// The packet is a first fragment
    #[arg(long, conflicts_with = "request")]
    fragment: bool,
    /// Ask about a request instead of packets, e.g. POST /login: by which keys the limits on requests count it, and what
    /// they admit
    #[arg(long, value_name = "METHOD PATH", num_args = 1..=2)]
    request: Vec<String>,
    /// A header of the request, e.g. x-user-id:7; may be given several times
    #[arg(long, value_name = "NAME:VALUE", requires = "request", conflicts_with = "target")]
    header: Vec<String>,
    /// Address of the client that sends the request [default: it may be any]
    #[arg(long, value_name = "ADDRESS", requires = "request", conflicts_with = "target")]
    source: Option<String>,
    /// Ask this document, in YAML, instead of the policy in force; - for the standard input
    #[arg(long, value_name = "FILE", requires = "request", conflicts_with = "target")]
    policy: Option<PathBuf>,
}

impl Explain {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        match &self.target {
            Some(target) => self.of_packets(target, pins, output),
            // The command line asks for one of the two.
            None => self.of_request(pins, output),
        }
    }

    fn of_request(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let sent = Sent::parse(&self.request.join(" "), &self.header, self.source.as_deref())?;
        let policy = match &self.policy {
            Some(file) => reading::read(file, unix(), &mut |_| {})?.0,
            None => maps(pins)?.policy()?,
        };
        let explanation = query::request::explain(&policy, &sent, unix());
        Ok(output::request::print(output, &sent, &explanation)?)
    }

    fn of_packets(&self, target: &str, pins: &Pins, output: &mut Output) -> Result<()> {
        let mut question = self.question(target)?;
        let maps = maps(pins)?;
        let attached = attached(pins, &maps)?;
        question.slot = match (&self.interface, &attached[..]) {
            (None, [_, _, ..]) => None,
            (name, _) => Some(slot(&attached, name.as_deref())?),
        };
        let now = now();
        let explanation = Inquiry::new(&maps, now)?.explain(&question, now)?;
        Ok(explanation::print(output, &explanation)?)
    }

    fn question(&self, target: &str) -> Result<Question> {
        let (source, port, protocol) = parse_target(target)?;
        let flags = self.flags.as_deref().map(parse_flags).transpose()?;
        let icmp = |text: &String| parse_icmp(text, source.is_ipv4());
        let icmp = self.icmp.as_ref().map(icmp).transpose()?;
        let destination =
            self.to.as_deref().map(|text| parse_address("destination", text)).transpose()?;
        // Only TCP has flags, and only ICMP has types.
        let by_icmp = icmp.map(|_| icmp_of(source.is_ipv4()));
        let protocol = protocol.or_else(|| flags.map(|_| TCP)).or(by_icmp);
        if let Some(protocol) = protocol {
            let (flags, icmp) = (self.flags.as_deref(), self.icmp.as_deref());
            check_protocol(protocol, source.is_ipv4(), flags, icmp)?;
        }
        if port.is_some() && icmp.is_some() {
            return Err(InquiryError::Value {
                what: "source",
                value: quoted(target),
                fault: "has a port, and ICMP has none",
                examples: "leave out the port, or `--icmp`".to_owned(),
            }
            .into());
        }
        Ok(Question {
            destination,
            protocol,
            port,
            flags,
            icmp,
            length: self.length,
            fragment: self.fragment,
            ..Question::of(source)
        })
    }
}
