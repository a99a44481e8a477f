//! The configuration of Envoy's rate limit service: any bytes become limits or are told what is wrong with them, and what is
//! imported can be written and read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limiter_userspace::policy::{
    Policy,
    document::{
        parse,
        ratelimit::{WindowAlgorithm, import},
        to_yaml,
    },
};

fuzz_target!(|text: &[u8]| {
    let mut policy = Policy::default();
    match import("config.yaml", text, WindowAlgorithm::default(), &mut policy) {
        Ok(warnings) => {
            let _ = warnings.iter().map(|warnings| warnings.to_string().len()).sum::<usize>();
            let written = to_yaml(&policy);
            let mut none = |path: &str| unreachable!("{path} is asked for by what was written");
            // Some of what is imported no document can have, such as too many limits.
            if let Err(faults) = parse("written.yaml", written.as_bytes(), &mut none) {
                assert!(!faults.to_string().is_empty());
            }
        }
        Err(faults) => assert!(!faults.to_string().is_empty()),
    }
});
