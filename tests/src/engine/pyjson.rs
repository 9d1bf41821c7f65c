//! Documents as Python's `json.dump` writes them: ASCII only, `", "` and `": "`, shortest floats in Python's
//! notation, bare `Infinity` and `NaN`, no final newline. Keys stay in order and may repeat.

use std::fmt::Write as _;

/// A Python value.
#[derive(Debug, Clone, PartialEq)]
pub enum Py {
    /// `null`.
    None,
    /// `true`, `false`.
    Bool(bool),
    /// A Python int.
    Int(i64),
    /// A Python float.
    Float(f64),
    /// Text.
    Str(String),
    /// A list.
    List(Vec<Py>),
    /// A dict, in order.
    Dict(Vec<(String, Py)>),
    /// Written as it stands.
    Raw(String),
}

impl Py {
    /// The document's text.
    pub fn dump(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::None => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Int(value) => {
                let _ = write!(out, "{value}");
            }
            Self::Float(value) => out.push_str(&float(*value)),
            Self::Str(value) => string(out, value),
            Self::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    item.write(out);
                }
                out.push(']');
            }
            Self::Dict(entries) => {
                out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    string(out, key);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
            Self::Raw(text) => out.push_str(text),
        }
    }
}

impl From<&serde_json::Value> for Py {
    fn from(value: &serde_json::Value) -> Self {
        use serde_json::Value;
        match value {
            Value::Null => Self::None,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(n) => n
                .as_i64()
                .map(Self::Int)
                .or_else(|| n.as_f64().filter(|_| n.is_f64()).map(Self::Float))
                .unwrap_or_else(|| Self::Raw(n.to_string())),
            Value::String(s) => Self::Str(s.clone()),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(map) => Self::Dict(map.iter().map(|(k, v)| (k.clone(), Self::from(v))).collect()),
        }
    }
}

/// A float as Python's `repr` writes it, and as `json` writes the special ones.
pub fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    // Both languages take the shortest digits that read back; they differ only in where the exponent starts.
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_writes_them() {
        let table = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.0001, "0.0001"),
            (3.120_999_963_357_462_5e-6, "3.1209999633574625e-06"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (63.088_946_155_788_2, "63.0889461557882"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in table {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn strings_are_ascii() {
        let value = Py::Dict(vec![("é\"".into(), Py::List(vec![Py::Str("\u{1f600}\u{7f}\n".into()), Py::Int(-1)]))]);
        assert_eq!(value.dump(), r#"{"\u00e9\"": ["\ud83d\ude00\u007f\n", -1]}"#);
    }
}
