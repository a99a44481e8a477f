//! The file of a set: any bytes are prefixes or are told what is wrong with them, and no prefix has host bits.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limiter_userspace::policy::document::parse_with_warnings;

const DOCUMENT: &[u8] =
    b"version: 1\nsets:\n  listed: {file: listed.txt}\ndeny:\n  - set: listed\n";

fuzz_target!(|list: &[u8]| {
    let mut file = |_: &str| Ok(list.to_vec());
    match parse_with_warnings("policy.yaml", DOCUMENT, 0, &mut file) {
        Ok((policy, warnings)) => {
            let _ = warnings.list().len();
            let prefixes = &policy.sets["listed"];
            for prefix in prefixes {
                assert_eq!(prefix.trunc(), *prefix);
            }
            // No prefix is made out of nothing.
            let lines = list.split(|byte| *byte == b'\n').count();
            assert!(prefixes.len() <= lines, "{} prefixes of {lines} lines", prefixes.len());
        }
        Err(faults) => assert!(!faults.to_string().is_empty()),
    }
});
