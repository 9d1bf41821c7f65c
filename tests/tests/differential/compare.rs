//! Two answers side by side.

use serde_json::Value;

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Config,
    Environment,
    Export,
}

/// A question and both answers; what was refused has none.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// The question, readable.
    pub(crate) text: String,
    pub(crate) ours: Value,
    pub(crate) theirs: Value,
}

/// One point on which the two sides do not agree.
#[derive(Debug, Clone)]
pub(crate) enum What {
    /// We refuse what the other side accepts: one of our errors.
    WeRefuse(String),
    /// The other side refuses what we accept.
    TheyRefuse(String),
    /// Both accept and make something else of it.
    Field { name: String, ours: Value, theirs: Value },
}

/// All points on which two values differ, leaf by leaf; numbers are equal within rounding.
pub(crate) fn fields(prefix: &str, ours: &Value, theirs: &Value, out: &mut Vec<What>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            for key in keys {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                match (a.get(key), b.get(key)) {
                    (Some(x), Some(y)) => fields(&name, x, y, out),
                    // Null and absent are one thing to every reader of a result.
                    (x, y) if x.or(y).is_some_and(Value::is_null) => {}
                    (x, y) => out.push(What::Field { name, ours: known(x), theirs: known(y) }),
                }
            }
        }
        (Value::Number(a), Value::Number(b)) if near(a.as_f64(), b.as_f64()) && a.is_f64() == b.is_f64() => {}
        // Where types matter the name says so: counters are compared as they are written.
        (Value::Number(a), Value::Number(b)) if near(a.as_f64(), b.as_f64()) && !typed(prefix) => {}
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (x, y)) in a.iter().zip(b).enumerate() {
                fields(&format!("{prefix}[{index}]"), x, y, out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(What::Field { name: prefix.to_owned(), ours: a.clone(), theirs: b.clone() }),
    }
}

fn known(value: Option<&Value>) -> Value {
    value.cloned().unwrap_or_else(|| Value::String("(absent)".into()))
}

fn near(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-12 * a.abs().max(b.abs()),
        _ => false,
    }
}

/// Published counters are JSON integers, means are not (contract I.2, review finding B-03).
fn typed(name: &str) -> bool {
    name.ends_with("_total") || name.ends_with("_count") || name.contains("steps[")
}
