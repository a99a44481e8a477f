//! What the lists say of sources.

use limiter_common::{abi::policy::Profile, packet::reason::Reason};
use proptest::prelude::*;

use super::cases;

/// Not listed, for ever, or until some time.
fn end() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), 1..u64::MAX]
}

proptest! {
    #![proptest_config(cases(2_000))]

    /// That of the first list of these that names them still.
    #[test]
    fn allowed_is_before_denied_and_denied_before_blocked(
        [allowed, denied, blocked] in [end(), end(), end()],
        now in prop_oneof![any::<u64>(), 0..4_u64],
    ) {
        let profile = Profile { allowed, denied, blocked, ..Profile::default() };
        let lists = [(allowed, Reason::Allow), (denied, Reason::Deny), (blocked, Reason::Penalty)];
        let expected = lists.into_iter().find(|(until, _)| now < *until).map(|(_, reason)| reason);
        prop_assert_eq!(profile.listing(now), expected);
    }

    #[test]
    fn what_is_so_at_any_time_takes_no_clock([allowed, denied, blocked] in [end(), end(), end()]) {
        let profile = Profile { allowed, denied, blocked, ..Profile::default() };
        let [first, last] = [0, u64::MAX - 1].map(|now| profile.listing(now));
        let expected = if first == last { first } else { None };
        prop_assert_eq!(profile.listing_for_ever(), expected);
    }
}
