//! A list of addresses, as the file of a set and as standard input: any bytes are prefixes or are told what is
//! wrong with them, and no prefix has host bits.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limiter_userspace::policy::{document::parse_with_warnings, list_text::parse_list};

const DOCUMENT: &[u8] =
    b"version: 1\nsets:\n  listed: {file: listed.txt}\ndeny:\n  - set: listed\n";

fuzz_target!(|list: &[u8]| {
    match parse_list(list) {
        Ok(prefixes) => assert!(prefixes.iter().all(|prefix| prefix.trunc() == *prefix)),
        Err(bad) => assert!(!bad.to_string().is_empty()),
    }
    let mut file = |_: &str| Ok(list.to_vec());
    match parse_with_warnings("policy.yaml", DOCUMENT, 0, &mut file) {
        Ok((policy, warnings)) => {
            let _ = warnings.list().len();
            let prefixes = &policy.sets["listed"];
            for prefix in prefixes {
                assert_eq!(prefix.trunc(), *prefix);
            }
            // No prefix is made out of nothing: a range has at most 254, and at least two bytes. What is
            // compressed has as many as fit its text.
            if !list.starts_with(&[0x1f, 0x8b]) {
                let most = list.len() / 2 * 254;
                assert!(
                    prefixes.len() <= most,
                    "{} prefixes of {} bytes",
                    prefixes.len(),
                    list.len()
                );
            }
        }
        Err(faults) => assert!(!faults.to_string().is_empty()),
    }
});
