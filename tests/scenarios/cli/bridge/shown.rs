//! The demonstration and the benchmark of requests, as far as they take seconds.

use std::process::{Command, Output};

use super::*;

fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    // Where `cargo xtask` says that nginx is.
    let nginx = proxies::program("LIMITER_NGINX", "nginx/usr/sbin/nginx");
    command.env("LIMITER_NGINX", nginx.parent().unwrap());
    command.args(arguments).output().unwrap()
}

#[test]
fn the_demonstration_of_requests_shows_what_it_says() {
    let demo = env!("CARGO_BIN_EXE_limiter-demo");
    let output = run(demo, &["--l7", "--seconds", "8"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    for words in ["is blocked in the kernel", "VERDICT", "the others lost no packet"] {
        assert!(told.contains(words), "no {words} in {told}");
    }
    let output = run(demo, &["--l7", "--seconds", "4"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("give a longer --seconds"));
}

/// It measures for minutes, so it is only looked whether it knows the words.
#[test]
fn the_benchmark_of_requests_takes_its_arguments() {
    let bench = env!("CARGO_BIN_EXE_limiter-bench");
    let output = run(bench, &["--l7", "--quick", "--check", "--help"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("--l7"), "{output:?}");
    let output = run(bench, &["--l7", "--only", "flood"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && told.contains("cannot be used with"), "{told}");
}
