//! `limiter limit add`.

use clap::Args;
use limiter_common::packet::protocol::TCP;

use super::{Action, edit, named};
use crate::{
    cli::keep_ssh::KeepSsh,
    datapath::bpffs::Pins,
    error::Result,
    output::stream::Output,
    policy::{
        document::NewLimit,
        model::{Count, Limit, Mode},
        units::rate_per_second,
    },
};

/// What `--match` takes, for the help of the command.
pub(super) const WORDS: &str = "\
Words of --match (a packet has to meet all of them; without any, the limit is about all packets):
  tcp  udp  icmp  gre             a protocol
  tcp:22,80  udp:53  tcp:ssh      a protocol and destination ports
  icmp:echo-request               a protocol and types of ICMP
  syn                             new TCP connections
  sport:53  source_ports:53,123   source ports
  dst:198.51.100.1                a destination address or prefix
  src:203.0.113.0/24  src:office  a source prefix, or a set of the policy
  web                             a service of the policy
  KEY:VALUE,VALUE                 any key of `match` in a policy: tcp_flags:syn, length:64-128, fragments:true,
                                  except:office, except_destination:198.51.100.1, interface:eth0";

#[derive(Debug, Args)]
pub(in crate::cli) struct Add {
    /// Name of the new limit: 1 to 32 of a-z, 0-9, _ and -
    name: String,
    /// What it limits, e.g. tcp:22, udp:53, icmp, syn, sport:53; see below [default: all packets]
    #[arg(long = "match", value_name = "WORD", num_args = 1.., action = clap::ArgAction::Append)]
    matching: Vec<String>,
    /// Rate, e.g. 10kpps, 50/s, 5/min; with `--count bytes` e.g. 2Mbit/s; 0 drops all that matches, as --action drop does
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,
    /// Burst: packets, e.g. 2k, or bytes, e.g. 64kB, or a time, e.g. 100ms
    #[arg(long, value_name = "N", requires = "rate", allow_hyphen_values = true)]
    burst: Option<String>,
    /// Instead of a rate: open TCP connections, e.g. 50, which is the algorithm `concurrent`
    #[arg(long, value_name = "N", conflicts_with = "rate", allow_hyphen_values = true)]
    open: Option<String>,
    /// Keep it per source, source/24, destination, destination_port, connection, tenant, interface, or all of them
    /// together; several are joined by commas
    #[arg(
        long = "per",
        value_name = "KEY",
        value_delimiter = ',',
        default_value = "source",
        alias = "key"
    )]
    key: Vec<String>,
    /// What is counted: packets, bytes, syns or connections [default: packets]
    #[arg(long, value_name = "WHAT")]
    count: Option<String>,
    /// How it decides, e.g. token_bucket, leaky_bucket, fixed_window, sliding_window [default: token_bucket]
    #[arg(long, value_name = "NAME")]
    algorithm: Option<String>,
    /// What happens over the limit: enforce drops, monitor only counts, off does neither; drop drops all that matches, and
    /// takes no rate
    #[arg(long, value_enum, default_value = "enforce", alias = "mode")]
    action: Action,
    /// Only for packets that come in by this interface
    #[arg(long, short, value_name = "IFACE", value_delimiter = ',')]
    interface: Vec<String>,
    #[command(flatten)]
    keep: KeepSsh,
}

impl Add {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let mut matching = self.matching.clone();
        if !self.interface.is_empty() {
            matching.push(format!("interface:{}", self.interface.join(",")));
        }
        let new = NewLimit {
            name: &self.name,
            matching: &matching,
            key: &self.key,
            rate: self.rate.as_deref(),
            burst: self.burst.as_deref(),
            open: self.open.as_deref(),
            count: self.count.as_deref(),
            algorithm: self.algorithm.as_deref(),
            action: Some(Mode::from(self.action).name()),
        };
        edit(pins, &self.name, &self.keep, output, |policy| {
            let limit = new.read(policy)?;
            let (name, said, note) = (named(&limit), described(&limit), note(&limit));
            let is_new = policy.add_limit(limit)?;
            let already = if is_new { "" } else { "there already: " };
            Ok(format!("{name}: {already}{said}{note}"))
        })
    }
}

/// What to say of a limit of some packets of TCP a minute, which stops connections that are open: mostly, new connections
/// were meant.
fn note(limit: &Limit) -> &'static str {
    let rate = limit.layers.first().and_then(|layer| layer.allowance.rate());
    let is_slow =
        rate.is_some_and(|rate| rate_per_second(rate).as_f64().is_some_and(|it| it < 1.0));
    let is_about_open = limit.matching.protocols == [TCP] && limit.matching.tcp_flags.is_none();
    if is_slow && is_about_open && limit.count == Count::Packets && limit.mode == Mode::Enforce {
        "\nnote: it counts every packet, also of open connections; with `--count connections`, new ones"
    } else {
        ""
    }
}

/// What a limit admits, and what it does with the rest.
fn described(limit: &Limit) -> String {
    let admitted = limit.layers.first().map_or_else(String::new, |layer| {
        let bucket = layer.allowance.bucket();
        match layer.allowance.rate() {
            None => limit.count.described(bucket.burst),
            Some(_) => super::describe(limit, &bucket),
        }
    });
    match limit.mode {
        Mode::Enforce => admitted,
        Mode::Drop => "drops all that it is about".to_owned(),
        mode => format!("{admitted}, {}", mode.name()),
    }
}
