//! `limiter attach`.

mod asked;
mod done;
mod report;

use clap::{Args, ValueEnum};

use self::{
    asked::{Asked, PolicyOptions, Wanted},
    done::Done,
    report::{All, Applied, Table},
};
use super::{
    progress::Progress,
    stderr::{warn, warn_of_error, warn_of_unfinished},
};
use crate::{
    datapath::{
        bpffs::{Pins, unmount},
        ethtool::Device,
        exchange::Exchanged,
        instance::{Attached, Choice, Instance},
        interface::{Interface, resolve},
        main_program::takes_pieces,
        mode::Mode,
        privilege,
        program::Clock,
        sizes::Sizes,
    },
    doctor::interruption,
    error::{Error, Result},
    output::stream::Output,
    policy::{
        document::diff,
        units::{Burst, parse_burst},
    },
};

#[derive(Debug, Args)]
pub(super) struct Attach {
    /// Interfaces: names, alternative names, patterns such as 'veth*', or indices such as if7; all of an
    /// instance share one policy and one set of buckets
    #[arg(required = true, value_name = "IFACE")]
    interfaces: Vec<String>,
    /// XDP mode: auto takes native, or generic where the driver has no XDP; native-frags is native for packets in several
    /// pieces, with which the MTU can be raised while attached
    #[arg(long, value_enum, default_value = "auto")]
    mode: ModeName,
    #[command(flatten)]
    policy: PolicyOptions,
    /// Replace the program of interfaces that are attached already, keeping all state; where an exchange of the table was
    /// interrupted and cannot be finished, remove the old table
    #[arg(long)]
    replace: bool,
    /// Sources tracked at once, e.g. 65536 or 64k [default: 1048576, or fewer where that would take more than 1/32 of the memory]; an instance
    /// that runs is given the new sizes, and keeps its state
    #[arg(long, value_name = "N", value_parser = size)]
    sources: Option<u32>,
    /// States tracked at once of limits by other keys, such as connections [default: a quarter of the sources]
    #[arg(long, value_name = "N", alias = "connections", value_parser = size)]
    buckets: Option<u32>,
    /// Logs and lists of open connections kept at once [default: one for 128 sources]
    #[arg(alias = "ledgers", long, value_name = "N", value_parser = size)]
    wide_states: Option<u32>,
    /// Distinct combinations of limits for sources [default: one for 64 sources; more where a policy needs them]
    #[arg(long, value_name = "N", value_parser = size)]
    overrides: Option<u32>,
    /// Hash sources and keys by other random numbers, keeping all state: who found out which of them share a part of
    /// the table has to begin anew
    #[arg(long)]
    new_seed: bool,
    /// Mount a BPF file system first if there is none
    #[arg(long)]
    mount_bpffs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeName {
    Auto,
    #[value(aliases = ["driver", "drv", "xdpdrv"])]
    Native,
    NativeFrags,
    #[value(aliases = ["skb", "xdpgeneric"])]
    Generic,
}

/// Reads a size as a burst is read: `65536`, `64k` (64,000), `1M`.
fn size(text: &str) -> Result<u32, String> {
    let size = match parse_burst(text) {
        Ok(Burst::Packets(size)) => u32::try_from(size).ok(),
        _ => None,
    };
    size.ok_or_else(|| "give a number, such as 65536, 64k (which is 64,000) or 1M".to_owned())
}

impl Attach {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let mut asked = self.policy.read(output)?;
        let mut interfaces: Vec<Interface> = Vec::new();
        for word in &self.interfaces {
            for interface in resolve(word)? {
                interface.check_ethernet()?;
                if interfaces.iter().all(|it| it.index != interface.index) {
                    interfaces.push(interface);
                }
            }
        }
        self.sizes().check()?;
        privilege::check()?;
        privilege::check_sysfs()?;
        let news =
            interfaces.iter().filter(|it| it.seen.is_none() && self.mode != ModeName::Generic);
        for interface in news {
            warn_of_interruption(interface, output);
        }
        let mounted = if self.mount_bpffs { pins.mount()? } else { None };
        match self.attach_to(pins, &mut asked, &interfaces, output) {
            Ok(all) => {
                if let Some(mount) = mounted
                    && !output.is_json()
                {
                    writeln!(output, "mounted a BPF file system on {}", mount.display())?;
                }
                all.print(&interfaces, &asked, output)
            }
            Err(error) => {
                if let Some(mount) = mounted {
                    unmount(&mount);
                }
                Err(error)
            }
        }
    }

    fn attach_to(
        &self,
        pins: &Pins,
        asked: &mut Asked<'_>,
        interfaces: &[Interface],
        output: &Output,
    ) -> Result<All> {
        let mut exchanged = Instance::upgrade(pins)?;
        let (mut instance, unread) = match asked.unread.take() {
            None => {
                let _progress = Progress::of("loading the program and making the tables");
                (
                    Instance::open_or_create(
                        pins,
                        &self.sizes().in_whole_sets(),
                        &asked.first(),
                        None,
                    )?,
                    None,
                )
            }
            // One that runs does not need it.
            Some(error) => match Instance::open_to_attach(pins)? {
                Some(instance) => (instance, Some(error)),
                None => return Err(error),
            },
        };
        if let Some(error) = instance.take_unrestored() {
            warn_of_error(&error, "the run-time lists begin empty", output);
        }
        if self.replace {
            instance.let_go()?;
        }
        let changed = self.exchange(&mut instance)?;
        if let Some(error) = instance.take_unfinished() {
            warn_of_unfinished(&error, output);
        }
        let (sizes, is_new) = (instance.sizes()?, instance.is_fresh());
        let restored = instance.restored();
        exchanged = match (exchanged, changed) {
            (Some(upgraded), Some(changed)) => Some(changed.after(upgraded)),
            (upgraded, changed) => changed.or(upgraded),
        };
        let result = {
            let _progress = Progress::of("loading programs and attaching them");
            self.attach_all(&mut instance, asked, interfaces, exchanged.is_some())
        };
        let attached = instance.attached()?;
        let in_one_piece = |it: &Attached| !takes_pieces(pins, it.slot).unwrap_or(true);
        let bound = attached.iter().filter(|it| it.mode == Mode::Native && in_one_piece(it));
        let bound = bound.map(|it| it.index).collect();
        let layers = instance.maps().layers();
        let monitoring = instance.maps().monitoring();
        let memory = instance.maps().memory();
        instance.close()?;
        if let Some(error) = unread {
            warn_of_error(
                &error,
                "the document is not used, as the instance keeps its policy",
                output,
            );
        }
        let (done, applied) = result?;
        let exchanged = exchanged.map(|carried| Table { carried, sizes, new_seed: self.new_seed });
        let attached = attached.iter().filter(|it| it.present).map(|it| it.index).collect();
        let chosen = (is_new && self.sources.is_none()).then_some((sizes.sources, memory?));
        let switched = monitoring?.switch;
        Ok(All {
            done,
            attached,
            bound,
            exchanged,
            applied,
            layers: layers?,
            switched,
            chosen,
            restored,
        })
    }

    /// Attaches all interfaces that are not attached yet, or none of them. `exchanged` says that the table was exchanged before.
    fn attach_all(
        &self,
        instance: &mut Instance,
        asked: &Asked<'_>,
        interfaces: &[Interface],
        exchanged: bool,
    ) -> Result<(Vec<Done>, Applied)> {
        let before = instance.attached()?;
        let running = |interface: &Interface| {
            before.iter().find(|attached| attached.present && attached.index == interface.index)
        };
        let new = interfaces.iter().any(|interface| running(interface).is_none());
        if !instance.is_fresh() && (new || asked.options.set()) {
            asked.check_time(before.iter().map(|attached| attached.name.clone()))?;
        }
        if self.replace && interfaces.iter().any(|interface| running(interface).is_some()) {
            instance.reload()?;
        }
        let mut done = Vec::new();
        let result = interfaces.iter().try_for_each(|interface| {
            let attached = self.attach(instance, interface, running(interface))?;
            done.push(match attached {
                Done::Nothing(mode) if exchanged => Done::Exchanged(mode),
                attached => attached,
            });
            Ok(())
        });
        let result = result.and_then(|()| {
            // What is gone is not to be taken for what is meant.
            instance.reclaim()?;
            if new || asked.options.set() { apply(instance, asked) } else { Ok(Applied::default()) }
        });
        if result.is_err() {
            for attached in instance.attached()? {
                // The slot of one that is gone may have been given to another.
                if before.iter().all(|before| !before.exists || before.slot != attached.slot) {
                    instance.detach(attached.slot)?;
                }
            }
        }
        Ok((done, result?))
    }

    fn attach(
        &self,
        instance: &mut Instance,
        interface: &Interface,
        running: Option<&Attached>,
    ) -> Result<Done> {
        let asked = match self.mode {
            ModeName::Auto => None,
            ModeName::Native | ModeName::NativeFrags => Some(Mode::Native),
            ModeName::Generic => Some(Mode::Generic),
        };
        if let (Some(running), Some(asked)) = (running, asked)
            && asked != running.mode
        {
            let (interface, mode) = (running.name.clone(), running.mode.name());
            return Err(Error::OtherMode { interface, mode, asked: asked.name() });
        }
        match running {
            Some(running) if self.replace => {
                instance.replace(running, self.mode == ModeName::NativeFrags)?;
                Ok(Done::Replaced(running.mode))
            }
            Some(running) => Ok(Done::Nothing(running.mode)),
            None => instance.attach(interface, self.mode.choice()).map(Done::Attached),
        }
    }

    /// The sizes of a new instance, as they were given.
    fn sizes(&self) -> Sizes {
        let default = self.sources.map_or_else(Sizes::for_host, Sizes::for_sources);
        Sizes {
            sources: default.sources,
            buckets: self.buckets.unwrap_or(default.buckets),
            wide_states: self.wide_states.unwrap_or(default.wide_states),
            overrides: self.overrides.unwrap_or(default.overrides),
            ..default
        }
    }

    /// Gives an instance that runs the sizes that are given, where it has others, and another seed if that is asked for.
    fn exchange(&self, instance: &mut Instance) -> Result<Option<Exchanged>> {
        let running = instance.sizes()?;
        let [sources, buckets, wide_states] = [self.sources, self.buckets, self.wide_states]
            .map(|asked| asked.map(Sizes::whole_sets));
        let asked = Sizes {
            sources: sources.unwrap_or(running.sources),
            buckets: buckets.unwrap_or(running.buckets),
            wide_states: wide_states.unwrap_or(running.wide_states),
            overrides: self.overrides.unwrap_or(running.overrides),
            ..running
        };
        if instance.is_fresh() || asked == running && !self.new_seed {
            Ok(None)
        } else {
            let _progress = Progress::of(match asked == running {
                true => "exchanging the tables for some with another seed",
                false => "exchanging the tables for some of the sizes that are asked for",
            });
            instance.exchange(&asked, self.new_seed, Clock::Monotonic).map(Some)
        }
    }
}

/// Warns before an interface is attached whose driver interrupts its traffic for that.
fn warn_of_interruption(interface: &Interface, output: &Output) {
    let driver = Device::of(interface).and_then(|device| device.driver());
    if let Some(said) = driver.ok().and_then(|driver| interrupted(&interface.name, &driver)) {
        warn(&said, output);
    }
}

/// The warning on an interface with this driver, if attaching interrupts its traffic.
fn interrupted(interface: &str, driver: &str) -> Option<String> {
    interruption(driver).map(|interrupts| format!("{interface}: attaching {interrupts}"))
}

/// Makes the policy that is asked for the one in force, for the interfaces that are attached now. Makes room for it first where
/// it takes that.
fn apply(instance: &mut Instance, asked: &Asked<'_>) -> Result<Applied> {
    for _ in 0..Instance::ROUNDS {
        match try_apply(instance, asked) {
            Err(refused) if instance.make_room(&refused)?.is_some() => {}
            done => return done,
        }
    }
    try_apply(instance, asked)
}

/// The same where there is room.
fn try_apply(instance: &mut Instance, asked: &Asked<'_>) -> Result<Applied> {
    let changing = instance.lock_changes()?;
    if instance.is_fresh() {
        // It has it already, unless it is to be for a time or about what was attached since. Bans may have come
        // meanwhile, and stay.
        let Wanted { layers, kept } = asked.restored(instance.maps())?;
        let has_it = layers == instance.maps().layers()? && instance.maps().fits_interfaces()?;
        if asked.time.is_some() || !has_it {
            instance.maps_mut().put_in_force(layers.clone(), asked.time, None)?;
        }
        drop(changing);
        let unkept = instance.keep_run_time_attaching().err();
        let absent = instance.maps().absent_interfaces(&layers.policy)?;
        return Ok(Applied { changes: Vec::new(), kept, absent, unkept });
    }
    instance.maps().check_interfaces()?;
    if !asked.is_for_running() && instance.maps().fits_interfaces()? {
        return Ok(Applied::default());
    }
    let running = instance.maps().settled()?;
    let Wanted { layers, kept } = asked.over(&running, Some(instance.maps()))?;
    if layers != running || !instance.maps().fits_interfaces()? {
        instance.maps_mut().put_in_force(layers.clone(), asked.time, None)?;
    }
    drop(changing);
    let unkept = instance.keep_run_time_attaching().err();
    let absent = instance.maps().absent_interfaces(&layers.policy)?;
    Ok(Applied { changes: diff(&running.policy, &layers.policy), kept, absent, unkept })
}

impl ModeName {
    const fn choice(self) -> Choice {
        match self {
            Self::Auto => Choice::Auto,
            Self::Native => Choice::Only(Mode::Native),
            Self::NativeFrags => Choice::Frags,
            Self::Generic => Choice::Only(Mode::Generic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No driver of a test does so.
    #[test]
    fn an_interruption_of_traffic_is_told_with_its_interface() {
        let told = |driver| interrupted("eth3", driver);
        let ixgbe = "eth3: attaching takes the link down for up to 20 s";
        assert_eq!(told("ixgbe").as_deref(), Some(ixgbe));
        let mlx5 = "eth3: attaching interrupts traffic for a moment";
        assert_eq!(told("mlx5_core").as_deref(), Some(mlx5));
        assert_eq!(told("veth"), None);
    }
}
