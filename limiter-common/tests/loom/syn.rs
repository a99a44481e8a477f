//! CPUs with SYNs of connections whose records share a place.

use limiter_common::{
    base::word::Word as _,
    memory::handshake::{Handshake, Record},
};
use loom::{sync::Arc, thread};

use super::{NOW, Plain, check};

/// The limits that the SYNs of two connections were charged to.
const CHARGED: [u64; 2] = [0b01, 0b10];

/// The record of a connection whose SYN came at [`NOW`].
fn handshake(connection: u64) -> Handshake {
    Handshake::new((connection + 1) << 40, 1, NOW)
}

fn record_of(connection: u64) -> Arc<Record<Plain>> {
    let handshake = Plain::new(handshake(connection).0);
    Arc::new(Record { handshake, charged: Plain::new(CHARGED[connection as usize]) })
}

/// The first connection gives its record to the second one, of which a SYN comes again at that moment.
#[test]
fn a_repetition_is_charged_as_the_first_syn_of_its_connection() {
    check(3, || {
        let record = record_of(0);
        let repeat = || {
            let record = Arc::clone(&record);
            move || record.repeat(NOW + Handshake::STEP)
        };
        let other = thread::spawn(repeat());
        record.write(handshake(1), CHARGED[1]);
        if let Some((seen, charged)) = other.join().unwrap() {
            // The record of the first connection may be found with what the second was charged to.
            assert!(seen != handshake(1) || charged == CHARGED[1], "{charged}");
        }
        let repeated = record.repeat(NOW + 3 * Handshake::STEP);
        // A repetition of the first connection that is used up at that moment does not bring its record back.
        assert!(repeated.is_some_and(|(_, charged)| charged == CHARGED[1]));
    });
}

/// Each repetition is used up once.
#[test]
fn of_several_repetitions_at_once_one_is_used_up() {
    check(3, || {
        let record = record_of(0);
        let others = [0, 1].map(|_| {
            let record = Arc::clone(&record);
            thread::spawn(move || record.repeat(NOW + Handshake::STEP))
        });
        let mut found = vec![record.repeat(NOW + Handshake::STEP)];
        found.extend(others.into_iter().map(|other| other.join().unwrap()));
        let found: Vec<_> = found.into_iter().flatten().collect();
        assert_eq!(found, [(handshake(0), CHARGED[0])]);
        assert_eq!(record.handshake.load(), handshake(0).0 + 1);
    });
}
