//! When a policy is to be taken back.

use limiter_common::abi::policy::Revert;
use proptest::prelude::*;

use super::{cases, magnitude};

proptest! {
    #![proptest_config(cases(4_000))]

    /// The one word that it may be mistaken for is that of never: in the first 65 µs after boot.
    #[test]
    fn it_is_about_its_epoch_and_up_to_65_us_early(epoch: u32, at in magnitude(64)) {
        let told = Revert::new(epoch, at).at(epoch);
        if at >> 16 == 0 && epoch & 0xffff == 0 {
            prop_assert_eq!(told, None);
        } else {
            let early = at - told.unwrap();
            prop_assert!(early < 1 << 16, "{} ns early", early);
        }
    }

    #[test]
    fn it_is_about_no_epoch_near_it(epoch: u32, at in magnitude(64), ahead in 1..65_536_u32) {
        let revert = Revert::new(epoch, at);
        prop_assert_eq!(revert.at(epoch.wrapping_add(ahead)), None);
        prop_assert_eq!(revert.at(epoch.wrapping_sub(ahead)), None);
    }

    #[test]
    fn never_is_about_none(epoch: u32) {
        prop_assert_eq!(Revert::NEVER.at(epoch), None);
    }
}
