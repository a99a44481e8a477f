//! The policy document: any bytes are a policy or are told what is wrong with them, and a policy that is written is
//! read back as the same one. A request can be asked about by each.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limiter_userspace::{
    policy::document::{FileError, parse_with_warnings, to_yaml},
    query::request::{Sent, explain},
};

/// What the file of each set has.
const SET: &[u8] = b"192.0.2.0/24 # documentation\n2001:db8::/32\n";
/// Seconds of Unix time.
const NOW: u64 = 1_800_000_000;

fuzz_target!(|document: &[u8]| {
    let mut file = |path: &str| match path {
        "missing.txt" => Err(FileError::NotAFile { what: "a directory" }),
        _ => Ok(SET.to_vec()),
    };
    match parse_with_warnings("policy.yaml", document, NOW, &mut file) {
        Ok((policy, warnings)) => {
            let _ = warnings.list().len();
            let headers = ["x-user-id:7".to_owned()];
            if let Ok(sent) = Sent::parse("POST /login", &headers, Some("192.0.2.9")) {
                let _ = explain(&policy, &sent, NOW).rows.len();
            }
            let written = to_yaml(&policy);
            let mut none = |path: &str| unreachable!("{path} is asked for by what was written");
            let again = parse_with_warnings("written.yaml", written.as_bytes(), NOW, &mut none);
            match again {
                Ok((again, _)) => assert_eq!(again, policy, "{written}"),
                Err(faults) => panic!("{faults}\n{written}"),
            }
        }
        Err(faults) => assert!(!faults.to_string().is_empty()),
    }
});
