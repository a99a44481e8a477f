//! `limiter policy explain`.

use clap::Args;
use limiter_common::packet::protocol::TCP;

use super::{maps, test::slot};
use crate::{
    datapath::{bpffs::Pins, instance::attached},
    error::Result,
    output::{explanation, stream::Output},
    policy::units::quoted,
    query::{
        Inquiry, InquiryError,
        explain::Question,
        now,
        target::{parse_address, parse_target},
        words::{check_protocol, icmp_of, parse_flags, parse_icmp},
    },
};

const HELP: &str = "\
What is not given may be anything: a limit that asks about it is shown with its condition. Nothing is \
changed.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Explain {
    /// Source, and destination port and protocol: 203.0.113.9, 203.0.113.9:443/tcp,
    /// 203.0.113.9/icmp, [2001:db8::1]:53/udp
    #[arg(value_name = "ADDRESS[:PORT/PROTO]")]
    target: String,
    /// Destination address
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// Interface that the packet arrives on [default: the one that is attached, if it is the only one]
    #[arg(long = "in", value_name = "IFACE")]
    interface: Option<String>,
    /// TCP flags, e.g. syn or syn,ack or none
    #[arg(long)]
    flags: Option<String>,
    /// ICMP type, e.g. echo-request or 8
    #[arg(long, value_name = "TYPE", conflicts_with = "flags")]
    icmp: Option<String>,
    /// Length of the frame in bytes, with its Ethernet header
    #[arg(long, value_name = "N")]
    length: Option<usize>,
    /// The packet is a first fragment
    #[arg(long)]
    fragment: bool,
}

impl Explain {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let mut question = self.question()?;
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

    fn question(&self) -> Result<Question> {
        let (source, port, protocol) = parse_target(&self.target)?;
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
                value: quoted(&self.target),
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
