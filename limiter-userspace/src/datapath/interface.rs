//! Network interfaces and what XDP programs are on them.

use std::{
    fs, io,
    mem::{offset_of, size_of},
    os::unix::fs::MetadataExt as _,
};

use super::netlink::{self, Extent, attribute, attributes};
use crate::{
    error::{Error, Result},
    policy::{
        interfaces::{Named, is_pattern, listed, select},
        units::printable,
    },
};

/// An interface of this network namespace.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its alternative names.
    pub alternatives: Vec<String>,
    /// Its index.
    pub index: u32,
    /// The type of its link layer, `ARPHRD_*`.
    pub(crate) kind: u16,
    /// The bytes of the largest packet, when it was looked at; 0 if that is not told.
    pub(crate) mtu: u32,
    /// The id of the XDP program on it, when it was looked at.
    pub(crate) seen: Option<u32>,
    /// The kind of device, such as `veth`, `bridge` or `vlan`; empty for most hardware.
    pub(crate) device: String,
    /// The index of the bridge, bond or team that it is a port of.
    pub(crate) master: Option<u32>,
    /// The index of the interface below it, or of the other end of a veth pair.
    pub(crate) lower: Option<u32>,
}

impl Named for Interface {
    fn name(&self) -> &str {
        &self.name
    }

    fn alternatives(&self) -> &[String] {
        &self.alternatives
    }

    fn index(&self) -> u32 {
        self.index
    }
}

impl Interface {
    /// The interface that a word means; the first one of several.
    ///
    /// # Errors
    /// [`Error::UnknownInterface`].
    pub fn find(word: &str) -> Result<Self> {
        let interfaces = list()?;
        let found = wanted(word, &interfaces).into_iter().next();
        found.ok_or_else(|| unknown(word, &interfaces))
    }

    /// Whether frames of this interface begin with an Ethernet header, as those of the loopback
    /// interface do too.
    ///
    /// # Errors
    /// [`Error::NotEthernet`].
    pub fn check_ethernet(&self) -> Result<()> {
        match self.kind {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(()),
            kind => Err(Error::NotEthernet { interface: self.name.clone(), kind }),
        }
    }

    /// Whether its packets may be larger than those of standard Ethernet, so that its driver may refuse a program for packets
    /// in one piece.
    pub(crate) const fn is_jumbo(&self) -> bool {
        const STANDARD: u32 = 1_500;
        self.mtu > STANDARD
    }

    /// How it is now, all by one request.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn state(&self) -> io::Result<LinkState> {
        const IFLA_STATS64: u16 = 23;
        /// Places in `struct rtnl_link_stats64`.
        const RX_PACKETS: usize = 0;
        const RX_MISSED: usize = 15;
        let messages = ask(Some(self.index))?;
        let Some(Message { flags, attributes, .. }) = messages.first() else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let counters = attribute(attributes, IFLA_STATS64).unwrap_or_default();
        let counter = |place: usize| {
            let bytes = counters.get(place * 8..).and_then(|rest| rest.first_chunk().copied());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        Ok(LinkState {
            is_up: flags & libc::IFF_UP as u32 != 0,
            program: program_of(attributes),
            received: counter(RX_PACKETS),
            missed: counter(RX_MISSED),
        })
    }

    /// The id of the XDP program on it, whoever put it there.
    pub fn program(&self) -> Option<u32> {
        self.state().ok()?.program
    }

    /// One of a message of rtnetlink.
    fn of(message: &Message) -> Self {
        const IFLA_IFNAME: u16 = 3;
        const IFLA_MTU: u16 = 4;
        const IFLA_LINK: u16 = 5;
        const IFLA_MASTER: u16 = 10;
        const IFLA_LINKINFO: u16 = 18;
        const IFLA_INFO_KIND: u16 = 1;
        const IFLA_LINK_NETNSID: u16 = 37;
        const IFLA_PROP_LIST: u16 = 52;
        const IFLA_ALT_IFNAME: u16 = 53;
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        let number = |kind| {
            let number = attribute(&message.attributes, kind)?.first_chunk()?;
            Some(u32::from_ne_bytes(*number))
        };
        let kind = attribute(&message.attributes, IFLA_LINKINFO)
            .and_then(|information| attribute(information, IFLA_INFO_KIND));
        // Of another network namespace, the index would mean another interface here.
        let is_here = attribute(&message.attributes, IFLA_LINK_NETNSID).is_none();
        let properties = attribute(&message.attributes, IFLA_PROP_LIST).unwrap_or_default();
        let alternatives = attributes(properties).filter(|(kind, _)| *kind == IFLA_ALT_IFNAME);
        Self {
            name: attribute(&message.attributes, IFLA_IFNAME).map(text).unwrap_or_default(),
            alternatives: alternatives.map(|(_, name)| text(name)).collect(),
            index: message.index,
            kind: message.kind,
            mtu: number(IFLA_MTU).unwrap_or(0),
            seen: program_of(&message.attributes),
            device: kind.map(text).unwrap_or_default(),
            master: number(IFLA_MASTER),
            lower: number(IFLA_LINK).filter(|_| is_here),
        }
    }
}

/// The interfaces of this network namespace that a word means.
///
/// # Errors
/// [`Error::UnknownInterface`], or what the system says.
pub fn resolve(word: &str) -> Result<Vec<Interface>> {
    let interfaces = list()?;
    let found = wanted(word, &interfaces);
    if found.is_empty() { Err(unknown(word, &interfaces)) } else { Ok(found) }
}

/// Those of these interfaces that a word means. A pattern is about what limiter can be attached to and whose
/// packets come from elsewhere: it leaves out the loopback interface and tunnels.
pub(crate) fn wanted(word: &str, interfaces: &[Interface]) -> Vec<Interface> {
    let found = select(word, interfaces);
    let is_name =
        |it: &&Interface| it.name == word || it.alternatives.iter().any(|name| name == word);
    let by_pattern = is_pattern(word) && !found.iter().any(is_name);
    let fits = |it: &&Interface| !by_pattern || it.kind == libc::ARPHRD_ETHER;
    found.into_iter().filter(fits).cloned().collect()
}

fn unknown(word: &str, interfaces: &[Interface]) -> Error {
    Error::UnknownInterface {
        name: printable(word, 128),
        existing: listed(interfaces.iter().map(|interface| &interface.name)),
    }
}

/// What there is on an interface, and how packets come in by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkState {
    /// Whether it was set up.
    pub(crate) is_up: bool,
    /// The id of the XDP program on it, whoever put it there.
    pub(crate) program: Option<u32>,
    /// Packets that were received.
    pub(crate) received: u64,
    /// Packets that the device had no room for, which nothing saw.
    pub(crate) missed: u64,
}

/// The interfaces of this network namespace.
///
/// # Errors
/// What the system says.
pub fn list() -> Result<Vec<Interface>> {
    let messages =
        ask(None).map_err(|error| Error::system("list the network interfaces", error))?;
    Ok(messages.iter().map(Interface::of).collect())
}

/// What tells this network namespace from others.
///
/// # Errors
/// What the system says.
pub fn namespace() -> Result<u64> {
    fs::metadata("/proc/thread-self/ns/net")
        .map(|namespace| namespace.ino())
        .map_err(|error| Error::system("look at the network namespace", error))
}

/// `struct ifinfomsg` of rtnetlink(7), and an attribute.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    link: Link,
    mask: Mask,
}

/// `struct ifinfomsg`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Link {
    family: u8,
    pad: u8,
    kind: u16,
    index: i32,
    flags: u32,
    change: u32,
}

impl Link {
    /// That of an interface, to ask for it or to change it.
    pub(super) fn of(index: u32) -> Self {
        Self { index: index as i32, ..Self::default() }
    }
}

/// An attribute that says what is to be left out.
#[derive(Clone, Copy)]
#[repr(C)]
struct Mask {
    length: u16,
    kind: u16,
    left_out: u32,
}

/// What rtnetlink tells of an interface.
struct Message {
    index: u32,
    kind: u16,
    flags: u32,
    attributes: Vec<u8>,
}

/// Asks rtnetlink for all that it knows of an interface, or of each one all but its statistics.
fn ask(index: Option<u32>) -> io::Result<Vec<Message>> {
    const IFLA_EXT_MASK: u16 = 29;
    const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
    let (extent, left_out) = match index {
        Some(_) => (Extent::One, 0),
        None => (Extent::All, RTEXT_FILTER_SKIP_STATS),
    };
    let request = Request {
        link: Link::of(index.unwrap_or(0)),
        mask: Mask { length: size_of::<Mask>() as u16, kind: IFLA_EXT_MASK, left_out },
    };
    let answers = netlink::ask(libc::RTM_GETLINK, request, extent)?;
    Ok(answers.iter().filter_map(|payload| Message::read(payload)).collect())
}

impl Message {
    fn read(payload: &[u8]) -> Option<Self> {
        let at = |place: usize| payload.get(place..)?.first_chunk::<4>().copied();
        let kind = payload.get(offset_of!(Link, kind)..)?.first_chunk()?;
        Some(Self {
            index: u32::from_ne_bytes(at(offset_of!(Link, index))?),
            kind: u16::from_ne_bytes(*kind),
            flags: u32::from_ne_bytes(at(offset_of!(Link, flags))?),
            attributes: payload.get(size_of::<Link>()..)?.to_vec(),
        })
    }
}

/// The id of the XDP program that attributes of an interface tell of.
fn program_of(attributes: &[u8]) -> Option<u32> {
    const IFLA_XDP: u16 = 43;
    const IFLA_XDP_PROG_ID: u16 = 4;
    let id = attribute(attribute(attributes, IFLA_XDP)?, IFLA_XDP_PROG_ID)?;
    Some(u32::from_ne_bytes(*id.first_chunk()?))
}

/// The name in a record, fit for a terminal.
pub(in crate::datapath) fn recorded(name: &[u8; 16]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    printable(&String::from_utf8_lossy(&name[..end]), name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_no_interface_without_a_program() {
        let gone = Interface { index: 999_999, ..Interface::find("lo").unwrap() };
        assert_eq!(gone.state().unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn the_loopback_interface_is_found() {
        let lo = Interface::find("lo").unwrap();
        let listed = list().unwrap();
        assert!(listed.iter().any(|it| it.index == lo.index && it.name == "lo"));
        assert_eq!((lo.program(), lo.seen), (None, None));
        let mtu = fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        assert_eq!((lo.mtu, lo.is_jumbo()), (mtu.trim().parse().unwrap(), true));
        lo.check_ethernet().unwrap();
        assert_eq!(resolve(&format!("if{}", lo.index)).unwrap()[0].name, "lo");
        assert!(matches!(
            Interface::find("no such\n"),
            Err(Error::UnknownInterface { existing, .. }) if existing.split(", ").any(|name| name == "lo")
        ));
        // A pattern is about what packets of others come in by.
        assert!(matches!(resolve("l?"), Err(Error::UnknownInterface { .. })));
    }

    #[test]
    fn an_interface_is_read_as_far_as_its_message_is_whole() {
        let mut payload = vec![0_u8; 24];
        payload[2..4].copy_from_slice(&1_u16.to_ne_bytes());
        payload[4..8].copy_from_slice(&7_u32.to_ne_bytes());
        payload[16..18].copy_from_slice(&7_u16.to_ne_bytes());
        payload[18..20].copy_from_slice(&3_u16.to_ne_bytes());
        payload[20..24].copy_from_slice(b"up\0\0");
        let interface = Interface::of(&Message::read(&payload).unwrap());
        assert_eq!((interface.name.as_str(), interface.index, interface.kind), ("up", 7, 1));
        assert!(Message::read(&payload[..15]).is_none());
    }
}
