//! Why an interface does not take a program, in the words of its driver.
//!
//! A BPF link that is refused gives an error number and no more. rtnetlink(7) gives the words of the
//! driver too. So the driver is asked once more, for a program that passes all packets.

use std::{
    fmt, io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
};

use super::{
    interface::{Interface, Link},
    mode::Mode,
    netlink::{Refused, change},
    sys,
};

/// Why an interface does not take a program in a mode.
#[derive(Debug)]
pub struct DriverRefusal {
    error: io::Error,
    /// What the driver, or the kernel for it, says.
    words: Option<String>,
}

impl DriverRefusal {
    /// Asks the driver of an interface why a link in this mode ended with an error.
    pub(super) fn of(interface: &Interface, mode: Mode, error: io::Error) -> Self {
        Self { error, words: words(interface, mode) }
    }
}

impl fmt::Display for DriverRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.words {
            Some(words) => write!(f, "{words} ({})", self.error),
            None => self.error.fmt(f),
        }
    }
}

impl std::error::Error for DriverRefusal {}

/// Asks the driver of an interface without a program to take one that passes all packets, and
/// returns the words of its refusal. A program that it takes is taken off again.
pub fn words(interface: &Interface, mode: Mode) -> Option<String> {
    /// `XDP_FLAGS_*`: only where there is no program; only this program.
    const UPDATE_IF_NOEXIST: u32 = 1 << 0;
    const REPLACE: u32 = 1 << 4;
    let passing = sys::load_passing_program(false).ok()?;
    let (of, none) = (passing.as_fd(), None);
    match set(interface, Some(of), none, mode.flags() | UPDATE_IF_NOEXIST) {
        Err(Refused(message)) => message,
        Ok(()) => {
            // It would go by itself only with the interface. Nothing else can be done about an error.
            let _ = set(interface, None, Some(of), mode.flags() | REPLACE);
            None
        }
    }
}

/// An attribute with a number.
#[derive(Clone, Copy)]
#[repr(C)]
struct Number {
    length: u16,
    kind: u16,
    value: u32,
}

/// `struct ifinfomsg`, and `IFLA_XDP` with three attributes in it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    link: Link,
    length: u16,
    kind: u16,
    attributes: [Number; 3],
}

/// Sets the program of an interface, or takes off the one that is `expected`.
fn set(
    interface: &Interface,
    program: Option<BorrowedFd<'_>>,
    expected: Option<BorrowedFd<'_>>,
    flags: u32,
) -> Result<(), Refused> {
    const IFLA_XDP: u16 = 43;
    const NESTED: u16 = 1 << 15;
    const IFLA_XDP_FD: u16 = 1;
    const IFLA_XDP_FLAGS: u16 = 3;
    const IFLA_XDP_EXPECTED_FD: u16 = 8;
    let descriptor = |fd: Option<BorrowedFd<'_>>| fd.map_or(-1, |fd| fd.as_raw_fd());
    let attribute = |kind, value| Number { length: size_of::<Number>() as u16, kind, value };
    let attributes = [
        attribute(IFLA_XDP_FD, descriptor(program).cast_unsigned()),
        attribute(IFLA_XDP_FLAGS, flags),
        // It counts with `XDP_FLAGS_REPLACE` alone.
        attribute(IFLA_XDP_EXPECTED_FD, descriptor(expected).cast_unsigned()),
    ];
    let length = (4 + size_of_val(&attributes)) as u16;
    let link = Link::of(interface.index);
    change(libc::RTM_SETLINK, Request { link, length, kind: IFLA_XDP | NESTED, attributes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_come_before_the_number() {
        let refusal = |words: Option<&str>| DriverRefusal {
            error: io::Error::from_raw_os_error(libc::EOPNOTSUPP),
            words: words.map(str::to_owned),
        };
        assert_eq!(
            refusal(Some("Peer MTU is too large to set XDP")).to_string(),
            "Peer MTU is too large to set XDP (Operation not supported (os error 95))"
        );
        assert_eq!(refusal(None).to_string(), "Operation not supported (os error 95)");
    }
}
