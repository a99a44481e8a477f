//! How handshakes end.

use std::{fmt, io};

use rustls::{CertificateError, Error};

/// How a handshake ended, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeResult {
    /// The peer may ask.
    Completed,
    /// It took too long.
    Timeout,
    /// It was the oldest of too many.
    Displaced,
    /// The peer presented no certificate.
    NoCertificate,
    /// Its certificate does not lead to the CA.
    UnknownCa,
    /// Its certificate is not valid yet, or no more.
    Expired,
    /// Its certificate has none of the names that may ask.
    Name,
    /// Its certificate is wrong otherwise.
    BadCertificate,
    /// It does not speak TLS.
    NotTls,
    /// It refused the certificate of the bridge, or ended the handshake for another reason of its own.
    Alert,
    /// The connection broke.
    Closed,
    /// What both sides know of TLS has nothing in common, or the peer does it wrong.
    Protocol,
}

impl HandshakeResult {
    pub(in crate::bridge) const ALL: [Self; 12] = [
        Self::Completed,
        Self::Timeout,
        Self::Displaced,
        Self::NoCertificate,
        Self::UnknownCa,
        Self::Expired,
        Self::Name,
        Self::BadCertificate,
        Self::NotTls,
        Self::Alert,
        Self::Closed,
        Self::Protocol,
    ];

    /// Its label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Timeout => "timeout",
            Self::Displaced => "displaced",
            Self::NoCertificate => "no_certificate",
            Self::UnknownCa => "unknown_ca",
            Self::Expired => "expired",
            Self::Name => "name",
            Self::BadCertificate => "bad_certificate",
            Self::NotTls => "not_tls",
            Self::Alert => "alert",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
        }
    }

    /// How a handshake ended that failed with this error.
    pub(super) fn of(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match inner {
            None => Self::Closed,
            Some(Error::NoCertificatesPresented) => Self::NoCertificate,
            Some(Error::InvalidCertificate(error)) => match error {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownCa,
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::Expired,
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => Self::Name,
                _ => Self::BadCertificate,
            },
            Some(Error::InvalidMessage(_)) => Self::NotTls,
            Some(Error::AlertReceived(_)) => Self::Alert,
            Some(_) => Self::Protocol,
        }
    }
}

impl fmt::Display for HandshakeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "it may ask",
            Self::Timeout => "it took too long",
            Self::Displaced => "too many others came meanwhile",
            Self::NoCertificate => "it presents no certificate",
            Self::UnknownCa => "its certificate does not lead to a CA of --client-ca",
            Self::Expired => "its certificate is not valid yet, or no more",
            Self::Name => "its certificate has no name of --trusted-name",
            Self::BadCertificate => "its certificate is no valid one of a client",
            Self::NotTls => "it does not speak TLS",
            Self::Alert => {
                "it does not accept the certificate of the bridge, or ended the handshake otherwise"
            }
            Self::Closed => "the connection broke",
            Self::Protocol => {
                "it has no version, cipher or protocol of TLS in common with the bridge"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, InvalidMessage};

    use super::*;

    #[test]
    fn an_error_has_a_result() {
        let of = |error: Error| HandshakeResult::of(&io::Error::other(error));
        assert_eq!(
            HandshakeResult::of(&io::ErrorKind::UnexpectedEof.into()),
            HandshakeResult::Closed
        );
        assert_eq!(of(Error::NoCertificatesPresented), HandshakeResult::NoCertificate);
        for (error, told) in [
            (CertificateError::UnknownIssuer, HandshakeResult::UnknownCa),
            (CertificateError::NotValidYet, HandshakeResult::Expired),
            (CertificateError::NotValidForName, HandshakeResult::Name),
            (CertificateError::InvalidPurpose, HandshakeResult::BadCertificate),
        ] {
            assert_eq!(of(error.into()), told);
        }
        let not_tls = Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(of(not_tls), HandshakeResult::NotTls);
        assert_eq!(of(Error::AlertReceived(AlertDescription::UnknownCA)), HandshakeResult::Alert);
        assert_eq!(of(Error::NoApplicationProtocol), HandshakeResult::Protocol);
    }
}
