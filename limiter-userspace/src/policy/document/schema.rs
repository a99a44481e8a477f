//! The JSON Schema of the document.

use serde_json::{Map, Value, json};

use super::{
    scalar::NAME,
    shape::{DOCUMENT, Kind, LIMITS, Shape, VERSION},
};
use crate::policy::Policy;

/// Returns the JSON Schema (2020-12) of the document, for editors: its keys, words and ranges. It is made
/// from the tables that the reader uses. What values mean, and whether they fit each other, is only checked
/// by [`parse`](crate::policy::document::parse).
pub fn schema() -> Value {
    let Value::Object(shape) = of_shape(&DOCUMENT) else { return Value::Null };
    let mut schema = Map::new();
    schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("$id".into(), json!(format!("urn:limiter:policy:{VERSION}")));
    schema.insert("title".into(), json!("Policy of limiter"));
    schema.extend(shape);
    if let Some(limits) = schema.get_mut("properties").and_then(|keys| keys.get_mut("limits"))
        && let Some(limits) = limits.as_object_mut()
    {
        limits.insert("maxItems".into(), json!(LIMITS + Policy::MOST_ON_REQUESTS));
    }
    Value::Object(schema)
}

fn of_shape(shape: &Shape) -> Value {
    let keys = shape.keys.iter().map(|key| {
        let mut value = of_kind(&key.kind);
        if let Some(value) = value.as_object_mut() {
            value.insert("description".into(), json!(key.doc));
        }
        (key.name.to_owned(), value)
    });
    let needed: Vec<_> = shape.keys.iter().filter(|key| key.needed).map(|key| key.name).collect();
    json!({
        "type": "object",
        "properties": keys.collect::<Map<_, _>>(),
        "required": needed,
        "additionalProperties": false,
    })
}

fn of_kind(kind: &Kind) -> Value {
    match kind {
        Kind::Version => json!({ "const": VERSION }),
        Kind::Text(examples) => json!({ "type": ["string", "number"], "examples": examples }),
        Kind::Whole(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Word(words) => json!({ "enum": words() }),
        Kind::Name => json!({ "type": ["string", "integer"], "pattern": name_pattern() }),
        Kind::List(of) => json!({ "type": "array", "items": of_kind(of) }),
        Kind::OneOrMore(of) => {
            let one = of_kind(of);
            json!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] })
        }
        Kind::Map(shape) => of_shape(shape),
        Kind::TextOrMap(examples, shape) => {
            json!({ "anyOf": [of_kind(&Kind::Text(examples)), of_shape(shape)] })
        }
        Kind::Named(of) => json!({
            "type": "object",
            "propertyNames": { "pattern": name_pattern() },
            "additionalProperties": of_kind(of),
        }),
        Kind::ByText(of) => json!({ "type": "object", "additionalProperties": of_kind(of) }),
        Kind::Open(shape, of) => {
            let mut open = of_shape(shape);
            open["additionalProperties"] = of_kind(of);
            open
        }
        Kind::Either(one, other) => json!({ "anyOf": [of_shape(one), of_titled(other)] }),
    }
}

/// The second of two shapes, which its noun tells from the first.
fn of_titled(shape: &Shape) -> Value {
    let mut schema = of_shape(shape);
    schema["title"] = json!(shape.what);
    schema
}

fn name_pattern() -> String {
    format!("^[a-z0-9_-]{{1,{NAME}}}$")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Editors keep schemas apart by it.
    #[test]
    fn the_schema_has_an_id_with_the_version_of_documents() {
        assert_eq!(schema()["$id"], "urn:limiter:policy:1");
        assert_eq!(schema()["properties"]["version"]["const"], 1);
    }
}
