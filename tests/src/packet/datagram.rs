//! IP headers with their lengths and checksums.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::checksum::Sum16BitWords;

use super::{
    Extension, IPV4, IPV6,
    addresses::Addresses,
    transport::{Transport, saturate},
};

#[derive(Clone, Debug)]
pub(super) struct Datagram {
    pub(super) addresses: Addresses,
    pub(super) ttl: u8,
    /// The protocol number of the transport, which follows the extension headers.
    pub(super) protocol: u8,
    pub(super) identification: u16,
    /// Flags and offset, as in the IPv4 header.
    pub(super) fragment: u16,
    pub(super) options: Vec<u8>,
    pub(super) extensions: Vec<Extension>,
    pub(super) transport: Transport,
    pub(super) payload: Vec<u8>,
    pub(super) declared_length: Option<u16>,
}

impl Datagram {
    pub(super) fn new(addresses: Addresses, protocol: u8, transport: Transport) -> Self {
        Self {
            addresses,
            ttl: 64,
            protocol,
            identification: 0,
            fragment: 0,
            options: Vec::new(),
            extensions: Vec::new(),
            transport,
            payload: Vec::new(),
            declared_length: None,
        }
    }

    /// Returns the ethertype and the bytes of the datagram.
    pub(super) fn build(&self) -> (u16, Vec<u8>) {
        match self.addresses {
            Addresses::V4(source, destination) => (IPV4, self.v4(source, destination)),
            Addresses::V6(source, destination) => (IPV6, self.v6(source, destination)),
        }
    }

    fn v4(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
        let content = self.transport_and_payload();
        let header_length = 20 + self.options.len();
        let length =
            self.declared_length.unwrap_or_else(|| saturate(header_length + content.len()));
        let mut bytes = vec![0x40 | (header_length / 4) as u8, 0];
        bytes.extend(length.to_be_bytes());
        bytes.extend(self.identification.to_be_bytes());
        bytes.extend(self.fragment.to_be_bytes());
        bytes.extend([self.ttl, self.protocol, 0, 0]);
        bytes.extend(source.octets());
        bytes.extend(destination.octets());
        bytes.extend(&self.options);
        let checksum = Sum16BitWords::new().add_slice(&bytes).ones_complement().to_ne_bytes();
        bytes[10..12].copy_from_slice(&checksum);
        bytes.extend(content);
        bytes
    }

    fn v6(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
        // Backwards, because each header holds the number of the next one.
        let mut next = self.protocol;
        let mut chain = Vec::new();
        for extension in self.extensions.iter().rev() {
            chain.push(extension.bytes(next));
            next = extension.number();
        }
        chain.reverse();
        let mut content = chain.concat();
        content.extend(self.transport_and_payload());

        let length = self.declared_length.unwrap_or_else(|| saturate(content.len()));
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend(length.to_be_bytes());
        bytes.extend([next, self.ttl]);
        bytes.extend(source.octets());
        bytes.extend(destination.octets());
        bytes.extend(content);
        bytes
    }

    /// The payload, after the transport header unless this is a later fragment.
    pub(super) fn transport_and_payload(&self) -> Vec<u8> {
        let later = self.fragment & 0x1fff != 0 || self.extensions.iter().any(Extension::is_later);
        if later {
            return self.payload.clone();
        }
        self.transport.bytes(&self.addresses, self.protocol, &self.payload)
    }
}
