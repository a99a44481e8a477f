//! The description of what the bridge answers, in OpenAPI 3.1.
//!
//! A request whose path and method are not among the `ROUTES` is answered 404 or 405, so none is left out here but `/v1/ext_authz`:
//! Envoy asks there with the method and the path of its client, which can be any. What bodies have is compared with real ones by
//! tests.

use serde_json::{Map, Value, json};

/// What there is at a path.
pub(super) struct Route {
    /// The path.
    pub(super) path: &'static str,
    /// The methods, in upper case.
    pub(super) methods: &'static [&'static str],
    about: &'static str,
    parameters: fn() -> Value,
    /// The schema of the body of a request by POST, if it has one.
    body: Option<&'static str>,
    /// The statuses, each with what it means and the schema of its body.
    answers: &'static [(u16, &'static str, Body)],
}

/// The body of an answer.
#[derive(Clone, Copy)]
enum Body {
    /// There is none.
    None,
    /// Text without a form.
    Text,
    /// Any JSON object.
    Object,
    /// Any JSON.
    Any,
    /// What limits have left.
    Budget,
    /// A problem (RFC 9457).
    Problem,
}

/// Any method, as a proxy may keep that of its client; these can be described.
const ANY: &[&str] = &["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
const READ: &[&str] = &["GET", "HEAD"];
const POST: &[&str] = &["POST"];

const WRONG: (u16, &str, Body) = (400, "The request to the bridge is wrong.", Body::Problem);
const UNTRUSTED: (u16, &str, Body) = (403, "The user may not ask.", Body::Problem);
const SETTLED: &[(u16, &str, Body)] = &[
    (200, "What the limit has left then.", Body::Budget),
    WRONG,
    UNTRUSTED,
    (408, "The body did not come in time.", Body::Problem),
    (413, "The body is longer than 64 KiB.", Body::Problem),
    (415, "The body is of another type than application/json.", Body::Problem),
];

const AGENT: &[(u16, &str, Body)] = &[
    (200, "What the agent answers.", Body::Any),
    WRONG,
    UNTRUSTED,
    (404, "There is no such block.", Body::Any),
    (408, "The body did not come in time.", Body::Problem),
    (413, "The body is longer than 512 KiB.", Body::Problem),
    (503, "The agent is away.", Body::Problem),
];

/// All of them.
pub(super) const ROUTES: [Route; 12] = [
    Route {
        path: "/v1/auth",
        methods: ANY,
        about: "Decides about a request of a client, which headers tell of, and charges it.",
        parameters: of_auth,
        body: None,
        answers: &[
            (204, "The request passes.", Body::None),
            WRONG,
            (403, "It is refused, or the user may not ask.", Body::Problem),
            (429, "It is refused by a limit, if `deny` is 429.", Body::Problem),
        ],
    },
    Route {
        path: "/v1/budget",
        methods: READ,
        about: "Tells what limits have left, and charges nothing.",
        parameters: of_budget,
        body: None,
        answers: &[(200, "What limits have left.", Body::Budget), WRONG, UNTRUSTED],
    },
    Route {
        path: "/v1/charge",
        methods: POST,
        about: "Charges a limit after the fact, whatever it has left.",
        parameters: none,
        body: Some("Settlement"),
        answers: SETTLED,
    },
    Route {
        path: "/v1/refund",
        methods: POST,
        about: "Gives back what a limit was charged.",
        parameters: none,
        body: Some("Settlement"),
        answers: SETTLED,
    },
    Route {
        path: "/v1/release",
        methods: POST,
        about: "Gives back the places of a request that ended, of limits that count how many are open.",
        parameters: of_release,
        body: None,
        answers: &[
            (204, "It has no place any more; also if it had none before.", Body::None),
            WRONG,
            UNTRUSTED,
        ],
    },
    Route {
        path: "/v1/source/{address}",
        methods: READ,
        about: "Tells what limits on requests and on packets have left for a source.",
        parameters: of_address,
        body: None,
        answers: &[(200, "What both have left.", Body::Object), WRONG, UNTRUSTED],
    },
    Route {
        path: "/v1/penalties",
        methods: &["GET", "POST"],
        about: "Has the agent block sources, or tell whom it blocks. On Unix sockets only.",
        parameters: none,
        body: Some("Penalties"),
        answers: AGENT,
    },
    Route {
        path: "/v1/penalties/{address}",
        methods: &["DELETE"],
        about: "Has the agent end the block of a source. On Unix sockets only.",
        parameters: of_address,
        body: None,
        answers: AGENT,
    },
    Route {
        path: "/v1/openapi.json",
        methods: READ,
        about: "This description.",
        parameters: none,
        body: None,
        answers: &[(200, "The description.", Body::Object)],
    },
    Route {
        path: "/healthz",
        methods: READ,
        about: "Whether the bridge runs.",
        parameters: none,
        body: None,
        answers: &[(200, "It does.", Body::Text)],
    },
    Route {
        path: "/readyz",
        methods: READ,
        about: "Whether a policy is in force.",
        parameters: none,
        body: None,
        answers: &[(200, "One is.", Body::Text)],
    },
    Route {
        path: "/metrics",
        methods: READ,
        about: "Metrics in the text format of Prometheus.",
        parameters: none,
        body: None,
        answers: &[(200, "The metrics.", Body::Text)],
    },
];

/// The route of a path. One whose last part is a parameter takes any text there.
pub(super) fn route(path: &str) -> Option<&'static Route> {
    static ALL: [Route; ROUTES.len()] = ROUTES;
    let is_of = |route: &&Route| match route.path.strip_suffix("{address}") {
        Some(before) => path.strip_prefix(before).is_some_and(|it| !it.is_empty()),
        None => route.path == path,
    };
    ALL.iter().find(is_of)
}

/// The description.
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let operations = route.methods.iter().map(|method| {
            let method = method.to_ascii_lowercase();
            let operation = route.operation(&method);
            (method, operation)
        });
        paths.insert(route.path.to_owned(), operations.collect::<Map<_, _>>().into());
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "limiter bridge",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Answers proxies that ask about requests, by the limits on requests of a policy.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": { "schemas": schemas() },
    })
}

impl Route {
    /// Whether it has a method.
    pub(super) fn takes(&self, method: &str) -> bool {
        self.methods == ANY || self.methods.contains(&method)
    }

    fn operation(&self, method: &str) -> Value {
        let answers = self.answers.iter().map(|(status, about, body)| {
            let content = match method {
                "head" => None,
                _ => body.content(),
            };
            let mut answer = json!({ "description": about });
            if let (Some(content), Some(answer)) = (content, answer.as_object_mut()) {
                answer.insert("content".to_owned(), content);
            }
            (status.to_string(), answer)
        });
        let mut operation = json!({
            "summary": self.about,
            "parameters": (self.parameters)(),
            "responses": answers.collect::<Map<_, _>>(),
        });
        let body = self.body.filter(|_| method == "post");
        if let (Some(body), Some(operation)) = (body, operation.as_object_mut()) {
            let schema = json!({ "schema": reference(body) });
            let body = json!({ "required": true, "content": { "application/json": schema } });
            operation.insert("requestBody".to_owned(), body);
        }
        operation
    }
}

impl Body {
    fn content(self) -> Option<Value> {
        match self {
            Self::None => None,
            Self::Text => Some(json!({ "text/plain": { "schema": { "type": "string" } } })),
            Self::Object => Some(json!({ "application/json": { "schema": { "type": "object" } } })),
            Self::Any => Some(json!({ "application/json": {} })),
            Self::Budget => Some(json!({ "application/json": { "schema": reference("Budget") } })),
            Self::Problem => {
                Some(json!({ "application/problem+json": { "schema": reference("Problem") } }))
            }
        }
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// A parameter that need not be given.
fn parameter(place: &str, name: &str, about: &str, schema: &Value) -> Value {
    json!({ "in": place, "name": name, "description": about, "schema": schema })
}

fn none() -> Value {
    json!([])
}

fn limits() -> Value {
    let names = json!({ "type": "array", "items": { "type": "string" } });
    parameter("query", "limit", "Only the limits of these names are asked.", &names)
}

fn cost() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 1_000_000_000, "default": 1 })
}

fn of_auth() -> Value {
    let text = json!({ "type": "string" });
    let source = json!({ "anyOf": [
        { "type": "string", "format": "ipv4" },
        { "type": "string", "format": "ipv6" },
    ] });
    json!([
        { "in": "header", "name": "X-Real-IP", "required": true, "description": "The address of the client.", "schema": source },
        parameter("header", "X-Original-Method", "The method, or X-Forwarded-Method.", &text),
        parameter("header", "X-Original-URI", "The target, or X-Forwarded-Uri.", &text),
        parameter("query", "deny", "The status of a request over a limit.", &json!({ "type": "integer", "enum": [403, 429], "default": 403 })),
        parameter("query", "cost", "How many times what the request costs.", &cost()),
        parameter("query", "peek", "1: nothing is charged.", &json!({ "type": "integer", "enum": [0, 1], "default": 0 })),
        limits(),
    ])
}

fn of_release() -> Value {
    let lease = json!({ "type": "string", "pattern": "^[0-9a-f]{42}([.][0-9a-f]{42})*$" });
    json!([{ "in": "header", "name": "X-Limiter-Lease", "required": true, "description": "What the answer about the request had.", "schema": lease }])
}

fn of_address() -> Value {
    let text = json!({ "type": "string" });
    json!([{ "in": "path", "name": "address", "required": true, "description": "The address.", "schema": text }])
}

fn of_budget() -> Value {
    let text = json!({ "type": "string" });
    let others = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let attributes = "Attributes of the policy by their names, each a parameter of its own.";
    let mut attributes = parameter("query", "attributes", attributes, &others);
    attributes["style"] = "form".into();
    attributes["explode"] = true.into();
    json!([
        limits(),
        parameter("query", "cost", "How many times what the request costs.", &cost()),
        parameter("query", "method", "The method.", &text),
        parameter("query", "host", "The host.", &text),
        parameter("query", "path", "The path.", &text),
        parameter("query", "source", "The address of the client.", &text),
        attributes,
    ])
}

fn schemas() -> Value {
    let seconds = json!({ "type": "number", "minimum": 0 });
    let whole = json!({ "type": "integer", "minimum": 0 });
    let text = json!({ "type": "string" });
    json!({
        "Budget": {
            "type": "object",
            "additionalProperties": false,
            "required": ["schema", "verdict", "limits"],
            "properties": {
                "schema": { "enum": ["limiter.budget/1", "limiter.charge/1", "limiter.refund/1"] },
                "verdict": { "enum": ["pass", "limited", "denied"] },
                "limits": { "type": "array", "items": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["name", "quota", "window", "left", "wait", "refills"],
                    "properties": {
                        "name": text,
                        "quota": whole,
                        "window": seconds,
                        "left": whole,
                        "wait": { "type": ["number", "null"], "minimum": 0 },
                        "refills": seconds,
                    },
                } },
            },
        },
        "Problem": {
            "type": "object",
            "additionalProperties": false,
            "required": ["type", "title", "status"],
            "properties": {
                "type": text,
                "title": text,
                "status": { "type": "integer" },
                "detail": text,
                "violated-policies": { "type": "array", "items": text },
            },
        },
        "Penalties": {
            "anyOf": [reference("Penalty"), { "type": "array", "items": reference("Penalty") }],
        },
        "Penalty": {
            "type": "object",
            "additionalProperties": false,
            "required": ["subject", "for"],
            "properties": {
                "subject": { "type": "string", "description": "The address." },
                "for": { "description": "Seconds, or a time such as 10m.", "anyOf": [
                    { "type": "integer", "minimum": 1 },
                    { "type": "string" },
                ] },
                "reason": text,
                "limit": text,
                "proof": {
                    "type": "object",
                    "additionalProperties": false,
                    "description": "Both ends of a TCP connection of the source with this host.",
                    "required": ["remote", "local"],
                    "properties": { "remote": text, "local": text },
                },
            },
        },
        "Settlement": {
            "type": "object",
            "additionalProperties": false,
            "required": ["limit", "request", "cost"],
            "properties": {
                "limit": text,
                "request": { "type": "object", "additionalProperties": text },
                "cost": { "type": "integer", "minimum": 1, "maximum": 1_000_000_000 },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_is_described_by_its_methods() {
        let document = document();
        for route in &ROUTES {
            for method in route.methods {
                let operation = &document["paths"][route.path][method.to_ascii_lowercase()];
                assert!(operation["responses"].is_object(), "{method} {}", route.path);
            }
        }
        let post = &document["paths"]["/v1/charge"]["post"];
        let schema = &post["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        assert_eq!(schema, "#/components/schemas/Settlement");
        assert!(document["components"]["schemas"]["Settlement"].is_object());
    }
}
