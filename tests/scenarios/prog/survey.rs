//! The survey of all sources that `limiter watch` uses to find the first ones in an order.

use std::{net::IpAddr, thread, time::Duration};

use ipnet::IpNet;
use limiter_tests::{packet::Frame, program::TestProgram};
use limiter_userspace::{
    datapath::survey::{Filter, Findings, Order, Search, Survey},
    policy::{Builtin, Policy},
};

use super::{policy, program, tokens};

const TO: [u8; 4] = [198, 51, 100, 1];
const TO6: [u16; 8] = [0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1];
/// Sources that are asked for.
const MOST: usize = 20;

fn search(order: Order, within: Option<&str>) -> Search {
    let within = within.map(|text| match text.parse::<IpNet>() {
        Ok(prefix) => Filter::Prefix(prefix),
        Err(_) => Filter::Part(text.to_owned()),
    });
    Search { within, order, most: MOST, apart: Duration::from_millis(1) }
}

fn names(found: &Findings) -> Vec<String> {
    found.sources.iter().map(|it| it.talker.address.to_string()).collect()
}

fn send(program: &mut TestProgram, source: impl Into<IpAddr>, packets: u32) {
    let frame = match source.into() {
        IpAddr::V4(source) => Frame::udp(source, TO, 1, 2),
        IpAddr::V6(source) => Frame::udp(source, TO6, 1, 2),
    };
    program.run_many(&frame.build(), packets).unwrap();
}

/// 500 sources with more dropped packets each than any of the 50 sources in 192.0.2.0/24.
fn crowd() -> (TestProgram, Survey) {
    let mut program = program(&policy(&[(Builtin::Source, tokens(5))]));
    for number in 0..500_u16 {
        let [high, low] = number.to_be_bytes();
        send(&mut program, [10, 9, high, low], 100);
    }
    for number in 0..50 {
        send(&mut program, [192, 0, 2, number], 20);
    }
    send(&mut program, [0x2001, 0xdb8, 0, 7, 0, 0, 0, 9], 8);
    (program, Survey::default())
}

#[test]
fn a_filter_finds_what_is_not_among_the_first() {
    let (program, mut survey) = crowd();
    let mut look = |within| survey.look(program.maps(), &search(Order::DropRate, within)).unwrap();
    let all = look(None);
    assert_eq!((all.matching, all.occupancy.tracked, all.sources.len()), (551, 551, MOST));
    assert!(names(&all).iter().all(|name| name.starts_with("10.9.")), "{:?}", names(&all));
    let found = look(Some("192.0.2.0/24"));
    assert_eq!((found.matching, found.occupancy.tracked, found.sources.len()), (50, 551, MOST));
    assert!(names(&found).iter().all(|name| name.starts_with("192.0.2.")), "{:?}", names(&found));
    assert_eq!(names(&look(Some("192.0.2.33/32"))), ["192.0.2.33"]);
    // An address inside a /64 finds the source of that /64.
    assert_eq!(names(&look(Some("2001:db8:0:7::1/128"))), ["2001:db8:0:7::"]);
    assert_eq!(names(&look(Some("2001:db8:0:8::/64"))), [""; 0]);
    assert_eq!(look(Some("0.0.0.0/0")).matching, 550);
    // A part of an address, anywhere in it.
    assert_eq!(look(Some("192.0.")).matching, 50);
    assert_eq!(names(&look(Some(".2.33"))), ["192.0.2.33"]);
    assert_eq!(names(&look(Some("db8:0:7"))), ["2001:db8:0:7::"]);
    assert_eq!(look(Some("feed")).matching, 0);
}

#[test]
fn rates_are_of_all_sources_and_not_of_the_first_before() {
    let (mut program, mut survey) = crowd();
    let order = |order| search(order, None);
    let first = survey.look(program.maps(), &order(Order::DropRate)).unwrap();
    assert_eq!(first.sources.len(), MOST);
    assert!(first.sources.iter().all(|it| it.rates.is_none()));
    // The source with the fewest drops so far now has the most, and a new source comes next.
    send(&mut program, [192, 0, 2, 49], 600);
    send(&mut program, [203, 0, 113, 1], 45);
    thread::sleep(Duration::from_millis(20));
    let then = survey.look(program.maps(), &order(Order::DropRate)).unwrap();
    assert_eq!(names(&then)[..2], ["192.0.2.49", "203.0.113.1"]);
    let rates = |place: usize| then.sources[place].rates.unwrap();
    // A rate is over the time between two readings of a source, which is at least the time between the two
    // looks.
    for (place, most) in [(0, [0.0, 600.0]), (1, [5.0, 40.0])] {
        for (rate, most) in rates(place).into_iter().zip(most) {
            assert!(rate <= most / 0.02 && (rate > 0.0) == (most > 0.0), "{rate} of {most}");
        }
    }
    assert!(then.sources.len() > 2);
    assert!(then.sources[2..].iter().all(|it| it.rates == Some([0.0; 2])));

    // A look that comes too soon keeps the previous rates.
    send(&mut program, [192, 0, 2, 48], 1_000);
    let soon = Search { apart: Duration::from_secs(3_600), ..order(Order::DropRate) };
    let soon = survey.look(program.maps(), &soon).unwrap();
    assert_eq!(names(&soon)[..2], ["192.0.2.49", "203.0.113.1"]);
    assert_eq!(soon.sources[0].rates, then.sources[0].rates);
}

#[test]
fn each_order_has_its_first() {
    let mut program = program(&Policy::default());
    let mut survey = Survey::default();
    send(&mut program, [192, 0, 2, 9], 300);
    let long = Frame::udp([203, 0, 113, 9], TO, 1, 2).payload(1_400).build();
    program.run_many(&long, 100).unwrap();
    send(&mut program, [192, 0, 2, 200], 1);
    let mut first = |program: &TestProgram, order| {
        names(&survey.look(program.maps(), &search(order, None)).unwrap()).remove(0)
    };
    assert_eq!(first(&program, Order::Packets), "192.0.2.9");
    assert_eq!(first(&program, Order::Bytes), "203.0.113.9");
    assert_eq!(first(&program, Order::Address), "192.0.2.9");
    thread::sleep(Duration::from_millis(20));
    send(&mut program, [192, 0, 2, 200], 50);
    assert_eq!(first(&program, Order::PassRate), "192.0.2.200");
}
