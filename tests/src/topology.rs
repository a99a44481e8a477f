//! Hosts, as network namespaces, and the wires between them, as veth pairs.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    mem::zeroed,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::sandbox::{Namespace, Sandbox};

/// How long an interface may take to come up.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host: a network namespace, and the sandbox in which its commands run.
#[derive(Clone, Debug)]
pub struct Host {
    /// The name that messages use.
    pub name: &'static str,
    /// The network namespace with its interfaces and sockets.
    pub namespace: Namespace,
    /// The sandbox with its mounts.
    pub sandbox: Sandbox,
}

impl Host {
    /// Makes a host with a loopback interface that is up.
    ///
    /// # Errors
    /// Fails if a system call fails. Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
    pub fn new(sandbox: &Sandbox, name: &'static str) -> Result<Self> {
        let host = Self { name, namespace: Namespace::new()?, sandbox: sandbox.clone() };
        sandbox.inside(&host.namespace, be_silent)??;
        host.ip("link set dev lo up\n")?;
        Ok(host)
    }

    /// Builds a command that runs on this host.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        self.sandbox.command(&self.namespace, program)
    }

    /// Runs lines of `ip -batch` on this host.
    ///
    /// # Errors
    /// Fails if `ip` cannot be run or reports an error.
    pub fn ip(&self, lines: &str) -> Result<()> {
        let mut ip = self.command("ip");
        ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut ip = ip.spawn().context("cannot run ip (Debian package iproute2)")?;
        if let Some(mut stdin) = ip.stdin.take() {
            stdin.write_all(lines.as_bytes()).context("cannot write to ip")?;
        }
        let output = ip.wait_with_output().context("cannot wait for ip")?;
        if !output.status.success() {
            let cause = String::from_utf8_lossy(&output.stderr);
            bail!("ip failed on {}: {}", self.name, cause.trim());
        }
        Ok(())
    }

    /// Runs `ip -json -statistics` with these arguments and returns its output.
    ///
    /// # Errors
    /// Fails if `ip` reports an error or prints no JSON.
    pub fn ip_json(&self, arguments: &[&str]) -> Result<Value> {
        let mut ip = self.command("ip");
        let output = ip.args(["-json", "-statistics"]).args(arguments).output()?;
        ensure!(
            output.status.success(),
            "ip {} failed on {}: {}",
            arguments.join(" "),
            self.name,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        serde_json::from_slice(&output.stdout).context("ip printed no JSON")
    }

    /// The number of frames that `interface` was given to send and dropped before its peer received them.
    ///
    /// # Errors
    /// Fails if `ip` reports an error.
    pub fn lost(&self, interface: &str) -> Result<u64> {
        let link = self.ip_json(&["link", "show", "dev", interface])?;
        link[0]["stats64"]["tx"]["dropped"]
            .as_u64()
            .with_context(|| format!("ip shows no statistics of {interface}"))
    }

    /// Waits until an interface and its peer are up, and returns the index of the interface.
    fn wait_until_running(&self, interface: &str) -> Result<u32> {
        let start = Instant::now();
        loop {
            let query = || Query::new(interface).and_then(|mut query| query.index_and_flags());
            let (index, flags) = self.namespace.inside(query)?.context("cannot see interfaces")?;
            if flags & libc::IFF_RUNNING as i16 != 0 {
                return Ok(index);
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "{interface} of {} did not come up within {} s",
                self.name,
                PATIENCE.as_secs()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Switches off the send offloads of an interface, so that frames have finished checksums and fit the
    /// wire.
    fn disable_offloads(&self, interface: &str) -> Result<()> {
        // `SIOCETHTOOL` commands: transmit checksums, scatter and gather, TCP and generic segmentation.
        const SETTINGS: [u32; 4] = [0x17, 0x19, 0x1f, 0x24];
        let disable = || {
            let mut query = Query::new(interface)?;
            SETTINGS.iter().try_for_each(|setting| query.set(*setting, false))
        };
        self.namespace
            .inside(disable)?
            .with_context(|| format!("cannot switch off the offloads of {interface}"))
    }

    /// Switches on generic receive offload, which is the default of network cards. A veth interface with it
    /// accepts frames from the XDP program of its peer without having a program itself.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn merge_received(&self, interface: &str) -> Result<()> {
        // `ETHTOOL_SGRO`.
        const SETTING: u32 = 0x2c;
        self.namespace
            .inside(|| Query::new(interface)?.set(SETTING, true))?
            .with_context(|| format!("cannot switch on the receive offload of {interface}"))
    }
}

/// One end of a wire.
#[derive(Clone, Debug)]
pub struct Port {
    /// The interface index.
    pub interface: String,
    /// Its index.
    pub index: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IPv4 address, in a /24.
    pub v4: Ipv4Addr,
    /// Its IPv6 address, in a /64.
    pub v6: Ipv6Addr,
}

impl Port {
    fn new(interface: &str, wire: u8, end: u8) -> Self {
        Self {
            interface: interface.to_owned(),
            index: 0,
            mac: [2, 0, 0, 0, wire, end],
            v4: Ipv4Addr::new(198, 18, wire, end),
            v6: Ipv6Addr::new(0x2001, 0xdb8, wire.into(), 0, 0, 0, 0, end.into()),
        }
    }

    /// The address of the family that `other` is of.
    #[must_use]
    pub fn address_like(&self, other: IpAddr) -> IpAddr {
        if other.is_ipv4() { self.v4.into() } else { self.v6.into() }
    }

    fn mac(&self) -> String {
        self.mac.map(|byte| format!("{byte:02x}")).join(":")
    }

    fn set_up(&self, peer: &Self, lines: &mut String) -> std::fmt::Result {
        let Self { interface, v4, v6, .. } = self;
        // Without a link-local address, the kernel sends nothing of its own accord.
        writeln!(lines, "link set dev {interface} addrgenmode none")?;
        writeln!(lines, "link set dev {interface} up")?;
        writeln!(lines, "address add {v4}/24 dev {interface}")?;
        writeln!(lines, "address add {v6}/64 dev {interface} nodad")?;
        for address in [IpAddr::from(peer.v4), peer.v6.into()] {
            let mac = peer.mac();
            writeln!(lines, "neighbour add {address} lladdr {mac} dev {interface} nud permanent")?;
        }
        Ok(())
    }
}

/// Keeps the kernel from sending unasked on the interfaces of this namespace: it solicits no routers, and
/// reports its multicast groups at once instead of seconds later, in the middle of a test.
fn be_silent() -> Result<()> {
    for (setting, value) in
        [("accept_ra", 0), ("router_solicitations", 0), ("mldv2_unsolicited_report_interval", 1)]
    {
        let path = format!("/proc/sys/net/ipv6/conf/default/{setting}");
        fs::write(&path, value.to_string()).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

/// Lays wire `number` between two hosts, each with the name of its interface there, and returns the two ends,
/// which are up.
///
/// The addresses are `198.18.NUMBER.1` and `2001:db8:NUMBER::1` at the near end, and `.2` and `::2` at the
/// far end.
///
/// # Errors
/// Fails if `ip` or a system call fails, or if the interfaces do not come up.
pub fn lay_wire(number: u8, near: (&Host, &str), far: (&Host, &str)) -> Result<(Port, Port)> {
    lay(number, near, far, ["", ""])
}

/// Like [`lay_wire`], with this index of the interface at the far end.
///
/// # Errors
/// As for [`lay_wire`].
pub fn lay_wire_to_index(
    number: u8,
    near: (&Host, &str),
    far: (&Host, &str),
    index: u32,
) -> Result<(Port, Port)> {
    // The kernel heeds the index of the far end only if the near one has one too.
    let options = [index + 1, index].map(|index| format!("index {index}"));
    lay(number, near, far, options.each_ref().map(String::as_str))
}

fn lay(
    number: u8,
    near: (&Host, &str),
    far: (&Host, &str),
    options: [&str; 2],
) -> Result<(Port, Port)> {
    let mut near_port = Port::new(near.1, number, 1);
    let mut far_port = Port::new(far.1, number, 2);
    near.0.ip(&format!(
        "link add dev {} address {} {} type veth peer name {} address {} {} netns {}\n",
        near.1,
        near_port.mac(),
        options[0],
        far.1,
        far_port.mac(),
        options[1],
        far.0.namespace.path()
    ))?;
    for ((host, interface), port, peer) in
        [(near, &near_port, &far_port), (far, &far_port, &near_port)]
    {
        host.disable_offloads(interface)?;
        let mut lines = String::new();
        port.set_up(peer, &mut lines)?;
        host.ip(&lines)?;
    }
    near_port.index = near.0.wait_until_running(near.1)?;
    far_port.index = far.0.wait_until_running(far.1)?;
    Ok((near_port, far_port))
}

/// Two hosts and a wire. Traffic comes from the client, and the limiter is attached to `eth0` of the router.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The host that sends.
    pub client: Host,
    /// The host that receives.
    pub router: Host,
    /// `eth0` of the client.
    pub client_port: Port,
    /// `eth0` of the router.
    pub router_port: Port,
}

impl Topology {
    /// Makes the hosts and the wire.
    ///
    /// # Errors
    /// As for [`Host::new`] and [`lay_wire`].
    pub fn new(sandbox: &Sandbox) -> Result<Self> {
        let client = Host::new(sandbox, "client")?;
        let router = Host::new(sandbox, "router")?;
        let (client_port, router_port) = lay_wire(0, (&client, "eth0"), (&router, "eth0"))?;
        Ok(Self { client, router, client_port, router_port })
    }
}

/// Queries to an interface, in the network namespace of the thread that makes this.
struct Query {
    socket: OwnedFd,
    request: libc::ifreq,
}

impl Query {
    fn new(interface: &str) -> io::Result<Self> {
        // SAFETY: plain old data, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { zeroed() };
        let room = request.ifr_name.len() - 1;
        for (to, from) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: the call has no pointers.
        let socket =
            unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call gave a new descriptor to us alone.
        Ok(Self { socket: unsafe { OwnedFd::from_raw_fd(socket) }, request })
    }

    fn ask(&mut self, what: libc::c_ulong) -> io::Result<()> {
        // SAFETY: a request of the type that all of these calls take; its name ends with 0.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), what, &raw mut self.request) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn index_and_flags(&mut self) -> io::Result<(u32, i16)> {
        self.ask(libc::SIOCGIFINDEX)?;
        // SAFETY: the kernel filled in this member.
        let index = unsafe { self.request.ifr_ifru.ifru_ifindex };
        self.ask(libc::SIOCGIFFLAGS)?;
        // SAFETY: the kernel filled in this member.
        Ok((index as u32, unsafe { self.request.ifr_ifru.ifru_flags }))
    }

    /// Switches an offload on or off; `command` is a setter of `SIOCETHTOOL`.
    fn set(&mut self, command: u32, on: bool) -> io::Result<()> {
        const SIOCETHTOOL: libc::c_ulong = 0x8946;
        /// `struct ethtool_value`.
        #[repr(C)]
        struct Setting {
            command: u32,
            value: u32,
        }
        let mut setting = Setting { command, value: u32::from(on) };
        self.request.ifr_ifru.ifru_data = (&raw mut setting).cast();
        self.ask(SIOCETHTOOL)
    }
}
