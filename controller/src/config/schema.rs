//! JSON Schema of a trial's configuration, and the same as a table for people: both from the one table of keys.

use serde_json::{Map, Value, json};

use super::keys::{Default, GATES, Group, KEYS, Key, Kind};

/// JSON Schema (draft 2020-12) of a configuration. Unknown keys are allowed, as they only cause a finding.
pub fn config() -> Value {
    let mut properties: Map<String, Value> = KEYS.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let names = json!({"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"});
    properties.insert(
        "_aorta_trial_env".to_owned(),
        json!({"type": ["object", "null"], "propertyNames": names, "additionalProperties": {"type": "string"},
            "description": "The cell's resolved mitigations and extra environment, as AORTA injects them."}),
    );
    properties.insert(
        "_aorta_environment".to_owned(),
        json!({"description": "The cell's environment, as AORTA injects it; its `docker` wins over `image`."}),
    );
    properties.insert(
        "config".to_owned(),
        json!({"description": "A mapping here is unwrapped in place; keys of a trial record may stand beside it."}),
    );
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Trial configuration of ts-bench",
        "description": "One mapping, JSON or YAML: what `controller run --config` reads.",
        "type": "object",
        "properties": properties,
    })
}

fn property(key: &Key) -> Value {
    let mut schema = shape(key);
    if let Some(object) = schema.as_object_mut() {
        let description = match key.default {
            Default::Unset(meaning) | Default::Derived(meaning) => format!("{} Default: {meaning}.", key.doc),
            Default::Int(_) | Default::Number(_) | Default::Flag(_) | Default::Text(_) => key.doc.to_owned(),
        };
        object.insert("description".to_owned(), description.into());
        let default = match key.default {
            Default::Int(value) => Some(json!(value)),
            Default::Number(value) => Some(json!(value)),
            Default::Flag(value) => Some(json!(value)),
            Default::Text(value) => Some(json!(value)),
            Default::Unset(_) | Default::Derived(_) => None,
        };
        object.extend(default.map(|default| ("default".to_owned(), default)));
    }
    schema
}

/// What the reader accepts, as far as a schema can say it; cross-field rules are the reader's.
fn shape(key: &Key) -> Value {
    const PLAIN_DIGITS: &str = "^(0|[1-9][0-9]*)$";
    const PLAIN_DECIMAL: &str = "^[0-9]+(\\.[0-9]+)?$";
    let nullable = matches!(key.default, Default::Unset(_)) || key.name == "steps";
    let or_null = |mut choices: Vec<Value>| {
        choices.extend(nullable.then(|| json!({"type": "null"})));
        json!({ "anyOf": choices })
    };
    let scalar = json!(["string", "number", "boolean", "null"]);
    match key.kind {
        Kind::Text | Kind::Scalar | Kind::Path | Kind::Percentiles => json!({ "type": scalar }),
        Kind::Int { min, max } => {
            let mut integer = json!({"type": "integer", "minimum": min});
            if let (Some(object), true) = (integer.as_object_mut(), max != u64::MAX) {
                object.insert("maximum".to_owned(), max.into());
            }
            or_null(vec![integer, json!({"type": "string", "pattern": PLAIN_DIGITS})])
        }
        Kind::Number { max } => or_null(vec![
            json!({"type": "number", "exclusiveMinimum": 0, "maximum": max}),
            json!({"type": "string", "pattern": PLAIN_DECIMAL}),
        ]),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Choice(words) => {
            let mut choices: Vec<Value> = words.iter().map(|word| json!(word)).collect();
            choices.push(Value::Null);
            json!({ "enum": choices })
        }
        Kind::Words => {
            let item = json!({"type": ["string", "number", "boolean", "null"]});
            or_null(vec![json!({"type": "array", "items": item}), json!({"type": "string"})])
        }
        Kind::Port => json!({"anyOf": [{"const": "auto"}, {"type": "integer",
            "minimum": proto::limits::PORT.start(), "maximum": proto::limits::PORT.end()}]}),
        Kind::Rate => json!({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}),
        Kind::Gates => {
            let bound = json!({"anyOf": [{"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": PLAIN_DECIMAL}]});
            let gates: Map<String, Value> = GATES.iter().map(|name| ((*name).to_owned(), bound.clone())).collect();
            json!({"type": "object", "properties": gates, "additionalProperties": false})
        }
    }
}

/// The table of keys, a section per group.
pub fn markdown() -> String {
    let section = |group: &Group| {
        let rows: String = KEYS.iter().filter(|key| key.group == *group).map(row).collect();
        format!("### {}\n\n| key | default | takes | |\n|---|---|---|---|\n{rows}", group.title())
    };
    Group::ALL.iter().map(section).collect::<Vec<_>>().join("\n")
}

fn row(key: &Key) -> String {
    let default = match key.default {
        Default::Int(value) => format!("`{value}`"),
        Default::Number(value) => format!("`{value:?}`"),
        Default::Flag(value) => format!("`{value}`"),
        Default::Text(value) => format!("`{value}`"),
        Default::Unset(meaning) | Default::Derived(meaning) => meaning.to_owned(),
    };
    let takes = match key.kind {
        Kind::Text | Kind::Scalar => "text".to_owned(),
        Kind::Int { min, max: u64::MAX } => format!("whole number >= {min}"),
        Kind::Int { min, max } => format!("whole number, {min} to {max}"),
        Kind::Number { max } => format!("number in (0, {max}]"),
        Kind::Flag => "true or false".to_owned(),
        Kind::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::Words => "list of arguments, or a command line".to_owned(),
        Kind::Path => "path".to_owned(),
        Kind::Port => "`auto`, or a number in 1024 to 65535".to_owned(),
        Kind::Rate => "number > 0, or the text `\"inf\"`".to_owned(),
        Kind::Percentiles => "numbers in (0, 100), separated by commas".to_owned(),
        Kind::Gates => {
            format!("mapping; {}", GATES.iter().map(|gate| format!("`{gate}`")).collect::<Vec<_>>().join(", "))
        }
    };
    format!("| `{}` | {default} | {takes} | {} |\n", key.name, key.doc)
}

#[cfg(test)]
mod tests {
    use super::super::source::{Format, parse};
    use super::super::{Overrides, validate};
    use super::*;

    /// The schema and the reader judge alike what a schema can express.
    #[test]
    fn schema_agrees_with_the_reader() {
        let schema = config();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        for good in [
            json!({}),
            json!({"num_prompts": 32, "max_concurrency": null, "port": "auto", "serve_args": ["a", 1], "steps": null}),
            json!({"num_prompts": "32", "request_rate": "inf", "gates": {"max_p99_itl_ms": 50}, "bench_args": "--x 'y z'"}),
            json!({"rollout": true, "temperature": 0.7, "top_p": null, "sampling_backend": "triton_full"}),
            json!({"_aorta_trial_env": {"A": "b"}, "_aorta_environment": {"docker": "x"}, "hip_visible_devices": 0}),
            json!({"unknown": 1}),
        ] {
            assert!(validator.is_valid(&good), "{good}: {:?}", validator.validate(&good));
            let document = parse(&good.to_string(), Format::Json).unwrap();
            validate(document, &Overrides::default()).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for bad in [
            json!({"num_prompts": 0}),
            json!({"num_prompts": true}),
            json!({"num_prompts": null}),
            json!({"num_prompts": "08"}),
            json!({"port": 80}),
            json!({"port": "8000"}),
            json!({"keep_work_dir": null}),
            json!({"gates": {"nope": 1}}),
            json!({"gates": []}),
            json!({"ready_timeout_sec": 86401}),
            json!({"serve_args": 5}),
            json!({"runtime": "kvm"}),
            json!({"model": ["a"]}),
            json!({"request_rate": true}),
            json!({"rollout": true, "temperature": 2.5}),
            json!({"_aorta_trial_env": {"A": 1}}),
            json!([]),
        ] {
            assert!(!validator.is_valid(&bad), "{bad}");
            let document = parse(&bad.to_string(), Format::Json).unwrap();
            assert!(validate(document, &Overrides::default()).is_err(), "{bad}");
        }
    }

    /// Every default that the table states is one that the reader accepts.
    #[test]
    fn defaults_of_the_table_are_accepted() {
        let mut all = Map::new();
        all.insert("rollout".to_owned(), json!(true));
        for (name, schema) in config()["properties"].as_object().unwrap() {
            if let Some(default) = schema.get("default").filter(|_| name != "rollout") {
                all.insert(name.clone(), default.clone());
            }
        }
        assert!(all.len() > 30, "{}", all.len());
        let with =
            validate(parse(&Value::from(all).to_string(), Format::Json).unwrap(), &Overrides::default()).unwrap();
        let without = validate(parse("{\"rollout\": true}", Format::Json).unwrap(), &Overrides::default()).unwrap();
        let mut trial = with.trial;
        // Naming the variable is the only difference that writing a default makes.
        trial.place.hf_token_env_named = false;
        assert_eq!(format!("{trial:?}"), format!("{:?}", without.trial));
    }

    #[test]
    fn every_key_is_in_the_manual() {
        let table = markdown();
        for key in KEYS {
            assert_eq!(table.matches(&format!("\n| `{}` |", key.name)).count(), 1, "{}", key.name);
        }
        assert!(table.lines().all(|line| !line.starts_with("| `") || line.matches(" | ").count() == 3), "{table}");
    }

    /// The README's table is this one; `TS_UPDATE_README=1` writes it.
    #[test]
    fn readme_carries_the_table() {
        const BEGIN: &str = "<!-- keys: generated by `controller schema config --format markdown` -->\n";
        const END: &str = "<!-- /keys -->";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
        let readme = std::fs::read_to_string(path).unwrap();
        let (head, rest) = readme.split_once(BEGIN).expect("the marker of the key table");
        let (inside, tail) = rest.split_once(END).expect("the end marker of the key table");
        if std::env::var_os("TS_UPDATE_README").is_some() {
            std::fs::write(path, format!("{head}{BEGIN}{}{END}{tail}", markdown())).unwrap();
            return;
        }
        assert_eq!(inside, markdown(), "run it again with TS_UPDATE_README=1");
    }
}
