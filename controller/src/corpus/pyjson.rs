//! JSON text as the published programs write it (harness spec A.7): ASCII only, blanks after separators,
//! shortest round-trip doubles in their own exponent form.

use std::fmt::Write as _;
use std::io;

/// A value of the manifest. Numbers are text already, because a seed may exceed every machine integer.
#[derive(Debug, Clone)]
pub enum Value {
    /// A number, spelled out.
    Number(String),
    /// A string, unescaped.
    Text(String),
    /// An array.
    List(Vec<Value>),
    /// An object, in this order.
    Object(Vec<(&'static str, Value)>),
}

impl Value {
    /// A double.
    pub fn double(value: f64) -> Self {
        Self::Number(double(value))
    }

    /// An integer.
    pub fn int(value: impl Into<i128>) -> Self {
        Self::Number(value.into().to_string())
    }

    /// A string.
    pub fn text(value: &str) -> Self {
        Self::Text(value.to_owned())
    }

    /// With every element on its own line, one blank per level; no newline at the end.
    pub fn indented(&self) -> String {
        let mut text = String::new();
        self.put(&mut text, 0);
        text
    }

    fn put(&self, out: &mut String, level: usize) {
        let line = |out: &mut String, level: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', level));
        };
        match self {
            Self::Number(number) => out.push_str(number),
            Self::Text(text) => push_string(out, text),
            Self::List(items) if items.is_empty() => out.push_str("[]"),
            Self::Object(entries) if entries.is_empty() => out.push_str("{}"),
            Self::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "[" } else { "," });
                    line(out, level + 1);
                    item.put(out, level + 1);
                }
                line(out, level);
                out.push(']');
            }
            Self::Object(entries) => {
                for (at, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if at == 0 { "{" } else { "," });
                    line(out, level + 1);
                    push_string(out, key);
                    out.push_str(": ");
                    value.put(out, level + 1);
                }
                line(out, level);
                out.push('}');
            }
        }
    }
}

fn push_string(out: &mut String, text: &str) {
    out.push('"');
    push_escaped(out, text);
    out.push('"');
}

/// Appends the inside of a JSON string: everything outside 0x20..0x7E escaped, 0x7F too.
pub fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{c}' => out.push_str("\\f"),
            '\u{8}' => out.push_str("\\b"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
}

/// Writes the inside of a JSON string, through a buffer that is reused.
pub fn write_escaped(out: &mut impl io::Write, buffer: &mut String, text: &str) -> io::Result<()> {
    buffer.clear();
    push_escaped(buffer, text);
    out.write_all(buffer.as_bytes())
}

/// Shortest text that reads back as this finite double: `1.0`, `0.4`, `1e-05`, `1e+16`.
pub fn double(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles() {
        for (value, text) in [
            (0.4, "0.4"),
            (1.0, "1.0"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.0001, "0.0001"),
            (0.000_012_5, "1.25e-05"),
            (1e-5, "1e-05"),
            (1e16, "1e+16"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
            (0.1 + 0.2, "0.30000000000000004"),
            (227.166_666_666_666_66, "227.16666666666666"),
        ] {
            assert_eq!(double(value), text);
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
    }

    #[test]
    fn escapes() {
        let mut text = String::new();
        push_escaped(&mut text, "a\"\\/\n\r\t\u{c}\u{8}\u{1f}~\u{7f}\u{80}é\u{2028}\u{ffff}😀");
        assert_eq!(text, r#"a\"\\/\n\r\t\f\b\u001f~\u007f\u0080\u00e9\u2028\uffff\ud83d\ude00"#);
    }

    #[test]
    fn indentation() {
        let value = Value::Object(vec![
            ("a", Value::List(vec![Value::int(1), Value::double(1.0)])),
            ("b", Value::Object(vec![])),
            ("c", Value::List(vec![])),
            ("d", Value::text("x")),
        ]);
        assert_eq!(value.indented(), "{\n \"a\": [\n  1,\n  1.0\n ],\n \"b\": {},\n \"c\": [],\n \"d\": \"x\"\n}");
    }
}
