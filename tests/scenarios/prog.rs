//! Runs the BPF program in the kernel on frames built by the tests, mostly in virtual time.

mod accuracy;
mod algorithms;
mod amended;
mod bridge;
mod buckets;
mod carry;
mod change;
mod clock;
mod connections;
mod contended;
mod control;
mod cpus;
mod define;
mod differential;
mod drops;
mod exact;
mod fragments;
mod frames;
mod inquiry;
mod kernel;
mod key;
mod keys;
mod leased;
mod leased_keys;
mod lifecycle;
mod limits;
mod link;
mod lists;
mod matching;
#[cfg(feature = "datapath-log")]
mod messages;
mod modes;
#[path = "parser/mutation.rs"]
mod mutation;
mod naive;
mod near;
mod newcomers;
mod notices;
mod object;
mod older;
mod overrides;
mod penalties;
mod plain;
mod proofs;
mod pushes;
mod refused;
mod samples;
mod sent;
mod sets;
mod survey;
mod swap;
mod switch;
mod table;
mod table_room;
mod ticks;
mod together;
mod untracked;
mod wide;

use std::{env, fmt, net::IpAddr, thread};

use limiter_common::{
    abi::{counters::LimitTally, state::Bucket as State},
    algorithm::rate::{Rate, SECOND},
    base::address::Address,
    packet::reason::Reason,
    policy::limit::{BucketKey, Limit},
};
use limiter_tests::{
    packet::{Frame, SYN},
    program::{Clock, SMALL, TestProgram},
    random::{self, Run},
};
use limiter_userspace::policy::{
    self, Bucket, Builtin, Context, Policy, compile, units::prefix::parse_prefix,
};

/// The seed of random runs, unless `LIMITER_TEST_SEED` is set.
const SEED: u64 = 0x7072_6f67_7261_6d31;

/// The environment variable by which the number of random runs and repeated cases is divided; 1 if it is not
/// set.
const DIVISOR_VARIABLE: &str = "LIMITER_TEST_DIVISOR";

/// The environment variable that is set when the tests run in an emulator.
const EMULATED_VARIABLE: &str = "LIMITER_TEST_EMULATED";

/// The start of virtual time: some days after the start of the machine.
const NOW: u64 = 1_000_000 * SECOND;
/// A rate so slow that no token is refilled within a test case.
const NEVER: Rate = Rate { packets: 1, period: 60 * SECOND };

fn seed() -> u64 {
    random::seed(SEED).unwrap()
}

fn divisor() -> u64 {
    env::var(DIVISOR_VARIABLE).map_or(1, |text| text.parse().unwrap())
}

/// The share of `runs` that is done; at least 1.
fn part(runs: u64) -> u64 {
    (runs / divisor()).max(1)
}

/// Whether the case with this number is among those that are run.
fn is_run(case: u64) -> bool {
    case.is_multiple_of(divisor())
}

/// Like [`part`], for runs of which fewer would not show what is asserted: they are reduced only in an
/// emulator.
fn most(runs: u64) -> u64 {
    if is_emulated() { part(runs) } else { runs }
}

fn is_emulated() -> bool {
    env::var_os(EMULATED_VARIABLE).is_some()
}

/// Whether all CPUs run all the time. In an emulator one CPU may be stopped while others wait for it.
fn keeps_time() -> bool {
    !is_emulated()
}

/// Prints its content if the test fails while it is alive.
struct Case<'a>(&'a dyn fmt::Debug);

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{:?}", self.0);
        }
    }
}

fn bucket(rate: Rate, burst: u64) -> Bucket {
    Bucket::new(rate, burst).unwrap()
}

fn per_second(packets: u64, burst: u64) -> Bucket {
    bucket(Rate::per_second(packets), burst)
}

/// A bucket in which no token is refilled while virtual time stands still.
fn tokens(burst: u64) -> Bucket {
    bucket(NEVER, burst)
}

/// A policy with these limits per source.
fn policy(limits: &[(Builtin, Bucket)]) -> Policy {
    let mut policy = Policy::default();
    for (limit, bucket) in limits {
        policy.set_default(*limit, *bucket).unwrap();
    }
    policy
}

fn set_override(policy: &mut Policy, limit: Builtin, prefix: &str, bucket: Bucket) {
    policy.set_override(limit, parse_prefix(prefix).unwrap(), bucket).unwrap();
}

/// Makes a small instance whose clock is at [`NOW`].
fn program(policy: &Policy) -> TestProgram {
    let mut program = TestProgram::new(SMALL, policy, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    program
}

fn destination(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => [198, 51, 100, 1].into(),
        IpAddr::V6(_) => [0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1].into(),
    }
}

/// A UDP datagram from this address; all datagrams of an address belong to one connection.
fn udp(source: impl Into<IpAddr>) -> Vec<u8> {
    let source = source.into();
    Frame::udp(source, destination(source), 5_000, 53).payload(18).build()
}

/// A SYN from this address; all SYNs of an address belong to one connection.
fn syn(source: impl Into<IpAddr>) -> Vec<u8> {
    let source = source.into();
    Frame::tcp(source, destination(source), 40_000, 443, SYN).build()
}

/// The number of frames counted under a reason.
fn counted(program: &TestProgram, reason: Reason) -> u64 {
    program.counters().unwrap().reasons[reason.index()].packets
}

/// The number of built-in limits.
const BUILTINS: usize = Builtin::ALL.len();

/// The tally of each built-in limit.
fn limit_tallies(program: &TestProgram) -> [LimitTally; BUILTINS] {
    Builtin::ALL.map(|limit| program.tally(limit).unwrap())
}

/// For each built-in limit, the packets that conformed and that exceeded it.
fn tallies(program: &TestProgram) -> [(u64, u64); BUILTINS] {
    limit_tallies(program).map(|tally| (tally.conform.packets, tally.over().packets))
}

/// A built-in limit of the policy in force, as compiled for the program.
fn compiled(program: &TestProgram, limit: Builtin) -> Limit {
    let in_force = program.maps().in_force().unwrap();
    let (tables, held) = compile(&in_force.policy, &in_force.held, &Context::default()).unwrap();
    let tallies = policy::tallies(&in_force.policy, &held).unwrap();
    let tally = tallies.iter().find(|tally| tally.name == limit.name()).unwrap().place;
    *tables.rows.iter().find(|row| row.tally == tally).unwrap()
}

/// The word of a built-in limit in the entry of a source.
fn source_word(program: &TestProgram, limit: Builtin, source: IpAddr) -> u64 {
    let place = compiled(program, limit).override_column as usize;
    program.whole_source(&source.into()).unwrap().unwrap().limit(place).word
}

/// The key of the state of a TCP connection to [`destination`].
fn connection_key(program: &TestProgram, source: IpAddr, ports: [u16; 2]) -> BucketKey {
    const TCP: u32 = 6;
    let Address { family, words: destination } = destination(source).into();
    let [from, to] = ports.map(u32::from);
    BucketKey {
        limit_id: compiled(program, Builtin::Connection).limit_id,
        source: Address::from(source).words,
        destination,
        ports: from << 16 | to,
        protocol: family << 16 | family << 8 | TCP,
        whose: 0,
    }
}

/// The state with this key; `None` if there is none.
fn state(program: &TestProgram, key: &BucketKey) -> Option<State> {
    program.buckets().unwrap().into_iter().find(|(other, _)| other == key).map(|(_, state)| state)
}
