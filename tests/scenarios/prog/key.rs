//! Which part of an address identifies a source.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use limiter_tests::{packet::Frame, program::TestProgram};
use limiter_userspace::policy::{Builtin, KeyPrefix, Policy};

use super::{NEVER, NOW, policy, program, tokens, udp};

fn keyed(ipv4: u8, ipv6: u8) -> Policy {
    let mut policy = policy(&[(Builtin::Source, tokens(3))]);
    policy.set_key_prefix(KeyPrefix { ipv4, ipv6 }).unwrap();
    policy
}

fn passed(program: &mut TestProgram, source: IpAddr) -> u64 {
    program.run_many(&udp(source), 10).unwrap()
}

/// The address with one bit flipped.
fn flip(address: IpAddr, bit: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() ^ (1 << (31 - bit))).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() ^ (1 << (127 - bit))).into(),
    }
}

#[test]
fn a_prefix_is_one_source_and_its_neighbour_another() {
    let v4: IpAddr = "203.0.113.85".parse().unwrap();
    let v6: IpAddr = "2001:db8:55:aa:1234:5678:9abc:def0".parse().unwrap();
    for (ipv4, ipv6) in
        [(0, 0), (1, 1), (8, 32), (24, 48), (25, 63), (31, 64), (32, 65), (32, 127), (32, 128)]
    {
        let mut program = program(&keyed(ipv4, ipv6));
        for (address, length, bits) in [(v4, ipv4, 32), (v6, ipv6, 128)] {
            assert_eq!(passed(&mut program, address), 3, "{address}/{length}");
            for bit in 0..bits {
                let other = flip(address, bit);
                // Flipping a bit of the prefix gives another source; flipping a bit behind it does not.
                let expected = if bit < length { 3 } else { 0 };
                assert_eq!(
                    passed(&mut program, other),
                    expected,
                    "{other} beside {address}/{length}"
                );
            }
        }
        let (talkers, occupancy) = program.maps().talkers(1_000).unwrap();
        assert_eq!(occupancy.tracked, 2 + u64::from(ipv4) + u64::from(ipv6));
        assert!(
            talkers.iter().all(|talker| {
                talker.prefix == if talker.address.is_ipv4() { ipv4 } else { ipv6 }
            })
        );
        program.check_accounts().unwrap();
    }
}

#[test]
fn families_share_nothing() {
    for (ipv4, ipv6) in [(0, 0), (32, 128)] {
        let mut program = program(&keyed(ipv4, ipv6));
        // The same number in both families: only the family tells these sources apart.
        let v4 = [0, 0, 0, 0];
        let [zero, mapped] = [[0; 8], [0, 0, 0, 0, 0, 0xffff, 0, 0]];
        assert_eq!(passed(&mut program, v4.into()), 3);
        assert_eq!(passed(&mut program, zero.into()), 3);
        assert_eq!(passed(&mut program, mapped.into()), if ipv6 == 0 { 0 } else { 3 });
        // Frames without a readable source share no state with them either.
        let unreadable = Frame::other(0x0800, [0x45; 8]).build();
        assert_eq!(program.run_many(&unreadable, 10).unwrap(), 3);
        assert_eq!(program.unreadable().unwrap().dropped.packets, 7);
    }
}

#[test]
fn another_prefix_length_makes_other_sources() {
    let mut program = program(&keyed(32, 64));
    assert_eq!(passed(&mut program, [10, 0, 0, 1].into()), 3);
    program.apply(&keyed(24, 64)).unwrap();
    assert_eq!(passed(&mut program, [10, 0, 0, 2].into()), 3);
    assert_eq!(passed(&mut program, [10, 0, 0, 1].into()), 0);
    // With the old prefix length, the old source still has its state.
    program.apply(&keyed(32, 64)).unwrap();
    assert_eq!(passed(&mut program, [10, 0, 0, 1].into()), 0);
    assert_eq!(passed(&mut program, [10, 0, 0, 2].into()), 3);
    program.at(NOW + NEVER.period).unwrap();
    assert_eq!(passed(&mut program, [10, 0, 0, 1].into()), 1);
}
