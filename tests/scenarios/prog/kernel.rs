//! What differs between kernels: the verifier, clocks and ticks, timers, map types, CPUs that run at the same
//! time, packets in several pieces, and when programs are freed. Each program is loaded once; the one for
//! plain packets also in virtual time.
//!
//! `cargo xtask vm` runs this module on other kernels. All other tests of the program concern arithmetic,
//! which is the same on every kernel that loads it.

use std::{
    fs,
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use aya::programs::ProgramInfo;
use caps::{CapSet, Capability};
use limiter_common::{
    abi::layout::program as name, algorithm::rate::SECOND, base::address::Address,
    packet::reason::Reason, policy::limit::INLINE,
};
use limiter_tests::{
    packet::{Frame, SYN},
    program::{Clock, LONGEST, SMALL, Sizes, TestProgram, Verdict, effects, pin_to_cpu, two_cpus},
    sandbox::{BPFFS, Namespace, Sandbox},
};
use limiter_userspace::{
    datapath::{bpffs::Pins, instance::Instance, program::Program, pushes::Pushed},
    error::Error,
    policy::{
        Builtin, Policy,
        model::{Allowance, Count, KeyPart, Limit},
    },
};

use super::{
    NOW, counted,
    cpus::meet,
    define::{limit, policy_of},
    lists::entry,
    part, per_second, policy,
    swap::swap_under_load,
    tokens, udp,
};

/// The most instructions that a kernel may process to verify a program. Kernels give up at 1,000,000. The number
/// differs by some percent between releases.
const BUDGET: u32 = 150_000;

/// Seconds that two refusals may take on a busy machine. A verification takes about a second. One with a log
/// of each instruction, repeated for each size of the buffer, takes minutes.
const LONGEST_REFUSAL: u64 = 120;

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 1];

fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim().to_owned()
}

/// Loads a variant of the program and checks the kernel's description of it.
pub(super) fn load(frags: bool, clock: Clock) -> TestProgram {
    let start = Instant::now();
    let (name, loaded) = if frags {
        (name::FRAGS, TestProgram::with_frags(SMALL, &Policy::default(), clock))
    } else {
        (name::LINEAR, TestProgram::fresh(SMALL, &Policy::default(), clock))
    };
    check_loaded(name, clock, loaded.unwrap(), start, BUDGET)
}

/// Checks what the kernel says of a program that began to be loaded at `start`, for which so many instructions may be verified.
pub(super) fn check_loaded(
    name: &str,
    clock: Clock,
    mut program: TestProgram,
    start: Instant,
    budget: u32,
) -> TestProgram {
    let took = start.elapsed();
    let info = program.info().unwrap();
    let (verified, release) = (info.verified_instruction_count().unwrap(), release());
    println!(
        "Linux {release}, {name}, {clock:?}: {verified} instructions verified, {} bytes of code, loaded in {} ms",
        info.size_jitted(),
        took.as_millis()
    );
    print_effects(&format!("{name}, {clock:?}"), &info);
    // The kernel keeps 15 bytes of a name.
    assert!(name.starts_with(info.name_as_str().unwrap()), "{info:?}");
    assert_eq!(info.gpl_compatible(), Some(true));
    assert!(
        verified <= budget,
        "Linux {release}: {name} takes {verified} instructions of {budget}"
    );
    program
}

/// Prints what the functions of a program do. `cargo xtask vm` compares them between kernels.
fn print_effects(name: &str, program: &ProgramInfo) {
    let functions = effects::of(program).unwrap();
    let numbers: Vec<String> = functions.iter().map(|number| format!("{number:x}")).collect();
    println!("effects of {name}: {}", numbers.join(" "));
}

/// Ticks, and maps that change under load, in real time.
#[test]
fn the_program_that_goes_by_the_clock() {
    let mut program = load(false, Clock::Monotonic);
    let cpu = two_cpus().unwrap()[0];
    change_under_load(&mut program);

    pin_to_cpu(cpu).unwrap();
    // So many tokens are left that the bucket is charged by jiffy time.
    program.apply(&policy(&[(Builtin::Source, per_second(1_000_000, 1_000_000))])).unwrap();
    assert_eq!(program.run_many(&udp(A), 10_000).unwrap(), 10_000);

    program.forget().unwrap();
    program.apply(&policy(&[(Builtin::Source, per_second(100, 10))])).unwrap();
    for _ in 0..3 {
        // Spends all tokens; the next one is refilled within 10 ms.
        let is_over = (0..10_000).any(|_| program.run(&udp(A)).unwrap() == Verdict::Drop);
        assert!(is_over, "the source is not limited");
        thread::sleep(Duration::from_millis(50));
        assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Pass, "the source rested");
    }
    program.check_accounts().unwrap();
    program.close().unwrap();
}

/// Where no source has limits beside its entry, the program has no code for them. A source owes each limit what it owed when
/// there is room for more limits, and when there is no more.
#[test]
fn the_programs_without_further_limits() {
    let of = |count: u32| {
        let named = |at: u32| {
            let rate = tokens((9 - at).into());
            limit(&format!("limit-{at}"), &[KeyPart::Source], rate)
        };
        policy_of((0..count).map(named))
    };
    let [short, long] = [false, true].map(|further| Sizes { further, ..SMALL });
    for frags in [false, true] {
        let start = Instant::now();
        let loaded = match frags {
            true => TestProgram::with_frags(short, &of(2), Clock::Monotonic),
            false => TestProgram::fresh(short, &of(2), Clock::Monotonic),
        };
        let name = if frags { name::FRAGS } else { name::LINEAR };
        check_loaded(name, Clock::Monotonic, loaded.unwrap(), start, BUDGET).close().unwrap();
    }
    for (count, sizes) in [(2, &[short, long, short][..]), (8, &[long, long])] {
        let mut program = TestProgram::fresh(sizes[0], &of(count), Clock::Test).unwrap();
        program.at(NOW).unwrap();
        let most = u64::from(9 - (count - 1));
        assert_eq!(program.run_many(&udp(A), 9).unwrap(), most, "{count}");
        let before = program.whole_source(&Address::v4(A)).unwrap().unwrap();
        let owing = before.words().iter().filter(|word| **word != 0).count();
        assert_eq!(owing, count as usize, "{before:?}");
        for sizes in &sizes[1..] {
            let exchanged = program.resize(sizes).unwrap();
            assert_eq!((exchanged.sources, exchanged.lost), (1, 0));
            let after = program.whole_source(&Address::v4(A)).unwrap().unwrap();
            for place in 0..INLINE {
                assert_eq!(after.limit(place), before.limit(place), "{count} limits, {place}");
            }
            assert_eq!(program.run_many(&udp(A), 1).unwrap(), 0);
        }
        program.check_accounts().unwrap();
        program.close().unwrap();
    }
}

/// A policy that there is no room for is refused, and the one in force stays.
#[test]
fn a_policy_that_needs_more_room_is_refused() {
    let limits = [("a", 5), ("b", 7), ("c", 3)];
    let of = |count: usize| {
        policy_of(
            limits[..count]
                .iter()
                .map(|(name, burst)| limit(name, &[KeyPart::Source], tokens(*burst))),
        )
    };
    let sizes = Sizes { further: false, buckets_made: false, ..SMALL };
    let mut program = TestProgram::fresh(sizes, &of(2), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let mut apply = |policy| program.apply(&policy).unwrap_err().to_string();
    let refused = apply(of(3));
    assert!(refused.ends_with("for more than 2 limits with the key `source`"), "{refused}");
    let keyed = limit("d", &[KeyPart::Source, KeyPart::Destination], tokens(2));
    let refused = apply(policy_of(of(3).limits.into_iter().chain([keyed])));
    assert!(refused.ends_with("`source`; for buckets of other keys than `all`"), "{refused}");
    assert_eq!(program.run_many(&udp(A), 9).unwrap(), 5);
    // A limit that takes the place of another one takes a place that there is.
    program.apply(&policy_of([limit("c", &[KeyPart::Source], tokens(3))])).unwrap();
    assert_eq!(program.run_many(&udp(B), 9).unwrap(), 3);
    program.close().unwrap();
}

/// The programs that carry state over, and one that no interface runs.
#[test]
fn the_programs_that_exchange_a_table() {
    let limits = [
        limit("source", &[KeyPart::Source], tokens(5)),
        limit("destination", &[KeyPart::Destination], tokens(9)),
    ];
    let mut program = TestProgram::fresh(SMALL, &policy_of(limits), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    assert_eq!(program.run_many(&udp(A), 9).unwrap(), 5);
    for frags in [false, true] {
        let look = |program: &ProgramInfo| {
            print_effects(
                &format!("the program that carries, with several pieces: {frags}"),
                program,
            );
            program.verified_instruction_count()
        };
        let verified = program.on_carrying(frags, look).unwrap().unwrap();
        println!("Linux {}, carrying: {verified} instructions verified", release());
        assert!(verified <= BUDGET, "{verified} instructions of {BUDGET}");
    }
    let exchanged = program.resize(&Sizes { sources: 1 << 12, ..SMALL }).unwrap();
    assert_eq!((exchanged.sources, exchanged.buckets, exchanged.lost), (1, 1, 0));
    assert_eq!(program.run_many(&udp(A), 9).unwrap(), 0);
    program.close().unwrap();
}

/// The program that pushes blocks, which takes the locks that packets take.
#[test]
fn the_program_that_pushes_blocks() {
    let mut program = TestProgram::fresh(SMALL, &policy(&[]), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Pass);
    let mut pusher = program.pusher().unwrap();
    let address = IpAddr::from(A);
    for _ in 0..2 {
        assert_eq!(pusher.push(address, NOW + 1_000_000_000).unwrap(), Pushed::Blocked);
        assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Drop);
        assert!(pusher.lift(address).unwrap());
        assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Pass);
    }
    drop(pusher);
    program.close().unwrap();
}

/// Two policies deny one of two sources each. They are exchanged while two CPUs send packets of both.
fn change_under_load(program: &mut TestProgram) {
    let sources = [[10, 0, 0, 2], [10, 0, 0, 3]];
    let policies = sources.map(|[a, b, c, d]| {
        let mut policy = policy(&[]);
        policy.deny.push(entry(&format!("{a}.{b}.{c}.{d}/32"), None));
        policy
    });
    program.apply(&policies[0]).unwrap();
    let before = program.counters().unwrap();
    let frames = sources.map(udp);
    swap_under_load(program, &frames, 20, &policies, part(1_000) as usize);
    let after = program.counters().unwrap();
    let packets = |reason: Reason| {
        after.reasons[reason.index()].packets - before.reasons[reason.index()].packets
    };
    let all: u64 = Reason::ALL.iter().map(|reason| packets(*reason)).sum();
    let [denied, passed, undecided] =
        [Reason::Deny, Reason::Conform, Reason::Contended].map(packets);
    println!("of {all} packets, {denied} denied, {passed} passed, {undecided} undecided");
    assert_eq!(denied + passed + undecided, all);
    assert!(denied > 0 && passed > 0);
}

/// Map types, the ring buffer, and two CPUs that exchange words and insert entries at the same moment.
#[test]
fn the_program_in_virtual_time() {
    let mut program = load(false, Clock::Test);
    program.at(NOW).unwrap();
    longest_prefixes(&mut program);
    two_cpus_meet(&mut program);
    keys(&mut program);
    program.check_accounts().unwrap();
    program.close().unwrap();
}

fn longest_prefixes(program: &mut TestProgram) {
    let mut policy = policy(&[]);
    policy.deny.push(entry("10.1.0.0/16", None));
    policy.deny.push(entry("2001:db8:1::/48", None));
    policy.allow.push(entry("10.1.2.0/24", None));
    program.apply(&policy).unwrap();
    for (source, reason) in
        [([10, 1, 9, 9], Reason::Deny), ([10, 1, 2, 3], Reason::Allow), (A, Reason::Conform)]
    {
        let before = counted(program, reason);
        let verdict = if reason == Reason::Deny { Verdict::Drop } else { Verdict::Pass };
        assert_eq!(program.run(&udp(source)).unwrap(), verdict, "{source:?}");
        assert_eq!(counted(program, reason), before + 1, "{source:?}");
    }
    let source = [0x2001, 0xdb8, 1, 0, 0, 0, 0, 1];
    assert_eq!(program.run(&udp(source)).unwrap(), Verdict::Drop);
}

/// Each source has a token for one of two packets, and exceeds its limit once.
fn two_cpus_meet(program: &mut TestProgram) {
    let sources = part(3_000) as u32;
    let source = |number: u32| (0x0a40_0000 + number).to_be_bytes();
    program.forget().unwrap();
    program.apply(&policy(&[(Builtin::Source, tokens(1))])).unwrap();
    let before = program.passed().unwrap();
    meet(program, sources, |number| udp(source(number)));
    // If both packets were dropped as contended, the token is still there. The second packet here is refused
    // in any case.
    for number in 0..sources {
        program.run_many(&udp(source(number)), 2).unwrap();
    }
    assert_eq!(program.passed().unwrap() - before, u64::from(sources));
    let event_stats = program.maps().event_stats().unwrap();
    assert_eq!(event_stats.happened, [u64::from(sources), 0, 0]);
    let told = program.notices().unwrap().len() as u64;
    assert!(told > 0);
    assert_eq!(told + event_stats.suppressed[0], u64::from(sources));
}

/// State outside the entry of the source: buckets by 5-tuple, and lists of open connections.
fn keys(program: &mut TestProgram) {
    let syn = |port: u16| Frame::tcp(A, B, port, 443, SYN).build();
    program.forget().unwrap();
    program.apply(&policy_of([limit("each", &[KeyPart::Connection], tokens(2))])).unwrap();
    for port in 0..50 {
        let frame = Frame::udp(A, B, port, 53).build();
        assert_eq!(program.run_many(&frame, 5).unwrap(), 2, "port {port}");
    }
    assert_eq!(program.buckets().unwrap().len(), 50);

    for most in [1, 3, 128] {
        let allowance = Allowance::Concurrent { limit: most, idle: 60 * SECOND };
        let name = format!("open-{most}");
        let open = limit(&name, &[KeyPart::Source], allowance);
        program.apply(&policy_of([Limit { count: Count::Connections, ..open }])).unwrap();
        program.forget().unwrap();
        let passed = (0..200).filter(|port| program.run(&syn(*port)).unwrap() == Verdict::Pass);
        assert_eq!(passed.count() as u64, most);
        assert_eq!(program.run(&syn(0)).unwrap(), Verdict::Pass, "the first one has its place");
    }
}

#[test]
fn the_program_for_packets_in_several_pieces_that_goes_by_the_clock() {
    let mut program = load(true, Clock::Monotonic);
    pieces(&mut program);
    program.close().unwrap();
}

/// Bytes beyond the first piece are payload, and they are counted.
pub(super) fn pieces(program: &mut TestProgram) {
    for payload in [18, LONGEST - 41, 8_958, 60_000] {
        let frame = Frame::udp(A, B, 5_000, 53).payload(payload).build();
        let before = program.counters().unwrap().reasons[Reason::Conform.index()];
        assert_eq!(program.run(&frame).unwrap(), Verdict::Pass, "{payload} bytes");
        let after = program.counters().unwrap().reasons[Reason::Conform.index()];
        let more = (after.packets - before.packets, after.bytes - before.bytes);
        assert_eq!(more, (1, frame.len() as u64), "{payload} bytes");
    }
    program.check_accounts().unwrap();
}

/// The verifier refuses both main programs to a thread without CAP_PERFMON, because they subtract pointers. It takes the
/// dispatchers.
#[test]
fn a_refusal_is_told_soon_with_the_kernel_and_the_cause() {
    let (sandbox, namespace) = (Sandbox::new().unwrap(), Namespace::new().unwrap());
    let pins = Pins::new(format!("{BPFFS}/limiter"));
    let capabilities = [Capability::CAP_PERFMON, Capability::CAP_SYS_ADMIN];
    let load = || {
        let instance = Instance::open_or_create(&pins, &SMALL, &Policy::default(), None).unwrap();
        for capability in capabilities {
            caps::drop(None, CapSet::Effective, capability).unwrap();
        }
        let start = Instant::now();
        let errors = [false, true]
            .map(|frags| Program::load(&pins, frags, Clock::Monotonic).map(drop).unwrap_err());
        let took = start.elapsed();
        for frags in [false, true] {
            let info = Program::load_dispatcher(&pins, 3, frags).unwrap().xdp().unwrap().info();
            let verified = info.unwrap().verified_instruction_count();
            println!("Linux {}, dispatcher: {verified:?} instructions verified", release());
        }
        for capability in capabilities {
            caps::raise(None, CapSet::Effective, capability).unwrap();
        }
        instance.close().unwrap();
        (errors, took)
    };
    let (errors, took) = sandbox.inside(&namespace, load).unwrap();
    for error in errors {
        let said = error.to_string();
        println!("{said}");
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        let start = format!("this kernel ({}) refuses the program limiter", release());
        assert!(said.starts_with(&start), "{said}");
        // The message says how far the verifier came, without a line for each instruction.
        assert!(said.contains("processed ") && said.lines().count() <= 8, "{said}");
        let is_instruction =
            |line: &str| line.split_once(": (").is_some_and(|(at, _)| at.parse::<u32>().is_ok());
        assert!(!said.lines().any(is_instruction), "a log of each instruction takes long: {said}");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("boot another kernel")));
    }
    assert!(took.as_secs() < LONGEST_REFUSAL, "{took:?}");
}
