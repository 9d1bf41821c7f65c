//! Where a configuration comes from: a file or stdin, JSON or YAML, at most a few megabytes.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;

use super::value::{Document, Pos, ReadError};
use super::{json, yaml};
use crate::error::ConfigError;

/// No configuration is near this size; a pipe that never ends must not fill memory.
const MAX_BYTES: u64 = 8 << 20;

/// Reads a document from a file, or from stdin where the argument is `-`.
///
/// `.json` is JSON, `.yaml` and `.yml` are YAML; anything else is JSON when it begins like a JSON object.
pub fn read(from: &Path) -> Result<Document, ConfigError> {
    let stdin = from == Path::new("-");
    let name = if stdin { "standard input".to_owned() } else { from.display().to_string() };
    let no_file = |reason: String| ConfigError::no_file(&name, reason, "name a readable file, or - for standard input");
    let bytes = if stdin { bounded(std::io::stdin().lock()) } else { std::fs::File::open(from).and_then(bounded) }
        .map_err(|error| no_file(format!("cannot be read ({error})")))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(no_file(format!("is larger than {MAX_BYTES} bytes")));
    }
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) => {
            let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let error = ReadError::new(end_of(&before), "not UTF-8");
            return Err(ConfigError::unreadable(&name, &error, "save the file as UTF-8"));
        }
    };
    parse(text, format_of(from, text)).map_err(|error| {
        ConfigError::unreadable(&name, &error, "mend the syntax at this place; the configuration is one mapping")
    })
}

fn bounded(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The place after a text.
fn end_of(text: &str) -> Pos {
    let last = text.rsplit('\n').next().unwrap_or_default();
    Pos { line: text.matches('\n').count() + 1, column: last.chars().count() + 1 }
}

/// Which language a text is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// By the name; otherwise JSON where the text begins with `{"` or `{}`, which is what programs pipe.
fn format_of(name: &Path, text: &str) -> Format {
    match name.extension().and_then(OsStr::to_str) {
        Some("json") => Format::Json,
        Some("yaml" | "yml") => Format::Yaml,
        _ => {
            let inner = text.trim_start().strip_prefix('{').map(str::trim_start);
            if inner.is_some_and(|rest| rest.starts_with(['"', '}'])) { Format::Json } else { Format::Yaml }
        }
    }
}

/// Parses a text.
pub fn parse(text: &str, format: Format) -> Result<Document, ReadError> {
    match format {
        Format::Json => json::parse(text),
        Format::Yaml => yaml::parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        for (name, text, format) in [
            ("-", " {\n \"a\": 1}", Format::Json),
            ("-", "{}", Format::Json),
            ("-", "{a: 1}", Format::Yaml),
            ("-", "a: 1", Format::Yaml),
            ("t.json", "a: 1", Format::Json),
            ("t.yml", "{\"a\": NaN}", Format::Yaml),
            ("t.conf", "{\"a\": 1}", Format::Json),
        ] {
            assert_eq!(format_of(Path::new(name), text), format, "{name} {text}");
        }
    }

    #[test]
    fn unreadable_files_are_configuration_errors() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t.yaml");
        for (bytes, phrase) in [
            (&b"a: \xff"[..], "not UTF-8 (line 1, column 4)"),
            (b"a: [1", "line 2"),
            (b"a: 1\nb: c: d", "line 2"),
            (b"a: \x07", "U+0007"),
        ] {
            std::fs::write(&file, bytes).unwrap();
            let error = read(&file).unwrap_err();
            assert!(error.to_string().contains(phrase), "{error}");
            assert!(error.to_string().starts_with("tokenspeed_serve: "), "{error}");
        }
        assert!(read(dir.path()).unwrap_err().to_string().contains("cannot be read"));
        assert!(read(&dir.path().join("none")).unwrap_err().to_string().contains("cannot be read"));
        std::fs::File::create(&file).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("larger than"));
    }
}
