//! Reads certificates and keys.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
    client::{
        danger::HandshakeSignatureValid, verify_server_cert_signed_by_trust_anchor,
        verify_server_name,
    },
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::{
        NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use super::{Options, TlsError};

/// The most bytes of a file that are read.
const LONGEST: u64 = 1 << 20;

/// What was read of the files.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration of all protocols.
    pub(super) config: ServerConfig,
    /// Until when the certificate of the bridge and those that lead to its CA are valid, in seconds of Unix time.
    pub expires: u64,
    /// The same of the CA of proxies: of several, the first that ends.
    pub ca_expires: u64,
}

/// Reads the files, each of which is named to `opened` before.
pub(super) fn load(options: &Options, opened: &mut dyn FnMut(&Path)) -> Result<Loaded, TlsError> {
    let Options { certificate, key, client_ca, names } = options;
    let chain = certificates(certificate, opened)?;
    let private = private_key(key, opened)?;
    let authorities = certificates(client_ca, opened)?;
    let unusable = |file: &Path, cause: &dyn ToString| TlsError::Unusable {
        file: file.to_owned(),
        cause: cause.to_string(),
    };
    let expires = first_end(certificate, &chain)?;
    let ca_expires = first_end(client_ca, &authorities)?;
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| unusable(client_ca, &error))?;
    }
    let provider = Arc::new(default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let verifier = verifier.build().map_err(|error| unusable(client_ca, &error))?;
    let verifier = Arc::new(Named { chain: verifier, names: names.clone() });
    let config = ServerConfig::builder_with_provider(provider);
    let config = config
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(certificate, &error))?;
    let config = config.with_client_cert_verifier(verifier).with_single_cert(chain, private);
    let mut config = config.map_err(|error| match error {
        Error::InconsistentKeys(_) => {
            TlsError::Mismatch { key: key.clone(), certificate: certificate.clone() }
        }
        Error::InvalidCertificate(_) => unusable(certificate, &error),
        error => unusable(key, &error),
    })?;
    // A session that is resumed shows no certificate, which may have expired meanwhile.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Loaded { config, expires, ca_expires })
}

/// Reads a file, and tells its permissions.
fn read(file: &Path, opened: &mut dyn FnMut(&Path)) -> Result<(Vec<u8>, u32), TlsError> {
    opened(file);
    let read = || -> io::Result<(Vec<u8>, u32)> {
        let source = File::open(file)?;
        let mode = source.metadata()?.permissions().mode() & 0o777;
        let mut bytes = Vec::new();
        source.take(LONGEST).read_to_end(&mut bytes)?;
        Ok((bytes, mode))
    };
    read().map_err(|source| TlsError::Unreadable { file: file.to_owned(), source })
}

fn certificates(
    file: &Path,
    opened: &mut dyn FnMut(&Path),
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let (bytes, _) = read(file, opened)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = certificates
        .map_err(|error| TlsError::Unusable { file: file.to_owned(), cause: error.to_string() })?;
    match certificates.is_empty() {
        true => Err(TlsError::Empty { file: file.to_owned(), what: "certificate" }),
        false => Ok(certificates),
    }
}

fn private_key(
    file: &Path,
    opened: &mut dyn FnMut(&Path),
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let (bytes, mode) = read(file, opened)?;
    if mode & 0o007 != 0 {
        return Err(TlsError::OpenKey { file: file.to_owned(), mode });
    }
    // The library's error may quote the file.
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_| TlsError::Empty { file: file.to_owned(), what: "private key" })
}

/// When the first of several certificates ends, in seconds of Unix time.
fn first_end(file: &Path, certificates: &[CertificateDer<'_>]) -> Result<u64, TlsError> {
    let ends: Result<Vec<_>, _> = certificates.iter().map(end).collect();
    let ends = ends
        .map_err(|error| TlsError::Unusable { file: file.to_owned(), cause: error.to_string() })?;
    Ok(ends.into_iter().min().unwrap_or_default())
}

/// When a certificate ends, in seconds of Unix time. The library has no accessor for it: it tells of a certificate that it finds
/// expired when it was, and at the end of time each of them is.
fn end(certificate: &CertificateDer<'_>) -> Result<u64, Error> {
    let certificate = ParsedCertificate::try_from(certificate)?;
    let roots = RootCertStore::empty();
    let never = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let verified = verify_server_cert_signed_by_trust_anchor(&certificate, &roots, &[], never, &[]);
    match verified {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Ok(not_after.as_secs())
        }
        Err(error) => Err(error),
        Ok(()) => Ok(u64::MAX),
    }
}

/// Verifies that certificates of proxies lead to the CA, and that they have one of some names.
#[derive(Debug)]
struct Named {
    chain: Arc<dyn ClientCertVerifier>,
    /// The names; any will do if there are none.
    names: Vec<ServerName<'static>>,
}

impl ClientCertVerifier for Named {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let has = |name| verify_server_name(&certificate, name).is_ok();
        match self.names.is_empty() || self.names.iter().any(has) {
            true => Ok(verified),
            false => Err(CertificateError::NotValidForName.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate until 2125-12-08.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBejCCASGgAwIBAgIUX6TEn9p4+giNwkKAhr4UHA82qMQwCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHbGltaXRlcjAgFw0yNjAxMDEwMDAwMDBaGA8yMTI1MTIwODAw
MDAwMFowEjEQMA4GA1UEAwwHbGltaXRlcjBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABGCzosmE2yCDQ3xSFq/J3jKPkc1HTZEA/QmlPKqYKJNPfxPvPHr4iWFcXtmH
FvhWRAfV2i0c0R2lldIMg18K+cqjUzBRMB0GA1UdDgQWBBRuCp5sv99Rqnq0dJO3
/KK9qQWnYTAfBgNVHSMEGDAWgBRuCp5sv99Rqnq0dJO3/KK9qQWnYTAPBgNVHRMB
Af8EBTADAQH/MAoGCCqGSM49BAMCA0cAMEQCIFF76A+32gRrJx/6wxHvDLpKQDwy
CXf3M3znQqHI0k+GAiBlwzxG8qla5WLcMGRjyGmxuxv9PPsR7WlenWMS/BTnUw==
-----END CERTIFICATE-----
";

    #[test]
    fn a_certificate_tells_when_it_ends() {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
        assert_eq!(end(&certificate).unwrap(), 4_920_825_600);
        let file = Path::new("a");
        assert_eq!(
            first_end(file, &[certificate.clone(), certificate.clone()]).unwrap(),
            4_920_825_600
        );
        // One that is cut.
        let cut = CertificateDer::from(&certificate[..certificate.len() / 2]);
        let error = first_end(file, &[certificate.clone(), cut]).unwrap_err();
        assert!(error.to_string().starts_with("a: "), "{error}");
    }
}
