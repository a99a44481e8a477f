//! The endpoints of the bridge, and their description in OpenAPI 3.1.
//!
//! A request is answered by the endpoint of its route. So no endpoint is left out here but `/v1/ext_authz`: Envoy asks there with the
//! method and the path of its client, which can be any. Schemas of bodies are those of the types that are read and written.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    fields::Problem,
    http::{
        body::{Budget, Settled, Source},
        parameters::MOST_COST,
    },
};
use crate::agent::control::request::{Body as Penalties, address_schema};

/// What there is at a path.
pub(super) struct Route {
    /// What answers.
    pub(super) endpoint: Endpoint,
    /// The path. Of one that ends with a parameter in braces, any text may be there.
    pub(super) path: &'static str,
    /// The methods, in upper case.
    pub(super) methods: &'static [&'static str],
    about: &'static str,
    parameters: fn() -> Value,
    /// The schema of the body of a request by POST, if it has one.
    body: Option<SchemaOf>,
    /// The statuses, each with what it means and the body.
    answers: &'static [(u16, &'static str, Body)],
}

/// What answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Auth,
    Budget,
    Charge,
    Refund,
    Release,
    Source,
    Penalties,
    Openapi,
    Healthz,
    Readyz,
    Metrics,
}

impl Endpoint {
    /// Its name in metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Budget => "budget",
            Self::Charge => "charge",
            Self::Refund => "refund",
            Self::Release => "release",
            Self::Source => "source",
            Self::Penalties => "penalties",
            Self::Openapi => "openapi",
            Self::Healthz => "healthz",
            Self::Readyz => "readyz",
            Self::Metrics => "metrics",
        }
    }
}

/// What adds the schema of a type to those of a document, and returns a reference to it.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The body of an answer.
#[derive(Clone, Copy)]
enum Body {
    /// There is none.
    None,
    /// Text without a form.
    Text,
    /// JSON of a type.
    Json(SchemaOf),
    /// A problem.
    Problem,
}

const fn schema<T: JsonSchema>() -> SchemaOf {
    SchemaGenerator::subschema_for::<T>
}

/// Any method, as a proxy may keep that of its client; these can be described.
const ANY: &[&str] = &["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
const READ: &[&str] = &["GET", "HEAD"];
const POST: &[&str] = &["POST"];

const WRONG: (u16, &str, Body) = (400, "The request to the bridge is wrong.", Body::Problem);
const UNTRUSTED: (u16, &str, Body) = (403, "The user may not ask.", Body::Problem);
const SETTLED: &[(u16, &str, Body)] = &[
    (200, "What the limit has left then.", Body::Json(schema::<Budget>())),
    WRONG,
    UNTRUSTED,
    (408, "The body did not come in time.", Body::Problem),
    (413, "The body is longer than 64 KiB.", Body::Problem),
    (415, "The body is of another type than application/json.", Body::Problem),
];

const AGENT: &[(u16, &str, Body)] = &[
    (200, "What the agent answers.", Body::Json(schema::<Value>())),
    WRONG,
    UNTRUSTED,
    (404, "There is no such block.", Body::Json(schema::<Value>())),
    (408, "The body did not come in time.", Body::Problem),
    (413, "The body is longer than 512 KiB.", Body::Problem),
    (503, "The agent is away.", Body::Problem),
];

/// All of them.
pub(super) const ROUTES: [Route; 12] = [
    Route {
        endpoint: Endpoint::Auth,
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
        endpoint: Endpoint::Budget,
        path: "/v1/budget",
        methods: READ,
        about: "Tells what limits have left, and charges nothing.",
        parameters: of_budget,
        body: None,
        answers: &[
            (200, "What limits have left.", Body::Json(schema::<Budget>())),
            WRONG,
            UNTRUSTED,
        ],
    },
    Route {
        endpoint: Endpoint::Charge,
        path: "/v1/charge",
        methods: POST,
        about: "Charges a limit after the fact, whatever it has left.",
        parameters: none,
        body: Some(schema::<Settled>()),
        answers: SETTLED,
    },
    Route {
        endpoint: Endpoint::Refund,
        path: "/v1/refund",
        methods: POST,
        about: "Gives back what a limit was charged.",
        parameters: none,
        body: Some(schema::<Settled>()),
        answers: SETTLED,
    },
    Route {
        endpoint: Endpoint::Release,
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
        endpoint: Endpoint::Source,
        path: "/v1/source/{address}",
        methods: READ,
        about: "Tells what limits on requests and on packets have left for a source.",
        parameters: of_address,
        body: None,
        answers: &[(200, "What both have left.", Body::Json(schema::<Source>())), WRONG, UNTRUSTED],
    },
    Route {
        endpoint: Endpoint::Penalties,
        path: "/v1/penalties",
        methods: &["GET", "POST"],
        about: "Has the agent block sources, or tell whom it blocks. On Unix sockets only.",
        parameters: none,
        body: Some(schema::<Penalties>()),
        answers: AGENT,
    },
    Route {
        endpoint: Endpoint::Penalties,
        path: "/v1/penalties/{address}",
        methods: &["DELETE"],
        about: "Has the agent end the block of a source. On Unix sockets only.",
        parameters: of_address,
        body: None,
        answers: AGENT,
    },
    Route {
        endpoint: Endpoint::Openapi,
        path: "/v1/openapi.json",
        methods: READ,
        about: "This description.",
        parameters: none,
        body: None,
        answers: &[(200, "The description.", Body::Json(schema::<Map<String, Value>>()))],
    },
    Route {
        endpoint: Endpoint::Healthz,
        path: "/healthz",
        methods: READ,
        about: "Whether the bridge runs.",
        parameters: none,
        body: None,
        answers: &[(200, "It does.", Body::Text)],
    },
    Route {
        endpoint: Endpoint::Readyz,
        path: "/readyz",
        methods: READ,
        about: "Whether a policy is in force.",
        parameters: none,
        body: None,
        answers: &[(200, "One is.", Body::Text)],
    },
    Route {
        endpoint: Endpoint::Metrics,
        path: "/metrics",
        methods: READ,
        about: "Metrics in the text format of Prometheus.",
        parameters: none,
        body: None,
        answers: &[(200, "The metrics.", Body::Text)],
    },
];

/// The route of a path, and the text of its parameter.
pub(super) fn route(path: &str) -> Option<(&'static Route, &str)> {
    static ALL: [Route; ROUTES.len()] = ROUTES;
    ALL.iter().find_map(|route| match route.path.split_once('{') {
        Some((before, _)) => {
            path.strip_prefix(before).filter(|it| !it.is_empty()).map(|it| (route, it))
        }
        None => (route.path == path).then_some((route, "")),
    })
}

/// The description.
pub fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for route in &ROUTES {
        let operations = route.methods.iter().map(|method| {
            let method = method.to_ascii_lowercase();
            let operation = route.operation(&method, &mut schemas);
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
        "components": { "schemas": schemas.all() },
    })
}

/// The schemas of a document: a field that may be left out of what is read is there in what is written, unless that leaves it out.
struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = "/components/schemas".into();
        Self {
            read: settings.clone().into_generator(),
            written: settings.for_serialize().into_generator(),
        }
    }

    fn all(mut self) -> Map<String, Value> {
        let mut all = self.read.take_definitions(true);
        all.extend(self.written.take_definitions(true));
        all
    }
}

impl Route {
    /// Whether it has a method.
    pub(super) fn takes(&self, method: &str) -> bool {
        self.methods == ANY || self.methods.contains(&method)
    }

    fn operation(&self, method: &str, schemas: &mut Schemas) -> Value {
        let answers = self.answers.iter().map(|(status, about, body)| {
            let mut answer = json!({ "description": about });
            let content = body.content(&mut schemas.written).filter(|_| method != "head");
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
        if let (Some(schema), Some(operation)) = (body, operation.as_object_mut()) {
            let schema = json!({ "schema": schema(&mut schemas.read) });
            let body = json!({ "required": true, "content": { "application/json": schema } });
            operation.insert("requestBody".to_owned(), body);
        }
        operation
    }
}

impl Body {
    fn content(self, schemas: &mut SchemaGenerator) -> Option<Value> {
        let (kind, schema) = match self {
            Self::None => return None,
            Self::Text => ("text/plain", schemas.subschema_for::<String>()),
            Self::Json(schema) => ("application/json", schema(schemas)),
            Self::Problem => ("application/problem+json", schemas.subschema_for::<Problem>()),
        };
        Some(json!({ kind: { "schema": schema } }))
    }
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
    json!({ "type": "integer", "minimum": 1, "maximum": MOST_COST, "default": 1 })
}

fn address() -> Value {
    address_schema(&mut SchemaGenerator::default()).to_value()
}

fn of_auth() -> Value {
    let text = json!({ "type": "string" });
    json!([
        { "in": "header", "name": "X-Real-IP", "required": true, "description": "The address of the client.", "schema": address() },
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
    json!([{ "in": "path", "name": "address", "required": true, "description": "The address.", "schema": address() }])
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
    }

    /// The schema of this name, on its own.
    fn schema(name: &str) -> jsonschema::Validator {
        let document = document();
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
        let schema = json!({
            "$ref": format!("#/components/schemas/{name}"),
            "components": document["components"],
        });
        jsonschema::validator_for(&schema).unwrap()
    }

    #[test]
    fn a_body_is_described_as_it_is_read() {
        let (settlement, penalties) = (schema("Settlement"), schema("Penalties"));
        let settled = json!({ "limit": "api", "request": { "user": "7" }, "cost": 3 });
        assert!(
            settlement.is_valid(&settled) && Settled::read(settled.to_string().as_bytes()).is_ok()
        );
        let proof = json!({ "remote": "192.0.2.9:1", "local": "192.0.2.1:443" });
        let penalty = json!({ "subject": "192.0.2.9", "for": "60s" });
        let full = json!({ "subject": "2001:db8::9", "for": 60, "reason": "a", "limit": "b", "proof": proof });
        for body in [&penalty, &full, &json!([penalty, full])] {
            assert!(penalties.is_valid(body), "{body}");
            assert!(Penalties::read(body.to_string().as_bytes()).is_ok(), "{body}");
        }
        let with = |body: &Value, name: &str, value: Value| {
            let mut body = body.clone();
            body[name] = value;
            body
        };
        for (name, value) in [("cost", json!(-1)), ("limit", json!(7)), ("other", json!(1))] {
            let body = with(&settled, name, value);
            assert!(!settlement.is_valid(&body), "{body}");
            assert!(Settled::read(body.to_string().as_bytes()).is_err(), "{body}");
        }
        for (name, value) in
            [("for", json!(0)), ("for", json!(86_401)), ("subject", json!(7)), ("other", json!(1))]
        {
            let body = with(&penalty, name, value);
            assert!(!penalties.is_valid(&body), "{body}");
            assert!(Penalties::read(body.to_string().as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn a_body_is_described_as_it_is_written() {
        let problem = schema("Problem");
        for detail in [None, Some("do that".to_owned())] {
            let written = Problem::of_status("Bad Request", 400, detail).to_string();
            assert!(problem.is_valid(&serde_json::from_str(&written).unwrap()), "{written}");
        }
        assert!(!problem.is_valid(&json!({ "type": "about:blank", "title": "a" })));
    }
}
