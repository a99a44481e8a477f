//! The endpoints of the bridge, and their description in OpenAPI 3.1.
//!
//! A request is answered by the endpoint of its route. So no endpoint is left out here but `/v1/ext_authz`: Envoy asks there with the
//! method and the path of its client, which can be any. Schemas of bodies are those of the types that are read and written.

use std::net::IpAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    fields::Problem,
    http::{
        body::{Budget, Settled, Source},
        parameters::{MOST_COST, Parameters},
    },
};
use crate::agent::control::{
    request::{Body as Penalties, address_schema},
    results::{Answer, Answered, LiftResult},
};

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
    LATE,
    (413, "The body is longer than 64 KiB.", Body::Problem),
    (415, "The body is of another type than application/json.", Body::Problem),
];

const AWAY: (u16, &str, Body) = (503, "The agent or its instance is away.", Body::Problem);
const LATE: (u16, &str, Body) = (408, "The body did not come in time.", Body::Problem);
const LONG: (u16, &str, Body) = (413, "The body is longer than 512 KiB.", Body::Problem);

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
        answers: &[
            (200, "What became of each block, or all of them.", Body::Json(schema::<Answered>())),
            WRONG,
            UNTRUSTED,
            LATE,
            LONG,
            AWAY,
        ],
    },
    Route {
        endpoint: Endpoint::Penalties,
        path: "/v1/penalties/{address}",
        methods: &["DELETE"],
        about: "Has the agent end the block of a source. On Unix sockets only.",
        parameters: of_address,
        body: None,
        answers: &[
            (200, "What became of it.", Body::Json(schema::<Answer<LiftResult>>())),
            WRONG,
            (403, "Another user had it blocked, or the user may not ask.", Body::Problem),
            LATE,
            LONG,
            AWAY,
        ],
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

/// The parameters in a part of a request: the fields of a type.
fn parameters<T: JsonSchema>(place: &str) -> Vec<Value> {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|it| it == name));
    let fields = schema.get("properties").and_then(Value::as_object);
    let parameter = |(name, field): (&String, &Value)| {
        let mut schema = field.clone();
        let about = schema.as_object_mut().and_then(|it| it.remove("description"));
        // One that may be left out is never null.
        let kind = schema["type"].get(0).cloned();
        if let Some(kind) = kind {
            schema["type"] = kind;
        }
        // A parameter of a query has a default in what reads it.
        let is_required = place != "query" && is_required(name);
        json!({ "in": place, "name": name, "required": is_required, "description": about, "schema": schema })
    };
    fields.into_iter().flatten().map(parameter).collect()
}

fn none() -> Value {
    json!([])
}

/// The headers of `/v1/auth`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "its fields are described")]
struct AuthHeaders {
    /// The address of the client.
    #[schemars(rename = "X-Real-IP", schema_with = "address_schema")]
    source: IpAddr,
    /// The method, or X-Forwarded-Method.
    #[schemars(rename = "X-Original-Method")]
    method: Option<String>,
    /// The target, or X-Forwarded-Uri.
    #[schemars(rename = "X-Original-URI")]
    target: Option<String>,
}

/// The headers of `/v1/release`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "its fields are described")]
struct ReleaseHeaders {
    /// What the answer about the request had.
    #[schemars(rename = "X-Limiter-Lease", regex(pattern = "^[0-9a-f]{42}([.][0-9a-f]{42})*$"))]
    lease: String,
}

/// The path of what is about a source.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "its fields are described")]
struct OfSource {
    /// The address.
    #[schemars(schema_with = "address_schema")]
    address: IpAddr,
}

fn of_auth() -> Value {
    [parameters::<AuthHeaders>("header"), parameters::<Parameters>("query")].concat().into()
}

fn of_release() -> Value {
    parameters::<ReleaseHeaders>("header").into()
}

fn of_address() -> Value {
    parameters::<OfSource>("path").into()
}

/// The parameters of `/v1/budget`, but for attributes.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "its fields are described")]
struct BudgetQuery {
    /// Only the limits of these names are asked; all of them if there is none.
    limit: Vec<String>,
    /// How many times what the request costs.
    #[schemars(range(min = 1, max = MOST_COST), extend("default" = 1))]
    cost: u64,
    /// The method.
    method: String,
    /// The host.
    host: String,
    /// The path.
    path: String,
    /// The address of the client.
    source: String,
}

fn of_budget() -> Value {
    let mut all = parameters::<BudgetQuery>("query");
    all.push(json!({
        "in": "query",
        "name": "attributes",
        "description": "Attributes of the policy by their names, each a parameter of its own.",
        "style": "form",
        "explode": true,
        "schema": { "type": "object", "additionalProperties": { "type": "string" } },
    }));
    all.into()
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
    fn parameters_are_described_by_their_types() {
        let document = document();
        let of = |path: &str, name: &str| {
            let all = document["paths"][path]["get"]["parameters"].as_array().unwrap();
            all.iter().find(|it| it["name"] == name).unwrap().clone()
        };
        let address = of("/v1/source/{address}", "address");
        assert_eq!((&address["in"], &address["required"]), (&json!("path"), &json!(true)));
        assert_eq!(address["schema"], address_schema(&mut SchemaGenerator::default()).to_value());
        assert_eq!(of("/v1/auth", "X-Real-IP")["required"], true);
        let target = of("/v1/auth", "X-Original-URI");
        assert_eq!(
            (&target["required"], &target["schema"]["type"]),
            (&json!(false), &json!("string"))
        );
        let cost = of("/v1/auth", "cost");
        for told in ["minimum", "default"] {
            assert_eq!((&cost["required"], &cost["schema"][told]), (&json!(false), &json!(1)));
        }
        assert_eq!(cost["description"], "How many times what the request costs.");
        assert_eq!(of("/v1/auth", "limit")["schema"]["type"], "array");
    }

    #[test]
    fn a_body_is_described_as_it_is_written() {
        let penalties = schema("Answered");
        for body in [
            json!({ "subject": "192.0.2.9", "result": "not_a_peer", "seconds": 0 }),
            json!([{ "subject": "2001:db8::9", "result": "blocked", "seconds": 60 }]),
            json!([]),
            json!({ "schema": "limiter.penalties/1", "entries": [] }),
        ] {
            assert!(penalties.is_valid(&body), "{body}");
        }
        for body in [json!({}), json!({ "subject": "192.0.2.9", "result": "other" }), json!(7)] {
            assert!(!penalties.is_valid(&body), "{body}");
        }
        let problem = schema("Problem");
        for detail in [None, Some("do that".to_owned())] {
            let written = Problem::of_status("Bad Request", 400, detail).to_string();
            assert!(problem.is_valid(&serde_json::from_str(&written).unwrap()), "{written}");
        }
        assert!(!problem.is_valid(&json!({ "type": "about:blank", "title": "a" })));
    }
}
