//! The rate limit service of Envoy, asked by the gRPC of Python.

use std::{
    env,
    path::Path,
    process::{Command, Output},
};

use super::*;

/// What the client asks about.
pub(super) const POLICY: &str = "attributes:
  user: { header: x-user-id }
  region: { descriptor: true }
deny: [192.0.2.66]
limits:
  - { name: user, on: requests, match: { domain: edge }, key: user, algorithm: fixed_window, limit: 3, window: 365d }
  - { name: region, on: requests, key: [region, source], algorithm: fixed_window, limit: 5, window: 365d }
  - { name: seen, on: requests, key: source, action: monitor, algorithm: fixed_window, limit: 1, window: 365d }
";

/// Runs the client: it asks at a socket, or at an address with a CA, a key and a certificate.
pub(super) fn run(python: Command, arguments: &[String]) -> Output {
    run_script(python, "ratelimit.py", arguments)
}

fn run_script(mut python: Command, script: &str, arguments: &[String]) -> Output {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let unpacked = || here.join("../target/tools/grpcio").into_os_string();
    python
        .arg(here.join("scenarios/cli/bridge").join(script))
        .args(arguments)
        .env("PYTHONPATH", env::var_os("LIMITER_GRPCIO").unwrap_or_else(unpacked))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap()
}

#[test]
fn an_independent_client_is_answered() {
    let (bench, document) = (Bench::new(), Document::new(POLICY));
    let socket = grpc_socket(&document);
    let bridge = Bridge::start(&bench, &document, &format!("--grpc unix:{}", socket.display()));
    let output = run(Command::new("python3"), &[socket.display().to_string()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metrics = bridge.ask("GET /metrics", &[]).body;
    for line in [
        "limiter_bridge_requests_total{endpoint=\"health\",code=\"200\"} 2",
        "limiter_bridge_requests_total{endpoint=\"ratelimit\",code=\"403\"} 1",
        "limiter_requests_total{limit=\"user\",layer=\"1\",result=\"conform\"} 3",
        "limiter_requests_total{limit=\"seen\",layer=\"1\",result=\"exceed_monitor\"} 6",
    ] {
        assert!(metrics.lines().any(|it| it == line), "no {line} in\n{metrics}");
    }
}

#[test]
fn an_untrusted_user_is_refused() {
    let (bench, document) = (Bench::new(), Document::new(POLICY));
    let socket = grpc_socket(&document);
    let arguments = format!("--trusted nobody --grpc unix:{}", socket.display());
    let command = Bridge::command(&bench, &document, &arguments);
    let _bridge = Bridge::of(command.as_nobody(), &document);
    let arguments = [socket.display().to_string()];
    let output = run_script(Command::new("python3"), "untrusted.py", &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_configuration_of_the_other_service_becomes_a_document() {
    let (bench, document) = (Bench::new(), Document::new(POLICY));
    let folder = document.path().with_file_name("ratelimit");
    fs::create_dir(&folder).unwrap();
    for domain in ["one", "two"] {
        let text = format!(
            "domain: {domain}\ndescriptors:\n  - key: user\n    detailed_metric: true\n    \
             rate_limit: {{ unit: minute, requests_per_unit: 5 }}\n"
        );
        fs::write(folder.join(format!("{domain}.yaml")), text).unwrap();
    }
    let command =
        format!("policy import --from ratelimit --algorithm token_bucket {}", folder.display());
    let outcome = bench.run(&command).outcome().unwrap();
    outcome.assert_exit_code(0).assert_says(&["two.yaml", "`detailed_metric` has no meaning here"]);
    fs::write(document.path(), &outcome.stdout).unwrap();
    assert!(
        bench.done(&document.in_place("policy check FILE")).stdout.contains("2 limits on requests")
    );
    let _bridge = Bridge::start(&bench, &document, "");
    let json = bench.json(&format!("-j {command}"));
    assert_eq!(
        (&json["schema"], &json["policy"]),
        (&"limiter.import/1".into(), &outcome.stdout.into())
    );
    fs::create_dir(folder.join("more")).unwrap();
    bench.run(&command).outcome().unwrap().assert_exit_code(0).assert_says(&["more is a folder"]);
    let piped = bench.run("policy import --from ratelimit -").input(b"domain: three").unwrap();
    piped.outcome().unwrap().assert_exit_code(0);
    fs::write(folder.join("three.yaml"), "domain: three\ndescriptors: [{ value: a }]").unwrap();
    let outcome = bench.run(&command).outcome().unwrap();
    assert_ne!(outcome.code, 0);
    outcome.assert_says(&["three.yaml:2", "a descriptor has no `key`"]);
}
