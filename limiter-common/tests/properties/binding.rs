//! How entries stand to epochs.

use limiter_common::algorithm::binding::{Binding, Standing};
use proptest::prelude::*;

use super::cases;

/// An epoch that is `ahead` of another, modulo the wrap.
fn moved(epoch: u32, ahead: i32) -> u32 {
    epoch.wrapping_add_signed(ahead)
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_binding_tells_epoch_and_plan(epoch: u32, profile in 0..Binding::PROFILES) {
        let binding = Binding::new(epoch, profile);
        prop_assert_eq!((binding.epoch(), binding.profile()), (epoch, profile));
        prop_assert_eq!(binding.standing(epoch), Standing::Current);
    }

    #[test]
    fn it_is_under_its_epoch_unless_it_is_locked(
        epoch: u32, other: u32, profile in 0..Binding::PROFILES, given_away in 0..16_u8,
    ) {
        let mut binding = Binding::new(epoch, profile);
        for _ in 0..given_away {
            binding = Binding::new(epoch, profile).like(binding.vacated(epoch));
        }
        prop_assert!(binding.is_under(epoch));
        prop_assert_eq!(binding.is_under(other), other == epoch);
        prop_assert!(!Binding(binding.0 | 1).is_under(epoch));
    }

    #[test]
    fn older_is_behind_and_newer_is_current_across_the_wrap(
        epoch: u32, profile in 0..Binding::PROFILES, ahead: i32,
    ) {
        let standing = Binding::new(moved(epoch, ahead), profile).standing(epoch);
        let expected = if ahead < 0 { Standing::Behind } else { Standing::Current };
        prop_assert_eq!(standing, expected);
    }

    #[test]
    fn a_locked_entry_is_neither(epoch: u32, bound: u32, profile in 0..Binding::PROFILES) {
        let locked = Binding(Binding::new(bound, profile).0 | 1);
        prop_assert_eq!(locked.standing(epoch), Standing::Locked);
        prop_assert_eq!((locked.epoch(), locked.profile()), (bound, profile));
    }

    /// Packets go by an epoch or by the one before, while a policy is put in force.
    #[test]
    fn an_entry_that_is_given_away_is_bound_under_no_epoch_that_packets_go_by(
        epoch: u32, profile in 0..Binding::PROFILES,
    ) {
        let given = Binding::new(epoch, profile).vacated(epoch).unlocked();
        for by in [epoch, moved(epoch, -1)] {
            prop_assert_eq!((given.is_under(by), given.standing(by)), (false, Standing::Behind));
        }
    }

    #[test]
    fn a_new_entry_is_behind_every_epoch_of_the_first_half(epoch in 1..=1_u32 << 31) {
        prop_assert_eq!(Binding(0).standing(epoch), Standing::Behind);
    }
}
