//! Padded markdown tables and Python's spellings of values, as AORTA's reports have them.

use serde_json::Value;

/// A padded table: the first row is the header, widths count characters.
pub fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("| {} |", cells.join(" | "))
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
    let mut lines = vec![];
    for (index, row) in rows.iter().enumerate() {
        lines.push(line(row));
        if index == 0 {
            lines.push(format!("|{}|", rule.join("|")));
        }
    }
    lines
}

/// Three decimals with thousands separators: `40,960.000`.
pub fn thousands(value: f64) -> String {
    let text = format!("{:.3}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "000"));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    format!("{sign}{grouped}.{fraction}")
}

/// Text that may stand in a table cell.
pub fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('\n', "<br>")
}

/// A value as Python's `str()` writes it.
pub fn python_str(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => python_repr(value),
    }
}

fn python_repr(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) => match (number.is_f64(), number.as_f64()) {
            (true, Some(float)) => crate::config::value::python_float(float),
            _ => number.to_string(),
        },
        Value::String(text) => {
            let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
            let mut out = String::from(quote);
            for c in text.chars() {
                match c {
                    '\n' => out.push_str("\\n"),
                    '\t' => out.push_str("\\t"),
                    '\r' => out.push_str("\\r"),
                    '\\' => out.push_str("\\\\"),
                    c if c == quote => {
                        out.push('\\');
                        out.push(c);
                    }
                    c => out.push(c),
                }
            }
            out.push(quote);
            out
        }
        Value::Array(items) => format!("[{}]", items.iter().map(python_repr).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let pairs: Vec<String> = map
                .iter()
                .map(|(k, v)| format!("{}: {}", python_repr(&Value::String(k.clone())), python_repr(v)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spellings() {
        assert_eq!(thousands(40960.0), "40,960.000");
        assert_eq!(thousands(-1_234_567.891_4), "-1,234,567.891");
        assert_eq!(thousands(999.0), "999.000");
        assert_eq!(
            python_str(&json!(["a", 1, 2.0, null, true, {"k": "it's"}])),
            r#"['a', 1, 2.0, None, True, {'k': "it's"}]"#
        );
        assert_eq!(python_str(&json!("plain")), "plain");
    }
}
