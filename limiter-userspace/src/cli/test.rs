//! `limiter test`.

use std::path::PathBuf;

use clap::Args;

use super::{maps, policy::read::Document, progress::Progress, stderr::warn};
use crate::{
    datapath::{
        bpffs::Pins,
        instance::{Attached, attached},
        maps::Maps,
        trial::trial,
    },
    error::{Error, Result},
    output::{
        stream::Output,
        verdict::{self, Summary},
    },
    policy::{
        interfaces::{listed, select},
        units::printable,
    },
    query::{
        Inquiry,
        capture::Capture,
        error::InquiryError,
        fragments::Fragments,
        frame::{Sighting, Sketch},
        now,
        target::parse_address,
        words::{check_port, check_protocol, parse_flags, parse_icmp, parse_port, parse_protocol},
    },
};

const HELP: &str = "\
The verdict is that of the policy in force on the present state, by the code that the program in the \
kernel is made of. Nothing is charged, created or counted.

Each packet of a file is judged by itself, against the present state: none of them is charged, so a \
burst in the file does not use up a limit. Later fragments follow the first one of their datagram, if \
the file has it before them.

With `--policy`, packets are judged by a document instead, in a fresh state. Nothing has to be attached, \
and an instance that runs is not asked. Limits about an interface then match no packet. It takes the \
rights of root, as the kernel keeps the tables.

A file is pcap or pcapng, of Ethernet, of plain IP, of loopback interfaces, or of `tcpdump -i any`. \
Packets without an Ethernet header are taken for frames with one. Of a file that is cut at its end, what was \
read is judged, with a warning. Of one that is damaged it is too, and the exit code is 1.";

#[derive(Debug, Args)]
#[command(
    override_usage = "limiter test [OPTIONS] --src <ADDRESS> --dst <ADDRESS>\n       limiter test \
                      [OPTIONS] --pcap <FILE>",
    after_help = HELP
)]
pub(super) struct Test {
    /// Source address
    #[arg(long, value_name = "ADDRESS", requires = "dst", required_unless_present = "pcap")]
    src: Option<String>,
    /// Destination address, of the same family
    #[arg(long, value_name = "ADDRESS", requires = "src")]
    dst: Option<String>,
    /// Protocol: tcp, udp, icmp, another name, or a number
    #[arg(long, value_name = "PROTO", default_value = "tcp")]
    proto: String,
    /// Source port [default: 49152]
    #[arg(long, value_name = "PORT")]
    sport: Option<String>,
    /// Destination port, or the name of a service [default: 0]
    #[arg(long, value_name = "PORT")]
    dport: Option<String>,
    /// TCP flags, e.g. syn or syn,ack or none [default: ack]
    #[arg(long)]
    flags: Option<String>,
    /// ICMP type, e.g. echo-request or 8 [default: echo-request]
    #[arg(long, value_name = "TYPE")]
    icmp: Option<String>,
    /// Length of the frame in bytes, with its Ethernet header [default: its headers, 60 at least]
    #[arg(long, value_name = "N")]
    length: Option<usize>,
    /// VLAN ID; given twice, the first is the outer one
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(0..=4095))]
    tagged: Vec<u16>,
    /// The packet is a first fragment
    #[arg(long)]
    fragment: bool,
    /// Interface that packets arrive on, named as for `limiter attach` [default: the first one that is attached]
    #[arg(long = "in", value_name = "IFACE")]
    interface: Option<String>,
    /// Judge the packets of a capture, as tcpdump and Wireshark write it, also with gzip or zstd; `-` is
    /// standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["src", "dst", "proto", "sport", "dport",
          "flags", "icmp", "length", "tagged", "fragment"])]
    pcap: Option<PathBuf>,
    /// Judge by this policy document, not by the policy in force
    #[arg(long, value_name = "FILE", conflicts_with = "interface")]
    policy: Option<PathBuf>,
    /// Print the verdict of every packet of a file
    #[arg(short, long, requires = "pcap")]
    verbose: bool,
}

impl Test {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        match &self.pcap {
            Some(path) => self.file(Capture::open(path)?, pins, output),
            None => {
                let frame = self.sketch()?.build()?;
                let (maps, slot) = self.tables(pins)?;
                let now = now();
                let mut inquiry = Inquiry::new(&maps, now)?;
                let verdict = inquiry.verdict(&Sighting::whole(&frame), slot, now)?;
                Ok(verdict::print(output, None, &verdict)?)
            }
        }
    }

    fn file(&self, mut capture: Capture, pins: &Pins, output: &mut Output) -> Result<()> {
        let (maps, slot) = self.tables(pins)?;
        let mut inquiry = Inquiry::new(&maps, now())?;
        let mut summary = Summary::default();
        let (fragments, start) = (Fragments::default(), now());
        let progress = (!self.verbose).then(|| Progress::of("judging packets"));
        let mut first = None;
        // A file that is cut or damaged is judged up to there.
        let end = loop {
            let (time, sighting) = match capture.read() {
                Ok(Some(packet)) => packet,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            // Fragments expire by the time of their capture, as if the first packet came in now.
            let at = start.saturating_add(time.saturating_sub(*first.get_or_insert(time)));
            let verdict = inquiry.verdict_after(&fragments, at, &sighting, slot, now())?;
            summary.add(&verdict, sighting.total as u64);
            if self.verbose {
                verdict::print(output, Some(summary.packets()), &verdict)?;
                if output.is_closed() {
                    break Ok(());
                }
            }
        };
        drop(progress);
        if end.is_ok() || summary.packets() > 0 {
            summary.print(output)?;
            output.flush()?;
        }
        match end {
            Err(error @ InquiryError::Cut { .. }) if summary.packets() > 0 => {
                warn(&format!("{error}: the packets before it were judged"), output);
                Ok(())
            }
            end => Ok(end?),
        }
    }

    /// The tables that packets are judged by, and the slot of the interface that they come in by.
    fn tables(&self, pins: &Pins) -> Result<(Maps, u32)> {
        match &self.policy {
            Some(file) => Ok((trial(&Document::read(file)?.policy)?, 0)),
            None => {
                let maps = maps(pins)?;
                let slot = slot(&attached(pins, &maps)?, self.interface.as_deref())?;
                Ok((maps, slot))
            }
        }
    }

    fn sketch(&self) -> Result<Sketch> {
        let given = |text: &Option<String>| text.clone().unwrap_or_default();
        let source = parse_address("source", &given(&self.src))?;
        let destination = parse_address("destination", &given(&self.dst))?;
        let protocol = parse_protocol(&self.proto, source.is_ipv4())?;
        let (flags, icmp) = (self.flags.as_deref(), self.icmp.as_deref());
        check_protocol(protocol, source.is_ipv4(), flags, icmp)?;
        let flags = parse_flags(flags.unwrap_or("ack"))?;
        let icmp = parse_icmp(icmp.unwrap_or("echo-request"), source.is_ipv4())?;
        let port = |what, given: Option<&str>, default| {
            check_port(what, protocol, given)?;
            parse_port(what, given.unwrap_or(default))
        };
        let ports = [
            port("source port", self.sport.as_deref(), "49152")?,
            port("port", self.dport.as_deref(), "0")?,
        ];
        Ok(Sketch {
            ports,
            flags,
            icmp,
            fragment: self.fragment,
            tags: self.tagged.clone(),
            length: self.length,
            ..Sketch::new(source, destination, protocol)
        })
    }
}

/// The slot of the attached interface that a word means; without a word, of the first one.
pub(super) fn slot(attached: &[Attached], word: Option<&str>) -> Result<u32> {
    let found = match word {
        Some(word) => select(word, attached).into_iter().next(),
        None => attached.first(),
    };
    let found = found.map(|attached| attached.slot);
    found.ok_or_else(|| not_attached(word.unwrap_or_default(), attached))
}

/// The error for a word that means no attached interface.
pub(super) fn not_attached(word: &str, attached: &[Attached]) -> Error {
    Error::NotAttached {
        name: printable(word, 128),
        attached: listed(attached.iter().map(|attached| &attached.name)),
    }
}
