use super::*;
use crate::policy::document::parse_with_files;

const DENY: &str = "version: 1\nsets: {bad: {file: f}}\ndeny: [bad]";

fn read(document: &str, file: &str) -> (Policy, FromFiles) {
    let (policy, _, files) =
        parse_with_files("policy", document.as_bytes(), 0, &mut |_| Ok(file.into())).unwrap();
    (policy, files)
}

fn host() -> Host {
    Host {
        addresses: ["198.51.100.7".parse().unwrap(), "2001:db8:1::7".parse().unwrap()].into(),
        gateways: ["198.51.100.1".parse().unwrap()].into(),
        networks: ["198.51.100.0/24".parse().unwrap(), "10.9.0.0/16".parse().unwrap()].into(),
    }
}

/// Entries of a file, a line each.
fn lines(entries: &[&str]) -> String {
    entries.iter().map(|entry| format!("{entry}\n")).collect()
}

/// A list of `count` addresses, no two of which are neighbours.
fn long(count: usize) -> String {
    (0..count).map(|at| format!("203.0.{}.{}\n", at / 100, at % 100 * 2)).collect()
}

fn judged(document: &str, before: &str, after: &str) -> Option<Harm> {
    let (old, _) = read(document, before);
    let (new, files) = read(document, after);
    let refusal = guard(Some(&old), &new, &files, &host()).err()?;
    Some(refusal.reasons()[0].harm)
}

#[test]
fn what_a_file_gains_is_judged_by_what_it_newly_covers() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let net = |text: &str| text.parse::<IpNet>().unwrap();
    let old = "203.0.113.0/24\n";
    for (entries, expected) in [
        (&["0.0.0.0/0"][..], Some(Harm::Everything(net("0.0.0.0/0")))),
        (&["::/0"], Some(Harm::Everything(net("::/0")))),
        (&["198.51.100.7"], Some(Harm::Address(ip("198.51.100.7")))),
        (&["2001:db8::/32"], Some(Harm::Address(ip("2001:db8:1::7")))),
        (&["198.51.100.0/30"], Some(Harm::Gateway(ip("198.51.100.1")))),
        (&["10.0.0.0/8"], Some(Harm::Network(net("10.9.0.0/16")))),
        // The two halves of a network are the network.
        (&["10.9.0.0/17", "10.9.128.0/17"], Some(Harm::Network(net("10.9.0.0/16")))),
        // Another host on the same network is not the network.
        (&["198.51.100.77", "10.9.1.0/24"], None),
        (&["16.0.0.0/4", "32.0.0.0/4"], Some(Harm::Share("IPv4"))),
        (&["16.0.0.0/4", "32.0.0.0/5", "40.0.0.0/6"], None),
        (&["16.0.0.0/4", "32.0.0.0/5", "40.0.0.0/6", "44.0.0.0/24"], Some(Harm::Share("IPv4"))),
        (&["2800::/6"], None),
        (&["2800::/5"], Some(Harm::Share("IPv6"))),
        // Lists of bogons are ordinary.
        (&["224.0.0.0/3", "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"], None),
        (&["fc00::/7", "fe80::/10", "ff00::/8", "4000::/2", "8000::/1"], None),
        (&["203.0.113.9"], None),
    ] {
        let after = format!("{old}{}", lines(entries));
        assert_eq!(judged(DENY, old, &after), expected, "{entries:?}");
        // What was covered before is not new.
        assert_eq!(judged(DENY, &after, &after), None, "{entries:?}");
    }
}

#[test]
fn a_long_list_keeps_half_of_its_entries() {
    for (before, after, refused) in [
        (long(19), String::new(), false),
        (long(20), String::new(), true),
        (long(20), "# nothing today\n".to_owned(), true),
        (long(20), long(10), false),
        (long(20), long(9), true),
        (long(1_000), long(499), true),
        // As many other entries: a list that turned over.
        (long(100), long(300).lines().skip(200).map(|it| format!("{it}\n")).collect(), false),
        // The same addresses in one prefix.
        (long(40), "203.0.0.0/24\n".to_owned(), false),
    ] {
        let harm = judged(DENY, &before, &after);
        let lost = matches!(harm, Some(Harm::Loss { .. }));
        assert_eq!(lost, refused, "{} -> {}: {harm:?}", before.len(), after.len());
    }
}

/// Prefixes of the document do not count as entries of the file.
#[test]
fn a_file_beside_prefixes_of_the_document_is_judged_alone() {
    let cidrs = (0..30).map(|at| format!("192.0.2.{}", at * 2)).collect::<Vec<_>>().join(", ");
    for document in [
        format!("version: 1\nsets: {{bad: {{cidrs: [{cidrs}], file: f}}}}\ndeny: [bad]"),
        format!("version: 1\ntenants: {{acme: {{cidrs: [{cidrs}], file: f}}}}"),
    ] {
        let loss = |before, after| Some(Harm::Loss { before, after });
        assert_eq!(judged(&document, &long(25), ""), loss(25, 0), "{document}");
        assert_eq!(judged(&document, &long(25), &long(12)), loss(25, 12), "{document}");
        assert_eq!(judged(&document, &long(25), &long(13)), None, "{document}");
        assert_eq!(judged(&document, &long(19), ""), None, "it is short");
    }
}

#[test]
fn every_list_is_guarded_and_only_files_are() {
    let everything = "203.0.113.0/24\n0.0.0.0/0\n";
    for (document, refused) in [
        ("version: 1\nsets: {a: {file: f}}\nallow: [a]", true),
        (DENY, true),
        ("version: 1\nsets: {a: {file: f}}\npenalties: [{src: a, until: 4000000000}]", true),
        ("version: 1\ntenants: {a: {file: f}}", true),
        // The document itself says so.
        ("version: 1\nsets: {a: {file: f, cidrs: [0.0.0.0/0]}}\ndeny: [a]", false),
        ("version: 1\nsets: {a: {cidrs: [0.0.0.0/0]}}\ndeny: [a]", false),
        ("version: 1\ndeny: [0.0.0.0/0]", false),
        // In no list.
        ("version: 1\nsets: {a: {file: f}}", false),
    ] {
        assert_eq!(
            judged(document, "203.0.113.0/24\n", everything).is_some(),
            refused,
            "{document}"
        );
    }
    let refusal = {
        let (new, files) = read(DENY, everything);
        guard(Some(&read(DENY, "").0), &new, &files, &host()).unwrap_err().to_string()
    };
    assert_eq!(refusal, "the file of set `bad`, in `deny`, newly has 0.0.0.0/0, every address");
}

#[test]
fn before_the_first_policy_only_what_cuts_off_is_refused() {
    for (file, refused) in [
        ("0.0.0.0/0\n", true),
        ("198.51.100.0/24\n", true),
        ("10.0.0.0/8\n", true),
        ("16.0.0.0/4\n32.0.0.0/4\n", false),
        ("", false),
    ] {
        let (new, files) = read(DENY, file);
        assert_eq!(guard(None, &new, &files, &host()).is_err(), refused, "{file}");
        assert_eq!(
            guard(None, &new, &files, &Host::default()).is_err(),
            file.contains("/0\n") && file.starts_with("0."),
            "{file}"
        );
    }
}

#[test]
fn what_does_harm_is_parted_from_the_rest() {
    let net = |text: &str| text.parse::<IpNet>().unwrap();
    let part = |known: &[&str], prefixes: &[&str]| {
        let known = known.iter().map(|it| net(it));
        let prefixes = prefixes.iter().map(|it| net(it)).collect();
        let (kept, harmful) = without_harm(known, prefixes, &host());
        let text = |of: IpNet| of.to_string();
        let kept: Vec<_> = kept.into_iter().map(text).collect();
        let harmful: Vec<_> = harmful.into_iter().map(|(it, _)| text(it)).collect();
        (kept.join(" "), harmful.join(" "))
    };
    let of = |kept: &str, harmful: &str| (kept.to_owned(), harmful.to_owned());
    let all =
        ["0.0.0.0/0", "203.0.113.9/32", "::/0", "198.51.100.7/32", "198.51.100.0/30", "10.0.0.0/8"];
    assert_eq!(
        part(&[], &all),
        of("203.0.113.9/32", "0.0.0.0/0 ::/0 198.51.100.7/32 198.51.100.0/30 10.0.0.0/8")
    );
    // What is listed otherwise is nothing new.
    assert_eq!(part(&["198.51.100.7/32"], &["198.51.100.7/32"]), of("198.51.100.7/32", ""));
    // Two halves make up a network.
    let halves = ["10.9.0.0/17", "10.9.128.0/17", "10.8.0.0/16"];
    assert_eq!(part(&[], &halves), of("10.8.0.0/16", "10.9.0.0/17 10.9.128.0/17"));
    let wide = ["16.0.0.0/4", "32.0.0.0/4", "203.0.113.0/24", "2001:db8:2::/48"];
    assert_eq!(part(&[], &wide), of("203.0.113.0/24 2001:db8:2::/48", "16.0.0.0/4 32.0.0.0/4"));
    assert_eq!(part(&[], &[]), of("", ""));
}

#[test]
fn a_block_of_this_host_or_a_gateway_is_known() {
    let host = Host { networks: BTreeSet::new(), ..host() };
    let harm = |prefix: &str| host.cut_off_by(&prefix.parse().unwrap());
    for prefix in ["127.0.0.1/32", "127.0.0.9/32", "::1/128", "::/64"] {
        assert!(matches!(harm(prefix), Some(Harm::Address(it)) if it.is_loopback()), "{prefix}");
    }
    for own in &host.addresses {
        assert_eq!(host.cut_off_by(&IpNet::from(*own)), Some(Harm::Address(*own)));
    }
    let gateway = "198.51.100.1".parse().unwrap();
    assert_eq!(harm("198.51.100.1/32"), Some(Harm::Gateway(gateway)));
    assert_eq!(harm("203.0.113.99/32"), None);
}
