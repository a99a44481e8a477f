//! Packets of one source that are over a limit on several CPUs.

use limiter_common::{
    algorithm::binding::Binding,
    base::word::Word,
    policy::penalty::{Block, Offence, Penalty},
};
use loom::{sync::Arc, thread};

use super::{NOW, Plain, check};

const PENALTY: Penalty =
    Penalty { after: 1_000, block: 10_000, most: 40_000, backoff: 2, limit: 1, unproven: 0 };

fn offence(began: u64, blocked: u64, blocks: u64) -> Arc<Offence<Plain>> {
    let since = blocked.saturating_sub(PENALTY.block);
    let [began, last, since, blocked, blocks] =
        [began, NOW - 1, since, blocked, blocks].map(Plain::new);
    Arc::new(Offence { began, last, since, blocked, blocks })
}

/// So many CPUs find a source over the limit at once; what is known of it then: when it began, until
/// when it is blocked, and how often it was.
fn exceed(offence: &Arc<Offence<Plain>>, cpus: usize) -> [u64; 3] {
    let send = || {
        let offence = Arc::clone(offence);
        move || {
            let _: u64 = PENALTY.exceed(&offence, NOW);
        }
    };
    let others: Vec<_> = (1..cpus).map(|_| thread::spawn(send())).collect();
    send()();
    for other in others {
        other.join().unwrap();
    }
    assert_eq!(offence.last.load(), NOW);
    [&offence.began, &offence.blocked, &offence.blocks].map(Word::load)
}

fn one_blocks(cpus: usize) {
    check(3, move || {
        let [began, blocked, blocks] = exceed(&offence(NOW - PENALTY.after, 0, 0), cpus);
        // Who comes after the block was made begins anew.
        assert!(began == 0 || began == NOW, "{began}");
        assert_eq!((blocked, blocks), (NOW + PENALTY.block, 1));
    });
}

#[test]
fn of_two_cpus_one_blocks() {
    one_blocks(2);
}

#[test]
fn of_three_cpus_one_blocks() {
    one_blocks(3);
}

#[test]
fn the_next_block_is_longer_by_one_step() {
    check(3, || {
        let before = offence(NOW - PENALTY.after, NOW - 5, 1);
        let [_, blocked, blocks] = exceed(&before, 3);
        assert_eq!((blocked, blocks), (NOW + 2 * PENALTY.block, 2));
    });
}

#[test]
fn nobody_is_blocked_before_the_time() {
    check(2, || {
        let began = NOW - PENALTY.after + 1;
        assert_eq!(exceed(&offence(began, 0, 0), 3), [began, 0, 0]);
        assert_eq!(exceed(&offence(0, 0, 0), 3), [NOW, 0, 0]);
    });
}

/// A block that was cut is followed by a short one: nobody ever reads one until the old end.
#[test]
fn a_cut_block_is_never_seen_to_be_longer() {
    let known = |offence: &Offence<Plain>| {
        let since = offence.since.load_acquire();
        PENALTY.until(since, offence.blocked.load())
    };
    let refused = |offence: &Offence<Plain>| PENALTY.exceed(offence, NOW);
    read_while_blocked(known, true);
    read_while_blocked(refused, false);
}

/// One CPU blocks the source while another finds out until when that is blocked, and blocks it itself or not.
fn read_while_blocked(read: fn(&Offence<Plain>) -> u64, reads_only: bool) {
    check(3, move || {
        let long = NOW + 10 * PENALTY.most;
        let before = offence(NOW - PENALTY.after, long, 1);
        let since = NOW - 2 * PENALTY.most;
        let _: u64 = before.since.compare_exchange(before.since.load(), since);
        let reader = {
            let offence = Arc::clone(&before);
            thread::spawn(move || read(&offence))
        };
        let end = PENALTY.exceed(&before, NOW);
        let read = reader.join().unwrap();
        let blocked = NOW + 2 * PENALTY.block;
        assert!(end == blocked || !reads_only && end < blocked, "{end}");
        assert!(read <= blocked && end.max(read) == blocked, "{read}");
    });
}

/// One CPU blocks a source while another notes that a proof is awaited: one of both may have to be done again, and neither
/// makes the other undone.
#[test]
fn a_block_and_an_awaited_proof_do_not_undo_each_other() {
    check(3, || {
        let binding = Binding::new(1, 0);
        let word = Arc::new(Plain::new(Block::new(0, binding).0));
        let blocker = {
            let word = Arc::clone(&word);
            thread::spawn(move || Block::extend(&*word, 1 << 20, binding))
        };
        Block::await_proof(&*word, true, binding);
        let has_blocked = blocker.join().unwrap();
        let block = Block(word.load());
        assert_eq!(block.until(binding), if has_blocked { 1 << 20 } else { 0 });
        assert!(block.awaits_proof(binding) || has_blocked);
    });
}

/// A CPU that finds a block to be over forgets no block that another one makes.
#[test]
fn what_is_over_is_forgotten_and_what_is_made_meanwhile_is_not() {
    check(3, || {
        let binding = Binding::new(1, 0);
        let [over, later] = [1 << 19, 1 << 20];
        let word = Arc::new(Plain::new(Block::new(over, binding).0 | Block::AWAITS_PROOF));
        let other = {
            let word = Arc::clone(&word);
            thread::spawn(move || Block::extend(&*word, later, binding))
        };
        Block::forget(&*word, over - 256, binding);
        Block::forget(&*word, over, binding);
        Block::forget(&*word, later, Binding::new(2, 0));
        let until = if other.join().unwrap() { later } else { 0 };
        let block = Block(word.load());
        assert_eq!((block.until(binding), block.awaits_proof(binding)), (until, true));
    });
}

/// Two CPUs block a source while another binds its entry to the next policy.
#[test]
fn no_block_outlives_the_binding_that_it_was_made_under() {
    check(3, || {
        let word = Arc::new(Plain::new(Block::new(0, Binding::new(1, 0)).0));
        let blockers = [1 << 20, 1 << 21].map(|until| {
            let word = Arc::clone(&word);
            thread::spawn(move || Block::extend(&*word, until, Binding::new(1, 0)))
        });
        let bound = Block::new(1 << 19, Binding::new(2, 0)).0;
        word.overwrite(bound);
        for blocker in blockers {
            blocker.join().unwrap();
        }
        assert_eq!(word.load(), bound);
        assert_eq!(Block(word.load()).until(Binding::new(1, 0)), 0);
    });
}
