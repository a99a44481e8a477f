//! `limiter drops`.

use std::{
    fs::OpenOptions,
    io::{self, BufWriter, Write},
    num::NonZeroU64,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant, SystemTime},
};

use clap::{Args, builder::PossibleValuesParser};
use ipnet::IpNet;
use limiter_common::{memory::sample::Sampling, packet::reason::Reason};
use tokio::{
    runtime, select,
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval, sleep},
};

use super::{maps, no_instance, test::not_attached};
use crate::{
    datapath::{
        bpffs::Pins,
        instance::{Attached, attached},
        lookup::now,
        maps::Maps,
        samples::{RENEWAL, Sampler, Wishes},
    },
    error::{Error, Result},
    output::{
        drops::{self, Tops},
        stream::Output,
    },
    policy::{
        PolicyError,
        interfaces::select as select_interfaces,
        tallies,
        units::{parse_prefix, parse_time},
    },
    query::{
        capture::write::Writer,
        dropped::{Dropped, Names, captured},
    },
};

/// How often it is looked for samples.
const PERIOD: Duration = Duration::from_millis(20);
/// The path that stands for standard output.
const STDOUT: &str = "-";
/// The name of the reason for packets that pass, as a limit or everything is only monitored.
const MONITOR: &str = "monitor";

const HELP: &str = "\
The datapath shows some of the packets that it drops, up to `--rate` a second, and only while this \
command runs. Meanwhile, a dropped packet takes some 100 ns more. Options choose among the packets \
before the rate is counted. Where there are more, those that are shown are drawn at random, and shares \
are of them. What was not shown is counted at the end. Times are in UTC.

Packets over a limit that is only monitored, or in monitor mode, are shown as `monitored`.

With `--pcap`, packets are written and not printed: the first 128 bytes of each, and its length. The \
file has Ethernet frames and times in nanoseconds. `limiter drops --pcap - | tcpdump -nr -` has \
tcpdump print them.

It takes the rights of root, or CAP_BPF, CAP_NET_ADMIN and access to the directory of the instance. \
One process at a time can read an instance.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Drops {
    /// Only packets over this limit
    #[arg(long, value_name = "NAME")]
    limit: Option<String>,
    /// Only packets of this reason; `monitor` is what would have been dropped
    #[arg(long, value_name = "REASON", value_delimiter = ',', value_parser = reasons())]
    reason: Vec<String>,
    /// Only packets of this source: an address or a prefix
    #[arg(long, value_name = "PREFIX", alias = "src")]
    source: Option<String>,
    /// Only packets that come in by this interface, named as for `limiter attach`
    #[arg(short, long, value_name = "IFACE", alias = "in")]
    interface: Vec<String>,
    /// End after this number of packets
    #[arg(short, long, value_name = "N")]
    count: Option<NonZeroU64>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME")]
    length: Option<String>,
    /// The most packets that are shown a second
    #[arg(long, value_name = "N", default_value = "1000",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Print only what most packets have in common, at the end
    #[arg(long)]
    top: bool,
    /// Write the packets to a pcap file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

/// The reasons that packets are dropped for.
fn reasons() -> PossibleValuesParser {
    let drops = Reason::ALL.into_iter().filter(|reason| reason.drops());
    PossibleValuesParser::new(drops.map(Reason::name).chain([MONITOR]))
}

impl Drops {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let source =
            self.source.as_deref().map(parse_prefix).transpose().map_err(PolicyError::from)?;
        let length =
            self.length.as_deref().map(parse_time).transpose().map_err(PolicyError::from)?;
        let mut watch = Watch::begin(self, pins, source)?;
        let mut shown = Shown {
            lines: !self.top && self.pcap.is_none(),
            file: self.pcap.as_deref().map(Pcap::create).transpose()?,
            tops: Tops::default(),
            counted: 0,
            left: self.count.map(NonZeroU64::get),
        };
        if shown.lines {
            drops::titles(output)?;
            output.flush()?;
        }
        let begun = Instant::now();
        let failed = |error| Error::system("wait for dropped packets", error);
        let runtime = || runtime::Builder::new_current_thread().enable_all().build();
        let (own, other) = (runtime().map_err(failed)?, runtime().map_err(failed)?);
        // Where nobody reads the output any more, this thread waits for that, and sees no signal.
        thread::spawn(move || other.block_on(end_at_last()));
        let ended = own.block_on(read(&mut watch, &mut shown, output, length));
        // Nothing is shown from here on.
        let missed = watch.end(&shown);
        let time = begun.elapsed();
        if self.pcap.as_deref() == Some(Path::new(STDOUT)) {
            let mut messages = Output::new(io::stderr(), output.is_json(), false);
            shown.tops.print(&mut messages, time, missed)?;
            messages.flush()?;
        } else {
            if shown.lines && !output.is_json() {
                writeln!(output)?;
            }
            shown.tops.print(output, time, missed)?;
        }
        ended
    }

    /// What is asked of the datapath, and the names of what its samples have numbers of.
    fn wishes(
        &self,
        maps: &Maps,
        attached: &[Attached],
        source: Option<IpNet>,
    ) -> Result<(Wishes, Names)> {
        let in_force = maps.in_force()?;
        let tallied = tallies(&in_force.policy, &in_force.held)?;
        let mut chosen = Sampling::ANY_LIMIT;
        if let Some(name) = &self.limit {
            let is_it = |limit: &str| limit == name.as_str();
            if !in_force.policy.listed_names().iter().any(|limit| is_it(limit))
                && !tallied.iter().any(|tallied| is_it(&tallied.name))
            {
                return Err(in_force.policy.unknown(name).into());
            }
            chosen = [0; 2];
            for tallied in tallied.iter().filter(|it| is_it(&it.limit) || is_it(&it.name)) {
                if let Some(word) = chosen.get_mut(tallied.place as usize / 64) {
                    *word |= 1 << (tallied.place % 64);
                }
            }
        }
        let mut slots = if self.interface.is_empty() { u64::MAX } else { 0 };
        for word in &self.interface {
            let found = select_interfaces(word, attached);
            if found.is_empty() {
                return Err(not_attached(word, attached));
            }
            slots |= found.iter().fold(0, |slots, it| slots | 1_u64 << (it.slot % 64));
        }
        let names = names(maps, attached)?;
        let (reasons, rate) = (self.reasons(), self.rate);
        Ok((Wishes { reasons, slots, tallies: chosen, source, rate }, names))
    }

    /// Bit set of the reasons to show. Packets that pass are shown if a limit or everything is only monitored.
    fn reasons(&self) -> u64 {
        let is_asked = |reason: &Reason| {
            let name = if reason.drops() { reason.name() } else { MONITOR };
            self.reason.is_empty() || self.reason.iter().any(|asked| asked == name)
        };
        let asked = Reason::ALL.into_iter().filter(is_asked);
        asked.fold(0, |set, reason| set | 1 << reason.index())
    }
}

/// The names of what samples have numbers of.
pub(super) fn names(maps: &Maps, attached: &[Attached]) -> Result<Names> {
    let in_force = maps.in_force()?;
    let tallied = tallies(&in_force.policy, &in_force.held)?;
    Ok(Names {
        limits: tallied.into_iter().map(|it| (it.place, it.name)).collect(),
        interfaces: attached.iter().map(|it| (it.slot, it.name.clone())).collect(),
    })
}

/// An instance whose dropped packets are read.
struct Watch<'a> {
    asked: &'a Drops,
    pins: &'a Pins,
    source: Option<IpNet>,
    maps: Maps,
    wishes: Wishes,
    names: Names,
    sampler: Sampler,
    /// The epoch of the policy that the names are of.
    epoch: u32,
    /// How many packets there were to be shown before; `None` if that is not known.
    before: Option<u64>,
}

impl<'a> Watch<'a> {
    fn begin(asked: &'a Drops, pins: &'a Pins, source: Option<IpNet>) -> Result<Self> {
        let maps = maps(pins)?;
        let epoch = maps.epoch()?;
        let (wishes, names) = asked.wishes(&maps, &attached(pins, &maps)?, source)?;
        let before = dropped(asked, &maps, &wishes, &names)?;
        let sampler = Sampler::begin(&maps, wishes)?;
        Ok(Self { asked, pins, source, maps, wishes, names, sampler, epoch, before })
    }

    /// Whether another policy is in force than that of the names.
    fn is_outdated(&self) -> Result<bool> {
        Ok(self.maps.epoch()? != self.epoch)
    }

    /// Asks for samples once more, by the policy and the interfaces of now.
    fn renew(&mut self) -> Result<()> {
        // The tables may have been exchanged, or the instance removed and made anew.
        if !self.maps.are_pinned(self.pins)? {
            *self = Self::begin(self.asked, self.pins, self.source)?;
            // What was counted before is not known any more.
            self.before = None;
            return Ok(());
        }
        let attached = attached(self.pins, &self.maps)?;
        if attached.is_empty() {
            return Err(no_instance(self.pins));
        }
        self.epoch = self.maps.epoch()?;
        let (wishes, names) = self.asked.wishes(&self.maps, &attached, self.source)?;
        // The counters of what is gone are gone too.
        let is_gone = self.names.interfaces.keys().any(|slot| !names.interfaces.contains_key(slot))
            || self.names.limits.keys().any(|place| !names.limits.contains_key(place));
        self.before = self.before.filter(|_| !is_gone);
        (self.wishes, self.names) = (wishes, names);
        self.sampler.renew(self.wishes)
    }

    /// Ends it. Returns how many packets were not shown of those that could have been; `None` if that is not known.
    fn end(self, shown: &Shown) -> Option<u64> {
        drop(self.sampler);
        // What a limit only monitors is in no count.
        if shown.counted < shown.tops.packets() {
            return None;
        }
        let now = dropped(self.asked, &self.maps, &self.wishes, &self.names).ok()??;
        Some(now.saturating_sub(self.before?).saturating_sub(shown.counted))
    }
}

/// How many packets were dropped since the instance was made, of those that are asked for; `None` if that is not counted.
fn dropped(asked: &Drops, maps: &Maps, wishes: &Wishes, names: &Names) -> Result<Option<u64>> {
    let is_split = !asked.interface.is_empty() || !asked.reason.is_empty();
    if wishes.source.is_some() || asked.limit.is_some() && is_split {
        return Ok(None);
    }
    let mut packets = 0_u64;
    if asked.limit.is_some() {
        for place in names.limits.keys().filter(|place| is_in(&wishes.tallies, **place)) {
            let tally = maps.tally(*place)?;
            // What a limit only monitors may be shown under another one that drops it.
            if tally.monitored.packets > 0 {
                return Ok(None);
            }
            packets = packets.wrapping_add(tally.exceed.packets);
        }
        return Ok(Some(packets));
    }
    for slot in names.interfaces.keys().filter(|slot| wishes.slots >> (*slot % 64) & 1 != 0) {
        let counters = maps.counters(*slot)?;
        let counted = Reason::ALL.into_iter().filter(|reason| is_counted(*reason));
        for reason in counted.filter(|reason| wishes.reasons >> reason.index() & 1 != 0) {
            packets = packets.wrapping_add(counters.reasons[reason.index()].packets);
        }
    }
    Ok(Some(packets))
}

/// Whether all packets of a reason are dropped, or would be.
fn is_counted(reason: Reason) -> bool {
    reason.drops() || reason == Reason::Monitor
}

/// Whether a set of tallies has this one.
fn is_in(tallies: &[u64; 2], place: u32) -> bool {
    tallies.get(place as usize / 64).is_some_and(|word| word >> (place % 64) & 1 != 0)
}

/// What becomes of the packets that are shown.
struct Shown {
    lines: bool,
    file: Option<Pcap>,
    tops: Tops,
    /// How many of them are among those that [`dropped`] counts.
    counted: u64,
    /// How many more to show.
    left: Option<u64>,
}

/// Reads until the time is up, so many packets came, or a signal asks to end.
async fn read(
    watch: &mut Watch<'_>,
    shown: &mut Shown,
    output: &mut Output,
    length: Option<Duration>,
) -> Result<()> {
    let failed = |error| Error::system("wait for dropped packets", error);
    let caught = |kind| signal(kind).map_err(failed);
    let mut interrupt = caught(SignalKind::interrupt())?;
    let mut terminate = caught(SignalKind::terminate())?;
    let mut hangup = caught(SignalKind::hangup())?;
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (begun, mut renewed) = (Instant::now(), Instant::now());
    loop {
        select! {
            biased;
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            _ = ticks.tick() => {}
        }
        let is_over = length.is_some_and(|length| begun.elapsed() >= length);
        if take(watch, shown, output)? || is_over {
            return Ok(());
        }
        if renewed.elapsed() >= RENEWAL || watch.is_outdated()? {
            renewed = Instant::now();
            watch.renew()?;
        }
    }
}

/// Ends the process when a signal asked for that and nothing came of it.
async fn end_at_last() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    let number = select! {
        _ = interrupt.recv() => libc::SIGINT,
        _ = terminate.recv() => libc::SIGTERM,
    };
    sleep(RENEWAL).await;
    // As a shell tells of a process that a signal ended. The datapath shows nothing after the time that was asked for.
    process::exit(128 + number);
}

/// Takes the samples that are there. Returns whether no more are wanted.
fn take(watch: &mut Watch<'_>, shown: &mut Shown, output: &mut Output) -> Result<bool> {
    let (time, clock) = (SystemTime::now(), now());
    let mut is_new = false;
    for sample in watch.sampler.by_ref() {
        let packet = Dropped::of(&sample, &watch.names, time, clock);
        if !watch.wishes.have(&sample) {
            continue;
        }
        // The datapath goes by the source that it read last, of frames without one too.
        let is_of = |prefix: IpNet| packet.content.source().is_some_and(|it| prefix.contains(&it));
        if watch.source.is_some_and(|prefix| !is_of(prefix)) {
            continue;
        }
        is_new = true;
        let reason = Reason::ALL.get(sample.reason as usize);
        let is_counted = watch.asked.limit.is_some() || reason.is_some_and(|it| is_counted(*it));
        shown.counted += u64::from(is_counted);
        shown.tops.add(&packet);
        if let Some(file) = &mut shown.file {
            file.write(&packet, &captured(&sample))?;
        } else if shown.lines {
            drops::print(output, &packet)?;
        }
        if let Some(left) = &mut shown.left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                break;
            }
        }
    }
    let mut is_closed = false;
    if is_new {
        output.flush()?;
        is_closed = match &mut shown.file {
            Some(file) => file.flush()?,
            None => output.is_closed(),
        };
    }
    Ok(is_closed || shown.left == Some(0))
}

/// A pcap file, or standard output.
struct Pcap {
    name: String,
    writer: Writer<BufWriter<Box<dyn Write>>>,
}

impl Pcap {
    fn create(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let failed = |error| Error::system(format!("write {name}"), error);
        let file: Box<dyn Write> = if path == Path::new(STDOUT) {
            Box::new(io::stdout())
        } else {
            // It has what others sent. A link that somebody put there is not followed.
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            Box::new(options.custom_flags(libc::O_NOFOLLOW).open(path).map_err(failed)?)
        };
        let mut writer = Writer::new(BufWriter::new(file)).map_err(failed)?;
        // tcpdump waits for the header.
        writer.flush().map_err(failed)?;
        Ok(Self { name, writer })
    }

    fn write(&mut self, packet: &Dropped, frame: &crate::query::frame::Sighting<'_>) -> Result<()> {
        let written = self.writer.write(packet.time, frame);
        self.outcome(written).map(drop)
    }

    /// Writes the rest of the buffer. Returns whether nobody reads any more.
    fn flush(&mut self) -> Result<bool> {
        let flushed = self.writer.flush();
        self.outcome(flushed)
    }

    /// A reader that has closed the pipe is no error.
    fn outcome(&self, result: io::Result<()>) -> Result<bool> {
        match result {
            Ok(()) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
            Err(error) => Err(Error::system(format!("write {}", self.name), error)),
        }
    }
}
