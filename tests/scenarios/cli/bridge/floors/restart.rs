//! What a bridge leaves to the next one, however it ended.

use limiter_tests::process::terminate;

use super::*;

#[test]
fn a_bridge_that_ended_in_order_leaves_the_backoff() {
    let mut floors = floors();
    let _agent = floors.agent();
    let _proxy = Proxy::start(&floors.bench, &floors.document, "nginx");
    block(&floors, 6);
    assert!(terminate(&mut floors.bridge.process).unwrap().success());
    floors.bridge = Floors::bridge(&floors.bench, &floors.document);
    block(&floors, 60);
}

#[test]
fn a_bridge_that_was_killed_leaves_the_backoff() {
    let mut floors = floors();
    let _agent = floors.agent();
    let _proxy = Proxy::start(&floors.bench, &floors.document, "nginx");
    block(&floors, 6);
    wait_for_handover(&Floors::state(&floors.document), |kept| {
        kept["offences"][0]["offence"][4] == 1
    });
    kill(&mut floors.bridge.process);
    floors.bridge = Floors::bridge(&floors.bench, &floors.document);
    block(&floors, 60);
}

fn floors() -> Floors {
    Floors::new(&PENALTY.replace("block: 1m", "block: 6s, backoff: 10, max: 1h"))
}

/// Has a client blocked, which has to be for so many seconds, once the block before is over.
#[track_caller]
fn block(floors: &Floors, seconds: u32) {
    let begin = Instant::now();
    while floors.login(3, "").is_none() {
        assert!(begin.elapsed() < PATIENCE, "the block before does not end");
    }
    floors.go_on(3, "");
    let event = floors.event("pushed", Some("198.18.0.3"));
    // From when it was refused last, until it was pushed.
    let told = event["seconds"].as_f64().unwrap();
    assert!((told - f64::from(seconds)).abs() <= 1.0, "{event}");
}
