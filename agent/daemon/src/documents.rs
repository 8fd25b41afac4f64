//! Documents of the directory docs that are part of the program. They are made from its types, by tests only.

/// The OpenAPI document of the daemon's requests, as JSON.
pub fn openapi() -> &'static str {
    include_str!("../../../docs/openapi.json")
}

/// The JSON Schema (2020-12) of the daemon's configuration, whose TOML has the same values as JSON.
pub fn config_schema() -> &'static str {
    include_str!("../../../docs/agent.schema.json")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};
    use utoipa::OpenApi;

    use crate::{config::Config, http::Requests};

    /// Set, it has the documents written instead of compared.
    const WRITE: &str = "TRACER_AGENT_WRITE_DOCUMENTS";

    /// Compares a document with the one that the program has.
    fn compare(name: &str, kept: &str, made: &Value) {
        let made = serde_json::to_string_pretty(made).unwrap() + "\n";
        if std::env::var_os(WRITE).is_some() {
            let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
            std::fs::write(docs.join(name), made).unwrap();
            return;
        }
        let line = kept.lines().zip(made.lines()).position(|(kept, made)| kept != made);
        let line = line.unwrap_or_else(|| kept.lines().count().min(made.lines().count())) + 1;
        assert!(
            kept == made,
            "docs/{name}:{line}: not what the types say; `{WRITE}=1 cargo test -p daemon --lib documents` \
             writes it"
        );
    }

    #[test]
    fn the_openapi_document_has_the_requests() {
        compare("openapi.json", super::openapi(), &serde_json::to_value(Requests::openapi()).unwrap());
    }

    #[test]
    fn parameters_of_paths_are_the_parts_in_braces() {
        let document: Value = serde_json::from_str(super::openapi()).unwrap();
        for (path, methods) in document["paths"].as_object().unwrap() {
            let parts: Vec<&str> =
                path.split('{').skip(1).map(|part| part.split_once('}').unwrap().0).collect();
            for (method, operation) in methods.as_object().unwrap() {
                let all = operation["parameters"].as_array().into_iter().flatten();
                let of_path = all.filter(|parameter| parameter["in"] == "path");
                let names: Vec<&str> = of_path.map(|parameter| parameter["name"].as_str().unwrap()).collect();
                assert_eq!(names, parts, "{method} {path}");
            }
        }
    }

    #[test]
    fn the_schema_has_the_keys_of_the_configuration() {
        #[derive(OpenApi)]
        #[openapi(components(schemas(Config)))]
        struct Types;

        let mut types = serde_json::to_value(Types::openapi()).unwrap()["components"]["schemas"].take();
        refer(&mut types);
        let mut schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "The configuration of tracer-agent's daemon",
        });
        let members = schema.as_object_mut().unwrap();
        let Some(Value::Object(root)) = types.as_object_mut().unwrap().remove("Config") else {
            panic!("{types}")
        };
        members.extend(root);
        members.insert("$defs".to_owned(), types);
        compare("agent.schema.json", super::config_schema(), &schema);
    }

    /// Turns references to components into such to definitions of the same document.
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
}
