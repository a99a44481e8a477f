//! Reads a limit that a command adds, by the rules of a document.
//!
//! The options of the command are written as the limit of a document, and read like one. So both take the same words, and
//! refuse the same.

use super::{
    about::Passes,
    fault::Findings,
    limit,
    match_words::match_text,
    names::{ALGORITHMS, Algorithm, meaning},
    source::Source,
    terms::keys_of,
    text::{mapping, one_or_list, scalar},
    tree::tree,
};
use crate::policy::{
    error::PolicyError,
    model::{Limit, Policy},
    shadowed::FromFiles,
};

/// A limit in the words of `limiter limit add`; each is a value of the document's key of that name.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewLimit<'o> {
    /// The name of the limit.
    pub name: &'o str,
    /// What it matches, see `match_words`; all packets if empty.
    pub matching: &'o [String],
    /// The parts of its key.
    pub key: &'o [String],
    /// The rate, such as `5/min`.
    pub rate: Option<&'o str>,
    /// The burst: `burst`, `depth` or `tolerance` of the document, by the algorithm.
    pub burst: Option<&'o str>,
    /// The number of open connections, for the algorithm `concurrent`.
    pub open: Option<&'o str>,
    /// What is counted, such as `syns`.
    pub count: Option<&'o str>,
    /// The algorithm.
    pub algorithm: Option<&'o str>,
    /// What becomes of packets over the limit.
    pub action: Option<&'o str>,
}

impl NewLimit<'_> {
    /// Reads the limit, for a policy that it is to be added to.
    ///
    /// # Errors
    /// [`PolicyError::NewLimit`] with the first fault that a document with this limit would have.
    pub fn read(&self, policy: &Policy) -> Result<Limit, PolicyError> {
        let refused = |message: String, remedy| PolicyError::NewLimit { message, remedy };
        let text =
            self.written(policy).map_err(|(message, remedy)| refused(message, Some(remedy)))?;
        let source = Source::new("limit", &text);
        let mut findings = Findings::new(&source);
        let files = FromFiles::default();
        let found = tree(&text, &mut findings).and_then(|node| {
            limit::limit(&node, 0, (policy, &mut Passes::new(policy, &files)), &mut findings)
        });
        if let Some(faults) = findings.into_faults()
            && let Some(fault) = faults.list().first()
        {
            return Err(refused(fault.message.clone(), fault.remedy.clone()));
        }
        found
            .map(|found| found.limit)
            .ok_or_else(|| refused(format!("limit {} cannot be read", self.name), None))
    }

    /// The limit as a mapping of a document.
    ///
    /// # Errors
    /// The message and the remedy, for words of `--match` that mean nothing.
    fn written(&self, policy: &Policy) -> Result<String, (String, String)> {
        let algorithm = match (self.algorithm, self.open) {
            (None, Some(_)) => Some("concurrent"),
            (algorithm, _) => algorithm,
        };
        // A word that is no algorithm is refused where the limit is read.
        let known = algorithm.and_then(|word| meaning(word, &ALGORITHMS));
        let burst = keys_of(known.unwrap_or(Algorithm::TokenBucket)).last().copied();
        let burst = burst.filter(|key| ["depth", "tolerance"].contains(key)).unwrap_or("burst");
        let mut pairs = vec![("name", scalar(self.name))];
        if let Some(matching) = match_text(self.matching, policy)? {
            pairs.push(("match", matching));
        }
        if !self.key.is_empty() {
            pairs.push(("key", one_or_list(self.key.iter().map(|part| scalar(part)))));
        }
        let options = [
            ("count", self.count),
            ("action", self.action),
            ("algorithm", algorithm),
            ("rate", self.rate),
            (burst, self.burst),
            ("limit", self.open),
        ];
        let given = options.into_iter().filter_map(|(key, value)| Some((key, scalar(value?))));
        Ok(mapping(pairs.into_iter().chain(given)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::document::{parse, to_yaml};

    fn policy(text: &str) -> Policy {
        let text = format!("version: 1\n{text}");
        parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap()
    }

    fn limit(words: &[&str], more: NewLimit<'_>) -> Result<Limit, PolicyError> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let services = policy(
            "services: {web: {protocol: [tcp, udp], ports: [80, 443]}}\nsets: {office: {cidrs: [203.0.113.0/24]}}",
        );
        NewLimit { name: "new", matching: &words, ..more }.read(&services)
    }

    fn per_source() -> [String; 1] {
        ["source".to_owned()]
    }

    /// A limit of a command, and the same limit of a document.
    #[test]
    fn a_limit_of_a_command_is_that_of_a_document() {
        let key = per_source();
        let base = NewLimit { key: &key, rate: Some("5/min"), ..NewLimit::default() };
        for (words, matching) in [
            (&["tcp:ssh"][..], "{protocol: tcp, ports: ssh}"),
            (&["tcp:22,80"], "{protocol: tcp, ports: [22, 80]}"),
            (&["udp:53"], "{protocol: udp, ports: 53}"),
            (&["tcp,udp:8000-8010"], "{protocol: [tcp, udp], ports: 8000-8010}"),
            (&["tcp"], "{protocol: tcp}"),
            (&["protocol:47"], "{protocol: 47}"),
            (&["gre"], "{protocol: gre}"),
            (&["icmp"], "{protocol: icmp}"),
            (&["icmp:echo-request"], "{protocol: icmp, icmp_type: echo-request}"),
            (&["syn"], "{protocol: tcp, tcp_flags: syn}"),
            (&["tcp:22 syn"], "{protocol: tcp, ports: 22, tcp_flags: syn}"),
            (&["tcp:22", "syn"], "{protocol: tcp, ports: 22, tcp_flags: syn}"),
            (&["web"], "{service: web}"),
            (&["service:web"], "{service: web}"),
            (&["dst:198.51.100.0/24"], "{destination: 198.51.100.0/24}"),
            (
                &["dst:2001:db8::/48 udp:53"],
                "{destination: \"2001:db8::/48\", protocol: udp, ports: 53}",
            ),
            (&["dst:198.51.100.1 src:office"], "{destination: 198.51.100.1, source: office}"),
            (&["udp source_ports:53"], "{protocol: udp, source_ports: 53}"),
            (&["udp sport:ntp,11211"], "{protocol: udp, source_ports: [ntp, 11211]}"),
            (&["tcp dport=443"], "{protocol: tcp, ports: 443}"),
            (&["fragments"], "{fragments: true}"),
            (&["fragments:false udp"], "{fragments: false, protocol: udp}"),
            (&["length:64-128"], "{length: 64-128}"),
            (&["interface:eth0"], "{interface: eth0}"),
            (&["tcp flags:syn,!ack"], "{protocol: tcp, tcp_flags: [syn, \"!ack\"]}"),
            (&["except:office"], "{except: office}"),
        ] {
            let found = limit(words, base).unwrap_or_else(|error| panic!("{words:?}: {error}"));
            let services = "services: {web: {protocol: [tcp, udp], ports: [80, 443]}}\nsets: {office: {cidrs: [203.0.113.0/24]}}";
            let document = policy(&format!(
                "{services}\nlimits: [{{name: new, match: {matching}, key: source, rate: 5/min}}]"
            ));
            assert_eq!(found, document.limits[0], "{words:?}");
        }
    }

    #[test]
    fn what_a_document_says_of_amounts_the_options_say() {
        let key = per_source();
        let base = NewLimit { key: &key, ..NewLimit::default() };
        for (options, written) in [
            (
                NewLimit { rate: Some("10kpps"), burst: Some("2k"), ..base },
                "rate: 10kpps, burst: 2k",
            ),
            (
                NewLimit { rate: Some("2Mbit/s"), count: Some("bytes"), ..base },
                "rate: 2Mbit/s, count: bytes",
            ),
            (
                NewLimit {
                    rate: Some("5/s"),
                    burst: Some("3"),
                    algorithm: Some("leaky_bucket"),
                    ..base
                },
                "rate: 5/s, depth: 3, algorithm: leaky_bucket",
            ),
            (
                NewLimit { rate: Some("5/s"), burst: Some("3"), algorithm: Some("gcra"), ..base },
                "rate: 5/s, tolerance: 3, algorithm: gcra",
            ),
            (
                NewLimit { rate: Some("100/min"), algorithm: Some("fixed_window"), ..base },
                "rate: 100/min, algorithm: fixed_window",
            ),
            (NewLimit { open: Some("20"), ..base }, "algorithm: concurrent, limit: 20"),
            (
                NewLimit { rate: Some("5/s"), action: Some("monitor"), ..base },
                "rate: 5/s, action: monitor",
            ),
        ] {
            let found = limit(&[], options).unwrap_or_else(|error| panic!("{written}: {error}"));
            let document = policy(&format!("limits: [{{name: new, key: source, {written}}}]"));
            assert_eq!(found, document.limits[0], "{written}");
            let mut saved = Policy::default();
            saved.limits.push(found);
            assert_eq!(
                policy(to_yaml(&saved).trim_start_matches("version: 1\n")),
                saved,
                "{written}"
            );
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_remedy() {
        let key = per_source();
        let base = NewLimit { key: &key, rate: Some("5/min"), ..NewLimit::default() };
        for (words, expected) in [
            (&["tcp:sssh"][..], &["`sssh` is no port", "ssh"][..]),
            (&["tpc:22"], &["\"tpc:22\"", "tcp"]),
            (&["ssh"], &["\"ssh\" is a port", "tcp:ssh"]),
            (&["icmp:53x"], &["53x"]),
            (&["udp:53 tcp:22"], &["`protocol` is given twice", "a limit for each"]),
            (&["nonsense"], &["\"nonsense\"", "tcp:22", "sport:53"]),
            (&["source:nobody"], &["nobody"]),
            (&["198.51.100.300"], &["198.51.100.300"]),
            (&["198.51.100.1"], &["src:198.51.100.1 or dst:198.51.100.1"]),
            (&["2001:db8::/48"], &["src:2001:db8::/48"]),
            (&["53"], &["\"53\" may be ports", "udp:53", "protocol:53"]),
            (&["tcp 22"], &["tcp:22"]),
            (&["dport 22"], &["\"dport\" lacks its value", "dport:22"]),
            (&["udp:53 syn"], &["`protocol` is given twice"]),
            (&[""], &["`--match` says nothing"]),
        ] {
            let error = limit(words, base).unwrap_err();
            let said = format!("{error}; {}", error.remedy().unwrap_or_default());
            for word in expected {
                assert!(said.contains(word), "{words:?}: {said}");
            }
        }
        let no_rate = limit(&["tcp"], NewLimit { rate: None, ..base }).unwrap_err();
        assert!(no_rate.to_string().contains("limits nothing"), "{no_rate}");
        let flow = ["ip".to_owned()];
        let error = limit(&["tcp"], NewLimit { key: &flow, ..base }).unwrap_err();
        assert!(error.to_string().contains("no key `ip`"), "{error}");
    }
}
