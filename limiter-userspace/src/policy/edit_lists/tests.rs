use proptest::prelude::*;

use super::*;
use crate::policy::{
    PolicyErrorKind,
    spec::{parse, to_yaml},
};

const NOW: u64 = 1_800_000_000;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn add(policy: &mut Policy, list: List, prefix: &str, time: Option<u64>) -> Displaced {
    policy.add_listed(list, net(prefix), time.map(|time| NOW + time), NOW).unwrap()
}

/// The entries of a list, with the seconds that are left.
fn entries(policy: &Policy, list: List) -> Vec<(String, Option<u64>)> {
    let left = |listed: &Listed| listed.until.map(|until| until - NOW);
    policy.list(list).iter().map(|listed| (listed.whom.to_string(), left(listed))).collect()
}

/// Asserts that an addition is refused with this message and that it changed nothing.
#[track_caller]
fn refused(policy: &mut Policy, list: List, prefix: &str, until: Option<u64>, message: &str) {
    let before = policy.clone();
    let error = policy.add_listed(list, net(prefix), until, NOW).unwrap_err();
    assert_eq!(error.to_string(), message);
    assert_eq!(error.kind(), PolicyErrorKind::Invalid);
    assert!(error.remedy().is_some(), "{error}");
    assert_eq!(*policy, before);
}

#[test]
fn an_entry_that_holds_longer_is_told_of() {
    let mut policy = Policy::default();
    let prefix = net("203.0.113.9/32");
    let longer = |policy: &Policy, time: Option<u64>| {
        policy.check_longer(List::Deny, prefix, time.map(|time| NOW + time)).is_err()
    };
    assert!(!longer(&policy, Some(60)) && !longer(&policy, None));
    add(&mut policy, List::Deny, "203.0.113.9/32", Some(90));
    assert!(longer(&policy, Some(89)));
    assert!(!longer(&policy, Some(90)) && !longer(&policy, None));
    add(&mut policy, List::Deny, "203.0.113.9/32", None);
    assert!(longer(&policy, Some(u64::from(u32::MAX))) && !longer(&policy, None));
    assert!(policy.check_longer(List::Allow, prefix, Some(NOW)).is_ok(), "another list");
}

#[test]
fn entries_are_added_changed_and_removed() {
    let mut policy = Policy::default();
    for list in [List::Allow, List::Deny, List::Penalty] {
        assert_eq!(add(&mut policy, list, "203.0.113.9/32", Some(60)), Displaced::default());
        let displaced = add(&mut policy, list, "203.0.113.9/32", Some(90));
        assert_eq!(displaced, Displaced { same: true, narrower: 0 });
        assert_eq!(entries(&policy, list), [("203.0.113.9/32".to_owned(), Some(90))]);
    }
    assert_eq!((policy.allow.len(), policy.deny.len(), policy.penalties.len()), (1, 1, 1));
    policy.del_listed(List::Deny, net("203.0.113.9/32"), NOW).unwrap();
    assert_eq!((policy.allow.len(), policy.deny.len(), policy.penalties.len()), (1, 0, 1));
}

#[test]
fn what_is_over_goes_with_the_next_edit() {
    let mut policy = Policy::default();
    assert!(!policy.has_ends());
    add(&mut policy, List::Allow, "203.0.113.1/32", Some(1));
    assert!(policy.has_ends());
    add(&mut policy, List::Penalty, "203.0.113.2/32", Some(2));
    add(&mut policy, List::Deny, "203.0.113.3/32", None);
    let later = NOW + 1;
    assert!(policy.allow[0].is_over(later) && !policy.penalties[0].is_over(later));
    policy.add_listed(List::Deny, net("203.0.113.4/32"), None, later).unwrap();
    assert_eq!((policy.allow.len(), policy.deny.len(), policy.penalties.len()), (0, 2, 1));
    assert_eq!(policy.drop_over(NOW + 2), 1);
    assert_eq!((policy.deny.len(), policy.penalties.len()), (2, 0));
    // One that is over can still be taken off.
    add(&mut policy, List::Deny, "203.0.113.5/32", Some(5));
    policy.del_listed(List::Deny, net("203.0.113.5/32"), NOW + 9).unwrap();
}

#[test]
fn what_is_not_listed_is_not_found() {
    let mut policy = Policy::default();
    add(&mut policy, List::Deny, "203.0.113.0/24", None);
    let error = policy.del_listed(List::Deny, net("203.0.113.9/32"), NOW).unwrap_err();
    assert_eq!(error.to_string(), "deny has no entry for 203.0.113.9/32");
    assert_eq!(error.kind(), PolicyErrorKind::NotFound);
    let remedy = "it has 203.0.113.0/24, which can only be deleted as a whole";
    assert_eq!(error.remedy().unwrap(), remedy);
    let error = policy.del_listed(List::Penalty, net("203.0.113.0/24"), NOW).unwrap_err();
    assert_eq!(error.to_string(), "penalty has no entry for 203.0.113.0/24");
    assert_eq!(error.remedy().unwrap(), "`limiter penalty list` shows what it has");
}

#[test]
fn less_than_a_source_cannot_be_listed() {
    let mut policy = Policy::default();
    for list in [List::Allow, List::Deny, List::Penalty] {
        let message = "sources are counted per /64, and 2001:db8::1/128 is narrower";
        refused(&mut policy, list, "2001:db8::1/128", None, message);
    }
    add(&mut policy, List::Deny, "2001:db8::/64", None);
}

#[test]
fn a_wider_entry_takes_the_narrower_ones_in() {
    let mut policy = Policy::default();
    add(&mut policy, List::Deny, "203.0.113.7/32", None);
    add(&mut policy, List::Deny, "203.0.113.9/32", Some(60));
    add(&mut policy, List::Deny, "198.51.100.1/32", None);
    let timed = add(&mut policy, List::Deny, "203.0.113.0/24", Some(60));
    assert_eq!(timed.narrower, 0, "one that ends does not stand in for them");
    let forever = add(&mut policy, List::Deny, "203.0.113.0/24", None);
    assert_eq!(forever, Displaced { same: true, narrower: 2 });
    let message = "deny has 203.0.113.0/24 already, which includes 203.0.113.9/32";
    refused(&mut policy, List::Deny, "203.0.113.9/32", Some(NOW + 60), message);
    assert_eq!(
        entries(&policy, List::Deny),
        [("198.51.100.1/32".to_owned(), None), ("203.0.113.0/24".to_owned(), None)]
    );
}

#[test]
fn sets_count_as_what_is_in_them() {
    let mut policy = Policy::default();
    policy.sets.insert("cdn".into(), vec![net("198.51.100.0/25"), net("203.0.113.0/24")]);
    policy.allow.push(Listed { whom: Whom::Set("cdn".into()), until: None });
    let message = "allow has set cdn already, which includes 203.0.113.9/32";
    refused(&mut policy, List::Allow, "203.0.113.9/32", None, message);
    let message = "203.0.113.9/32 in deny would be shadowed by set cdn in allow";
    refused(&mut policy, List::Deny, "203.0.113.9/32", None, message);
    let error = policy.del_listed(List::Allow, net("203.0.113.0/24"), NOW).unwrap_err();
    assert_eq!(error.remedy().unwrap(), "it has set cdn, which can only be deleted as a whole");
    // Denied in part, it still denies the rest.
    policy.allow.clear();
    policy.deny.push(Listed { whom: Whom::Set("cdn".into()), until: None });
    add(&mut policy, List::Allow, "203.0.113.0/24", None);
    assert!(policy.shadowed().is_empty());
    add(&mut policy, List::Allow, "198.51.100.0/25", None);
    let told = policy.shadowed().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(told, ["`deny`: set `cdn` is shadowed by `allow`, which has all of it"]);
}

#[test]
fn what_allow_hides_is_refused_and_what_it_will_hide_is_told() {
    let mut policy = Policy::default();
    add(&mut policy, List::Deny, "203.0.113.9/32", None);
    add(&mut policy, List::Allow, "203.0.113.0/24", Some(60));
    assert!(policy.shadowed().is_empty());
    add(&mut policy, List::Allow, "203.0.113.0/24", None);
    assert_eq!(policy.shadowed().len(), 1);
    for (list, name) in [(List::Deny, "deny"), (List::Penalty, "penalty")] {
        let message =
            format!("203.0.113.9/32 in {name} would be shadowed by 203.0.113.0/24 in allow");
        refused(&mut policy, list, "203.0.113.9/32", Some(NOW + 60), &message);
    }
}

proptest! {
    #[test]
    fn edits_make_a_policy_that_can_be_read_back(
        edits in prop::collection::vec((0_usize..3, 28_u8..=32, 0_u8..=255, 0_u64..40, 0_u64..20), 1..40),
    ) {
        let lists = [List::Allow, List::Deny, List::Penalty];
        let mut policy = Policy::default();
        policy.sets.insert("some".into(), vec![net("192.0.2.0/29"), net("192.0.2.128/25")]);
        policy.deny.push(Listed { whom: Whom::Set("some".into()), until: None });
        for (number, (list, length, last, time, kind)) in edits.into_iter().enumerate() {
            let now = NOW + number as u64;
            let prefix = IpNet::new([192, 0, 2, last].into(), length).unwrap().trunc();
            let until = (time < 20).then(|| now + 1 + time);
            let before = policy.clone();
            if kind < 4 {
                let _ = policy.del_listed(lists[list], prefix, now);
                continue;
            }
            match policy.add_listed(lists[list], prefix, until, now) {
                Ok(_) => {
                    let holds = Listed { whom: Whom::Prefix(prefix), until };
                    prop_assert!(policy.list(lists[list]).contains(&holds));
                    prop_assert_eq!(policy.drop_over(now), 0);
                }
                Err(_) => prop_assert_eq!(&policy, &before),
            }
            let text = to_yaml(&policy);
            let read = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files"));
            prop_assert_eq!(read.as_ref().map_err(ToString::to_string), Ok(&policy), "{}", text);
        }
    }
}
