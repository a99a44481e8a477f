//! What a driver tells of its device (the ioctl of ethtool(8), `linux/ethtool.h`).

use std::{collections::BTreeMap, io};

use super::{interface::Interface, netdevice::NetDevice};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const GET_DRIVER: u32 = 0x03;
const GET_RINGS: u32 = 0x10;
const GET_STRINGS: u32 = 0x1b;
const GET_SET_SIZES: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const GET_CHANNELS: u32 = 0x3c;

/// The set of the names of features, `ETH_SS_FEATURES`.
const FEATURES: u32 = 4;
/// Bytes of a name, `ETH_GSTRING_LEN`.
const NAME: usize = 32;
/// More features than a kernel has.
const MOST: usize = 1 << 10;

/// The device of an interface, as its driver describes it.
pub(crate) struct Device(NetDevice);

/// Descriptors of the receive ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rings {
    /// Those that are in use.
    pub(crate) size: u32,
    /// The most there can be.
    pub(crate) most: u32,
}

/// Receive queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queues {
    /// Those that are in use.
    pub(crate) number: u32,
    /// The most there can be.
    pub(crate) most: u32,
}

impl Device {
    /// The device of an interface of this network namespace.
    pub(crate) fn of(interface: &Interface) -> io::Result<Self> {
        NetDevice::of(&interface.name).map(Self)
    }

    /// Has a command answered in its place.
    ///
    /// # Safety
    /// `command` begins with a command, and is as long as what that makes the kernel write.
    unsafe fn ask(&self, command: &mut [u32]) -> io::Result<()> {
        // SAFETY: the data is the command, with memory for the answer, as the caller promises.
        unsafe { self.0.ask(SIOCETHTOOL, command.as_mut_ptr()).map(drop) }
    }

    /// The name of its driver.
    pub(crate) fn driver(&self) -> io::Result<String> {
        // `struct ethtool_drvinfo` is 196 bytes long, and has the name after the command.
        let mut answer = [0_u32; 49];
        answer[0] = GET_DRIVER;
        // SAFETY: the kernel writes that structure.
        unsafe { self.ask(&mut answer)? };
        Ok(text(&answer[1..1 + NAME / 4]))
    }

    /// Its receive ring.
    pub(crate) fn rings(&self) -> io::Result<Rings> {
        // `struct ethtool_ringparam`: the most and, four words later, what is in use.
        let mut answer = [0_u32; 9];
        answer[0] = GET_RINGS;
        // SAFETY: the kernel writes that structure.
        unsafe { self.ask(&mut answer)? };
        Ok(Rings { size: answer[5], most: answer[1] })
    }

    /// Its receive queues.
    pub(crate) fn queues(&self) -> io::Result<Queues> {
        // `struct ethtool_channels`: the most of those for receiving, sending, other things and both, and
        // then in the same order those that are in use.
        let mut answer = [0_u32; 9];
        answer[0] = GET_CHANNELS;
        // SAFETY: the kernel writes that structure.
        unsafe { self.ask(&mut answer)? };
        let of = |first: usize| answer[first].saturating_add(answer[first + 3]);
        Ok(Queues { number: of(5), most: of(1) })
    }

    /// The features that are switched on, by the names that ethtool(8) has for them, and whether they can
    /// be switched off.
    pub(crate) fn features(&self) -> io::Result<BTreeMap<String, bool>> {
        // `struct ethtool_sset_info`: a mask of sets in two words, and the size of the one that is asked
        // for.
        let mut sizes = [GET_SET_SIZES, 0, 0, 0, 0];
        let low = usize::from(cfg!(target_endian = "big"));
        sizes[2 + low] = 1 << FEATURES;
        // SAFETY: the kernel writes the size of one set.
        unsafe { self.ask(&mut sizes)? };
        let number = sizes[4] as usize;
        if number > MOST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // `struct ethtool_gstrings`: three words, and the names. How many the kernel writes is no matter of
        // the device, so it cannot have become another number.
        let mut names = vec![0_u32; 3 + number * NAME / 4];
        names[..3].copy_from_slice(&[GET_STRINGS, FEATURES, sizes[4]]);
        // SAFETY: as just said.
        unsafe { self.ask(&mut names)? };
        // `struct ethtool_gfeatures`: for 32 features each, those that are available, asked for, active and
        // never changed.
        let blocks = number.div_ceil(32);
        let mut states = vec![0_u32; 2 + 4 * blocks];
        states[..2].copy_from_slice(&[GET_FEATURES, blocks as u32]);
        // SAFETY: the kernel writes as many blocks as are asked for.
        unsafe { self.ask(&mut states)? };
        let is = |word: usize, place: usize| {
            states[2 + 4 * (place / 32) + word] >> (place % 32) & 1 != 0
        };
        let names = names[3..].chunks_exact(NAME / 4).map(text).enumerate();
        let on = names.filter(|(place, _)| is(2, *place));
        Ok(on.map(|(place, name)| (name, is(0, place) && !is(3, place))).collect())
    }
}

/// The text in words, up to the first zero.
fn text(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_tells_its_features_and_no_rings() {
        let device = Device::of(&Interface::find("lo").unwrap()).unwrap();
        let features = device.features().unwrap();
        assert!(features.get("loopback") == Some(&false), "it cannot be switched: {features:?}");
        assert!(features.get("rx-gro") == Some(&true), "{features:?}");
        assert!(!features.contains_key("rx-lro"), "{features:?}");
        assert_eq!(device.rings().unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
    }

    #[test]
    fn an_interface_that_is_gone_is_an_error() {
        let gone = Interface { name: "gone".to_owned(), ..Interface::find("lo").unwrap() };
        let device = Device::of(&gone).unwrap();
        for error in [device.driver().unwrap_err(), device.features().unwrap_err()] {
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        }
    }
}
