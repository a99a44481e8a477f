//! The description in OpenAPI, and schemathesis, which asks what that describes.

use std::{env, path::Path};

use super::*;

const POLICY: &str = "attributes:
  user: { header: x-user-id }
limits:
  - { name: tokens, on: requests, key: user, rate: 1000/min, burst: 1000 }
  - { name: clients, on: requests, key: source, rate: 10/min, burst: 10 }
";

#[test]
fn the_bridge_tells_what_is_printed() {
    let (bench, document) = (Bench::new(), Document::new(POLICY));
    let bridge = Bridge::start(&bench, &document, "");
    let printed: Value = serde_json::from_str(&bench.done("bridge openapi").stdout).unwrap();
    let told: Value = serde_json::from_str(&bridge.ask("GET /v1/openapi.json", &[]).body).unwrap();
    assert_eq!(told, printed);
    assert_eq!(bench.json("bridge openapi -j"), printed);
    // What a path has not is told, and what it has.
    let wrong = bridge.ask("DELETE /v1/budget", &[]);
    assert_eq!((wrong.status, wrong.field("allow")), (405, Some("GET, HEAD")));
    assert_eq!(bridge.ask("PROPFIND /v1/auth", &["X-Real-IP: 192.0.2.9"]).status, 204);
    let unknown = bridge.ask("GET /v1/nothing", &[]);
    assert!(unknown.status == 404 && unknown.body.contains("/v1/openapi.json"), "{unknown:?}");
}

/// Each answer has a status, a type and a form that the document describes, whatever is asked.
#[test]
fn schemathesis_finds_nothing_that_is_not_described() {
    let (bench, document) = (Bench::new(), Document::new(POLICY));
    bench.hosts.router.ip("link set lo up").unwrap();
    let _bridge = Bridge::start(&bench, &document, "--listen 127.0.0.1:9190");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let unpacked = || here.join("../target/tools/schemathesis").into_os_string();
    let checks = [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "missing_required_header",
        "negative_data_rejection",
    ];
    let folder = document.path().parent().unwrap().to_owned();
    let mut command = bench.hosts.router.command("python3");
    command.env("PYTHONPATH", env::var_os("LIMITER_SCHEMATHESIS").unwrap_or_else(unpacked));
    command.env("PYTHONDONTWRITEBYTECODE", "1").args(["-m", "schemathesis.cli"]);
    command.args(["run", "http://127.0.0.1:9190/v1/openapi.json", "--no-color", "--seed", "1"]);
    command.args(["--max-examples", "10", "--phases", "coverage,fuzzing", "--checks"]);
    command.args([&*checks.join(","), "--generation-database", "none", "--request-timeout", "5"]);
    // Without the name of a limit, a request that is made up asks none.
    let config = "[parameters]\n\"query.limit\" = \"tokens\"\n\"body.limit\" = \"tokens\"\n";
    fs::write(folder.join("schemathesis.toml"), config).unwrap();
    let output = command.current_dir(folder).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("Test cases:"), "{told}");
}
