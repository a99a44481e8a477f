//! Which kinds of XDP a driver has, as the generic netlink family `netdev` tells it from Linux 6.3
//! on. Nothing is attached to find out.

use super::{
    interface::Interface,
    netlink::{Family, attribute, inquire},
};

/// `struct genlmsghdr`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Command {
    command: u8,
    version: u8,
    reserved: u16,
}

/// A request with one attribute.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request<T> {
    command: Command,
    length: u16,
    kind: u16,
    value: T,
}

/// What a driver has for XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XdpFeatures {
    /// Native mode.
    pub(crate) native: bool,
    /// Packets in several pieces in native mode.
    pub(crate) pieces: bool,
}

impl XdpFeatures {
    /// Those of the driver of an interface; `None` if the kernel does not tell.
    pub(crate) fn of(interface: &Interface) -> Option<Self> {
        const NETDEV_CMD_DEV_GET: u8 = 1;
        const NETDEV_A_DEV_IFINDEX: u16 = 1;
        let request = Request {
            command: Command { command: NETDEV_CMD_DEV_GET, version: 1, reserved: 0 },
            length: 8,
            kind: NETDEV_A_DEV_IFINDEX,
            value: interface.index,
        };
        Self::read(inquire(Family::Generic, netdev()?, request).ok()?.first()?)
    }

    /// Reads an answer: a `struct genlmsghdr`, and attributes.
    fn read(answer: &[u8]) -> Option<Self> {
        const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
        /// `NETDEV_XDP_ACT_BASIC` and `NETDEV_XDP_ACT_RX_SG`.
        const BASIC: u64 = 1 << 0;
        const RX_SG: u64 = 1 << 5;
        let attributes = answer.get(size_of::<Command>()..)?;
        let features = attribute(attributes, NETDEV_A_DEV_XDP_FEATURES)?.first_chunk()?;
        let features = u64::from_ne_bytes(*features);
        Some(Self { native: features & BASIC != 0, pieces: features & RX_SG != 0 })
    }
}

/// The number of the family.
fn netdev() -> Option<u16> {
    const GENL_ID_CTRL: u16 = 0x10;
    const CTRL_CMD_GETFAMILY: u8 = 3;
    const CTRL_ATTR_FAMILY_ID: u16 = 1;
    const CTRL_ATTR_FAMILY_NAME: u16 = 2;
    const NAME: [u8; 8] = *b"netdev\0\0";
    let request = Request {
        command: Command { command: CTRL_CMD_GETFAMILY, version: 1, reserved: 0 },
        // With one zero; the other one is padding.
        length: 4 + 7,
        kind: CTRL_ATTR_FAMILY_NAME,
        value: NAME,
    };
    let answers = inquire(Family::Generic, GENL_ID_CTRL, request).ok()?;
    let attributes = answers.first()?.get(size_of::<Command>()..)?;
    Some(u16::from_ne_bytes(*attribute(attributes, CTRL_ATTR_FAMILY_ID)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_far_as_it_is_whole() {
        let answer = |features: u64| {
            [&[1, 1, 0, 0][..], &[8, 0, 1, 0, 7, 0, 0, 0], &[12, 0, 3, 0], &features.to_ne_bytes()]
                .concat()
        };
        let of = |features| XdpFeatures::read(&answer(features)).unwrap();
        assert_eq!(of(0), XdpFeatures { native: false, pieces: false });
        assert_eq!(of(0b111), XdpFeatures { native: true, pieces: false });
        assert_eq!(of(0b10_0001), XdpFeatures { native: true, pieces: true });
        let whole = answer(1);
        for length in 0..whole.len() {
            assert_eq!(XdpFeatures::read(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn the_loopback_interface_has_no_native_mode() {
        // An older kernel tells nothing.
        let features = XdpFeatures::of(&Interface::find("lo").unwrap());
        assert!(features.is_none_or(|features| !features.native), "{features:?}");
    }
}
