use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixListener,
    sync::Arc,
    thread,
};

use super::{
    super::{http::NOBODY, kernel::Kernel},
    value::{Reader, Value, write_counted, write_integer, write_number, write_text},
    *,
};

/// A frame of HAProxy, with its length.
fn frame(kind: u8, id: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind, 0, 0, 0, 1];
    write_integer(&mut frame, id);
    write_integer(&mut frame, 1);
    frame.extend_from_slice(payload);
    [&(frame.len() as u32).to_be_bytes(), &*frame].concat()
}

fn hello(versions: &str, size: u32, is_check: bool) -> Vec<u8> {
    let mut payload = Vec::new();
    write_counted(&mut payload, b"supported-versions");
    write_text(&mut payload, versions);
    write_counted(&mut payload, b"max-frame-size");
    write_number(&mut payload, size);
    write_counted(&mut payload, b"healthcheck");
    payload.push(if is_check { 0x11 } else { 1 });
    frame(1, 0, &payload)
}

/// A question about a request of a source with a header.
fn notify(id: u64, source: [u8; 4], target: &str, header: [&str; 2]) -> Vec<u8> {
    let mut headers = Vec::new();
    for text in header.into_iter().chain(["", ""]) {
        write_counted(&mut headers, text.as_bytes());
    }
    let mut payload = Vec::new();
    write_counted(&mut payload, b"limiter-request");
    payload.push(4);
    write_counted(&mut payload, b"source");
    payload.push(6);
    payload.extend_from_slice(&source);
    write_counted(&mut payload, b"method");
    write_text(&mut payload, "POST");
    write_counted(&mut payload, b"target");
    write_text(&mut payload, target);
    write_counted(&mut payload, b"headers");
    payload.push(9);
    write_counted(&mut payload, &headers);
    frame(3, id, &payload)
}

fn service() -> Arc<Service> {
    Service::of(LIMITS, Kernel::new(NOBODY.as_ref()))
}

const LIMITS: &str = "version: 1
attributes: { user: { header: x-user }, route: { path: { /login: login } } }
limits:
  - { name: login, on: requests, key: user, rate: 1/h, algorithm: leaky_bucket, depth: 1, match: { route: login } }
";

type Told = (u8, u64, Vec<(String, String)>);

/// The frames of a bridge: the type, the stream, and its variables or fields.
fn told(mut answers: &[u8]) -> Vec<Told> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = answers.split_first_chunk::<4>() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        answers = rest;
        let mut reader = Reader(frame);
        let kind = reader.byte().unwrap();
        assert_eq!(reader.array(), Ok([0, 0, 0, 1]));
        let stream = reader.integer().unwrap();
        reader.integer().unwrap();
        let mut values = Vec::new();
        while !reader.is_empty() {
            if kind == 103 {
                assert_eq!(reader.array(), Ok([1, 3, 2]));
            }
            let name = reader.name().unwrap().to_owned();
            let value = match reader.value().unwrap() {
                Value::Integer(number) => number.to_string(),
                value => value.text().unwrap().to_owned(),
            };
            values.push((name, value));
        }
        frames.push((kind, stream, values));
    }
    frames
}

/// What a conversation with this user waits for.
fn take(
    conversation: &mut Conversation,
    service: &Arc<Service>,
    user: u32,
    answers: &mut Vec<u8>,
) -> Result<Next, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(conversation.take(service, Peer::User(user), answers))
}

#[test]
fn questions_are_answered_however_their_bytes_come() {
    let mut bytes = hello("1.0, 2.0", 16_380, false);
    bytes.extend(notify(5, [192, 0, 2, 1], "/login?a=b", ["x-user", "ann"]));
    bytes.extend(notify(6, [192, 0, 2, 2], "/login", ["x-user", "ann"]));
    bytes.extend(notify(7, [192, 0, 2, 2], "/../login", ["x-user", "ann"]));
    bytes.extend(notify(8, [192, 0, 2, 2], "/other", ["x-user", "ann"]));
    for step in [1, 7, bytes.len()] {
        let service = service();
        let mut conversation = Conversation::default();
        let mut answers = Vec::new();
        for part in bytes.chunks(step) {
            conversation.received.extend_from_slice(part);
            let next = take(&mut conversation, &service, 7, &mut answers);
            assert_eq!(next, Ok(Next::Frame));
        }
        assert!(conversation.is_silent());
        let frames = told(&answers);
        let of = |place: usize, name: &str| {
            let (_, _, values) = &frames[place];
            values.iter().find(|(own, _)| own == name).map(|(_, value)| &**value)
        };
        assert_eq!(
            frames.iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(),
            [(101, 0), (103, 5), (103, 6), (103, 7), (103, 8)]
        );
        assert_eq!((of(0, "version"), of(0, "max-frame-size")), (Some("2.0"), Some("16380")));
        assert_eq!(
            (of(1, "status"), of(1, "ratelimit")),
            (Some("204"), Some("\"login\";r=0;t=3600"))
        );
        assert_eq!((of(2, "status"), of(2, "limit")), (Some("429"), Some("login")));
        assert!(of(2, "body").unwrap().contains("violated-policies"), "{frames:?}");
        assert!(of(2, "retry_after").unwrap().parse::<u32>().unwrap() >= 3_599);
        assert_eq!(of(3, "status"), Some("400"), "a path that services understand differently");
        assert_eq!(frames[4].2, [("status".to_owned(), "204".to_owned())]);
    }
}

#[test]
fn a_header_that_http_does_not_allow_hides_nothing() {
    let service = service();
    for header in [["x-user", "ann\x01"], ["x user", "ann"], ["cookie", "user=ann; a=\x7f"]] {
        let received = [hello("2.0", 16_380, false), notify(1, [192, 0, 2, 1], "/login", header)];
        let mut conversation =
            Conversation { received: received.concat(), ..Conversation::default() };
        let mut answers = Vec::new();
        take(&mut conversation, &service, 7, &mut answers).unwrap();
        let frames = told(&answers);
        assert_eq!(frames[1].2, [("status".to_owned(), "400".to_owned())], "{header:?}");
    }
}

#[test]
fn a_check_and_a_disconnect_end_the_conversation() {
    let service = service();
    let mut answers = Vec::new();
    for bytes in [hello("2.0", 16_380, true), frame(2, 0, &[])] {
        let mut conversation = Conversation { received: bytes, ..Conversation::default() };
        let next = take(&mut conversation, &service, 7, &mut answers);
        assert_eq!(next, Ok(Next::End));
    }
    assert_eq!(told(&answers).len(), 1);
}

#[test]
fn what_is_no_conversation_ends_with_the_reason() {
    let service = service();
    let question = notify(1, [192, 0, 2, 1], "/login", ["x-user", "ann"]);
    let mut fragment = question.clone();
    fragment[8] = 0;
    for (bytes, peer, fault) in [
        (hello("1.0", 16_380, false), 7, Fault::OTHER_VERSION),
        (hello("2.0", 100, false), 7, Fault::BAD_SIZE),
        (hello("2.0", 16_380, false), 9, Fault::UNTRUSTED),
        (hello("2.0", 16_380, true), 9, Fault::UNTRUSTED),
        (question.clone(), 7, Fault::INVALID),
        (frame(1, 0, &[]), 7, Fault::NO_VERSION),
        ([hello("2.0", 16_380, false), hello("2.0", 16_380, false)].concat(), 7, Fault::INVALID),
        ([hello("2.0", 16_380, false), fragment].concat(), 7, Fault::FRAGMENTED),
        ([hello("2.0", 256, false), vec![0, 0, 1, 1]].concat(), 7, Fault::TOO_LARGE),
        (vec![0xff; 4], 7, Fault::TOO_LARGE),
        (vec![0, 0, 0, 0], 7, Fault::INVALID),
        (frame(103, 0, &[]), 7, Fault::INVALID),
    ] {
        let mut conversation = Conversation { received: bytes, ..Conversation::default() };
        let next = take(&mut conversation, &service, peer, &mut Vec::new());
        assert_eq!(next, Err(fault));
    }
    let (mut answers, fault) = (Vec::new(), Fault::OTHER_VERSION);
    write_disconnect(&mut answers, fault);
    let [(kind, _, values)] = &told(&answers)[..] else { panic!("{answers:?}") };
    assert_eq!((*kind, &*values[0].1, &*values[1].1), (102, "8", fault.message));
}

#[test]
fn a_question_that_is_cut_or_changed_anywhere_is_no_panic() {
    let service = service();
    let question = notify(1, [192, 0, 2, 1], "/login", ["x-user", "ann"]);
    let ask = |payload: &[u8]| {
        let mut bytes = hello("2.0", 16_380, false);
        bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        bytes.extend_from_slice(payload);
        let mut conversation = Conversation { received: bytes, ..Conversation::default() };
        let _: Result<_, _> = take(&mut conversation, &service, 7, &mut Vec::new());
    };
    let payload = &question[4..];
    for at in 0..payload.len() {
        ask(&payload[..at]);
        for byte in [0, 1, 0x7f, 0xf0, 0xff] {
            let mut changed = payload.to_vec();
            changed[at] = byte;
            ask(&changed);
        }
    }
}

/// HAProxy takes answers in any order, and one about whose source the agent is late keeps none of the others back.
#[test]
fn a_question_that_waits_for_the_agent_keeps_none_of_the_others_back() {
    let limits = "version: 1
limits:
  - { name: web, key: source, rate: 1/s, burst: 1, requests: enforce }
";
    let path = std::env::temp_dir().join(format!("limiter-spop-{}.sock", std::process::id()));
    let _: io::Result<()> = std::fs::remove_file(&path);
    let agent = UnixListener::bind(&path).unwrap();
    let (late, is_late) = std::sync::mpsc::channel::<()>();
    let agent = thread::spawn(move || {
        let mut waiting = None;
        for mut stream in agent.incoming().map_while(Result::ok).take(2) {
            let mut bytes = [0; 4_096];
            let read = stream.read(&mut bytes).unwrap_or(0);
            if String::from_utf8_lossy(&bytes[..read]).contains("/192.0.2.1 ") {
                waiting = Some(stream);
                continue;
            }
            let _: io::Result<()> =
                stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        }
        let _: Result<(), _> = is_late.recv();
        let mut stream = waiting.unwrap();
        let _: io::Result<()> =
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    });
    let service = Service::of(limits, Kernel::patient(&path));
    let received = [
        hello("2.0", 16_380, false),
        notify(5, [192, 0, 2, 1], "/", ["x-user", "ann"]),
        notify(6, [192, 0, 2, 2], "/", ["x-user", "ann"]),
    ];
    let mut conversation = Conversation { received: received.concat(), ..Conversation::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut answers = Vec::new();
        conversation.take(&service, Peer::User(7), &mut answers).await.unwrap();
        assert_eq!(told(&answers).len(), 1, "the hello alone");
        for (stream, is_last) in [(6, false), (5, true)] {
            let answer = conversation.asking.join_next().await.unwrap().unwrap();
            let frames = told(&answer.0);
            assert_eq!(frames, [(103, stream, vec![("status".to_owned(), "204".to_owned())])]);
            if !is_last {
                late.send(()).unwrap();
            }
        }
        assert!(conversation.asking.is_empty());
    });
    agent.join().unwrap();
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn answers_out_of_order_are_offered_to_those_who_take_them() {
    for (capabilities, offered) in [("pipelining,async", "pipelining"), ("async", ""), ("", "")] {
        let mut bytes = hello("2.0", 16_380, false);
        write_counted(&mut bytes, b"capabilities");
        write_text(&mut bytes, capabilities);
        let length = (bytes.len() - LENGTH) as u32;
        bytes[..LENGTH].copy_from_slice(&length.to_be_bytes());
        let mut conversation = Conversation { received: bytes, ..Conversation::default() };
        let mut answers = Vec::new();
        take(&mut conversation, &service(), 7, &mut answers).unwrap();
        let (_, _, values) = &told(&answers)[0];
        assert_eq!(values[2], ("capabilities".to_owned(), offered.to_owned()));
    }
}
