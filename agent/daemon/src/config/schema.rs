//! The schema of a configuration, made of its types.

use serde_json::{Value, json};
use utoipa::OpenApi;

use super::Config;

#[derive(OpenApi)]
#[openapi(components(schemas(Config)))]
struct Types;

/// The JSON Schema (2020-12) of a configuration as JSON would say it: TOML has the same values.
pub fn schema() -> Value {
    // What is plain data is JSON.
    let document = serde_json::to_value(Types::openapi()).unwrap_or_default();
    let mut types = document["components"]["schemas"].clone();
    refer(&mut types);
    let root = types.as_object_mut().and_then(|types| types.remove("Config")).unwrap_or_default();
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration of tracer-agent's daemon",
    });
    if let (Some(schema), Value::Object(root)) = (schema.as_object_mut(), root) {
        schema.extend(root);
        schema.insert("$defs".to_owned(), types);
    }
    schema
}

/// References are to definitions of the same document.
fn refer(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if name == "$ref" => {
                        *text = text.replace("#/components/schemas/", "#/$defs/");
                    }
                    other => refer(other),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(refer),
        _ => {}
    }
}
