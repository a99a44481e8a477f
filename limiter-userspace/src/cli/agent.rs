//! `limiter agent`.

use std::{fs::File, io, os::fd::AsFd as _, path::PathBuf, time::Duration};

use clap::{
    Args,
    builder::{FalseyValueParser, PathBufValueParser, TypedValueParser as _},
};
use limiter_common::algorithm::rate::Rate;
use thiserror::Error;

use super::unix;
use crate::{
    agent::{self, Options, address::Address, control, journal::Journal},
    bridge::{listener::Bound, users},
    crowdsec::lapi,
    datapath::{bpffs::Pins, loader::Loader, privilege},
    error::{Error, Failure, Result},
    output::stream::Output,
    policy::{
        interfaces::check,
        units::{parse_rate, parse_time},
    },
};

const HELP: &str = "\
It prints a line for each event, with -j in JSON. Where its standard output is the journal of systemd, an \
event is an entry with a priority and fields, such as LIMITER_EVENT and LIMITER_SOURCE. On SIGHUP it reads \
and applies the document at once; SIGTERM and SIGINT end it. Attached interfaces stay attached, and their \
limits stay in force, without it.

At its start it gives up all capabilities but CAP_BPF and CAP_NET_ADMIN. It starts a loader (limiter-loader), \
which keeps CAP_PERFMON too, makes maps and loads programs for it. The loader ends with the agent. If it ends \
before, the agent ends with an error; interfaces stay attached and limited, and the agent is to be started anew.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Agent {
    /// Interfaces to attach whenever they exist, named as for `limiter attach`; in the variable, separated
    /// by spaces
    #[arg(
        short,
        long = "interface",
        value_name = "IFACE",
        env = "LIMITER_INTERFACES",
        value_delimiter = ' ',
        value_parser = interface
    )]
    interfaces: Vec<String>,
    /// Policy document to apply, now and whenever it changes
    #[arg(long, value_name = "FILE", env = "LIMITER_POLICY",
          value_parser = PathBufValueParser::new().try_map(file))]
    policy: Option<PathBuf>,
    /// Serve /metrics for Prometheus, /healthz and /readyz in plain HTTP: on an address, e.g.
    /// 127.0.0.1:9180, or on unix:PATH
    #[arg(long, value_name = "ADDRESS", env = "LIMITER_LISTEN", value_delimiter = ' ',
          value_parser = address)]
    listen: Vec<Listen>,
    /// Long-run rate of events about sources that are printed, e.g. 100/min, or none
    #[arg(long, value_name = "RATE", default_value = EVENTS, value_parser = events,
          env = "LIMITER_EVENTS")]
    events: Events,
    /// Answer other processes on unix:PATH, e.g. unix:/run/limiter/agent.sock: they push blocks of single sources, and ask about
    /// sources
    #[arg(long, value_name = "ADDRESS", env = "LIMITER_CONTROL", value_parser = control)]
    control: Option<Listen>,
    /// Group of the control socket, whose users may connect
    #[arg(long, value_name = "GROUP", env = "LIMITER_CONTROL_GROUP")]
    group: Option<String>,
    /// User whose processes are answered on the control socket, besides that of the agent
    /// [default: root and limiter-bridge]
    #[arg(long, value_name = "USER", requires = "control")]
    trusted: Vec<String>,
    /// Long-run rate of blocks that are pushed by the control socket, or none for any number
    #[arg(long, value_name = "RATE", default_value = PUSHES, value_parser = pushes)]
    push_rate: Events,
    /// Ban whom CrowdSec decides to, as a bouncer of its local API at this URL, e.g. http://127.0.0.1:8080
    #[arg(long, value_name = "URL", env = "LIMITER_CROWDSEC_URL", value_parser = crowdsec)]
    crowdsec: Option<LapiUrl>,
    /// File with the key that `cscli bouncers add` printed; for nobody but its owner and group
    #[arg(long, value_name = "FILE", env = "LIMITER_CROWDSEC_KEY_FILE")]
    crowdsec_key_file: Option<PathBuf>,
    /// Time between two questions to CrowdSec, from 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "10s", env = "LIMITER_CROWDSEC_INTERVAL", value_parser = interval)]
    crowdsec_interval: Duration,
    /// Push the bans of single sources into the running tables: no policy is put in force again. Others, and those that find no room,
    /// are in the set `crowdsec` of the list `deny`
    #[arg(long, env = "LIMITER_CROWDSEC_PUSH", value_parser = FalseyValueParser::new())]
    crowdsec_push: bool,
}

/// The path of a document, which is followed as it changes.
fn file(path: PathBuf) -> Result<PathBuf, &'static str> {
    match path.to_str() {
        Some("-") => Err("an agent follows a file; give its path"),
        _ => Ok(path),
    }
}

/// A word for interfaces; an empty variable has an empty one.
fn interface(word: &str) -> Result<String, String> {
    if !word.is_empty() {
        check(word)?;
    }
    Ok(word.to_owned())
}

/// How many events are told unless something else is said.
const EVENTS: &str = "10/s";

/// What a word of `--listen` says: nothing, if a variable is empty.
type Listen = Option<Address>;

fn address(text: &str) -> Result<Listen, String> {
    (!text.is_empty()).then(|| text.parse()).transpose()
}

/// How many blocks are pushed unless something else is said.
const PUSHES: &str = "100/s";

fn pushes(text: &str) -> Result<Events, String> {
    events(if text.is_empty() { PUSHES } else { text })
}

fn control(text: &str) -> Result<Listen, String> {
    match address(text)? {
        Some(Address::Tcp(_)) => {
            Err("give unix:PATH: a port could be asked by any process".to_owned())
        }
        address => Ok(address),
    }
}

/// What `--crowdsec` says: nothing, if the variable is empty.
type LapiUrl = Option<lapi::Url>;

fn crowdsec(text: &str) -> Result<LapiUrl, String> {
    (!text.is_empty()).then(|| text.parse()).transpose()
}

/// CrowdSec takes no question without a key.
#[derive(Debug, Error)]
#[error("`--crowdsec` is given without `--crowdsec-key-file`")]
struct NoKeyFile;

impl Failure for NoKeyFile {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Option<String> {
        Some("give a file with the key that `cscli bouncers add NAME -o raw` prints".to_owned())
    }
}

/// The time between two questions; an empty variable stands for the usual one.
fn interval(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Ok(lapi::INTERVAL);
    }
    let time = parse_time(text).map_err(|error| error.to_string())?;
    let [shortest, longest] = lapi::INTERVALS;
    match (shortest..=longest).contains(&time) {
        true => Ok(time),
        false => Err("give a time from 1s to 1h".to_owned()),
    }
}

/// What `--events` says.
type Events = Option<Rate>;

fn events(text: &str) -> Result<Events, String> {
    if text == "none" {
        return Ok(None);
    }
    parse_rate(if text.is_empty() { EVENTS } else { text })
        .map(Some)
        .map_err(|error| error.to_string())
}

impl Agent {
    pub(super) fn run(self, pins: Pins, output: &mut Output) -> Result<()> {
        privilege::check()?;
        privilege::check_sysfs()?;
        let Self {
            mut interfaces, policy, listen, events, control, group, trusted, push_rate, ..
        } = self;
        let key_file = self.crowdsec_key_file.filter(|file| !file.as_os_str().is_empty());
        let crowdsec = match (self.crowdsec.flatten(), key_file) {
            (Some(url), Some(key_file)) => {
                Some(lapi::Options { url, key_file, interval: self.crowdsec_interval })
            }
            (Some(_), None) => return Err(NoKeyFile.into()),
            (None, _) => None,
        };
        let group = group.filter(|name| !name.is_empty());
        let group = group.as_deref().map(users::group).transpose()?;
        // While it may give the socket to any group.
        let bound = control.flatten().map(|address| Bound::bind(&address, group)).transpose()?;
        // Before there is any other thread, which would keep what it has, and before anything of others is read.
        let loader = privilege::separate(&pins, || Loader::start(pins.directory()))?;
        let pins = pins.loading_by(loader);
        // An empty variable names none.
        interfaces.retain(|name| !name.is_empty());
        let policy = policy.filter(|file| !file.as_os_str().is_empty());
        let listen = listen.into_iter().flatten().collect();
        let control = bound.map(|bound| control::Options { bound, trusted, rate: push_rate });
        let crowdsec_push = self.crowdsec_push;
        let options =
            Options { interfaces, policy, listen, events, control, crowdsec, crowdsec_push };
        // Whoever waits for standard output to be read has its lock, which the end of the command takes.
        let stdout = io::stdout().as_fd().try_clone_to_owned();
        let stdout = stdout.map_err(|error| Error::system("use standard output", error))?;
        let journal = if output.is_json() { None } else { Journal::behind(&stdout) };
        let mut output = Output::new(File::from(stdout), output.is_json(), false);
        agent::run(options, pins, unix, move |dated| {
            // What does not fit into one datagram is told without its fields.
            if journal.as_ref().is_some_and(|journal| journal.tell(dated).is_ok()) {
                return true;
            }
            let told = match output.is_json() {
                true => output.json(dated),
                false => writeln!(output, "{}", dated.event),
            };
            // A full disk is no reason to see to nothing any more.
            told.and_then(|()| output.flush()).is_ok() && !output.is_closed()
        })
    }
}
