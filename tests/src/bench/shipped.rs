//! The shipped example policies, and the traffic that each is measured under.

use anyhow::{Context as _, Result};
use limiter_userspace::policy::{Policy, document};

/// A policy in `packaging/examples`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Example {
    WebEdge,
    DnsServer,
    SshGuard,
    Tenants,
}

impl Example {
    /// The file name and the text of the policy.
    pub(crate) const fn file(self) -> (&'static str, &'static str) {
        /// Expands to a file name and the text of that file.
        macro_rules! file {
            ($name:literal) => {
                ($name, include_str!(concat!("../../../packaging/examples/", $name)))
            };
        }
        match self {
            Self::WebEdge => file!("web-edge.yaml"),
            Self::DnsServer => file!("dns-server.yaml"),
            Self::SshGuard => file!("ssh-guard.yaml"),
            Self::Tenants => file!("tenants.yaml"),
        }
    }

    /// Parses the policy.
    pub(crate) fn policy(self) -> Result<Policy> {
        let (name, text) = self.file();
        let policy = document::parse(name, text.as_bytes(), &mut |file| {
            unreachable!("{name} has no file of a set, and asks for {file}")
        });
        policy.with_context(|| format!("the example {name} is no policy"))
    }
}

/// The frames of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// UDP from one source.
    Udp,
    /// SYNs from one source, each from another port.
    Syns,
    /// SYNs, each from a new source.
    MadeUpSyns,
    /// UDP, each from a new source.
    MadeUpUdp,
    /// UDP over IPv6 behind extension headers, each from a new source.
    MadeUpExtended,
}
