//! Sidecar files: JSON with mitigations and environments of one's own (integration notes, section 5).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::registry::{CellEnvironment, Registry};
use crate::launch::guard;

/// A sidecar that cannot be used. Values are never repeated: they may be secrets.
#[derive(Debug, thiserror::Error)]
#[error("sidecar {path:?}: {reason}")]
pub struct SidecarError {
    /// Which.
    pub path: PathBuf,
    /// What is wrong.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    #[serde(default)]
    mitigations: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    environments: BTreeMap<String, Environment>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Environment {
    docker: Option<String>,
    venv: Option<String>,
    buck_target: Option<String>,
    emulator: Option<String>,
    mirage_profile: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// Adds the files' names to the registry; a name that is taken is an error, as in AORTA.
pub fn add(registry: &mut Registry, paths: &[PathBuf]) -> Result<(), SidecarError> {
    for (index, path) in paths.iter().enumerate() {
        let fail = |reason: String| SidecarError { path: path.clone(), reason };
        if paths[..index].iter().any(|other| other.file_name() == path.file_name()) {
            return Err(fail("two sidecars share this file name; rename one".to_owned()));
        }
        let bytes = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
        let file: File = serde_json::from_slice(&bytes).map_err(|error| fail(error.to_string()))?;
        one(registry, path, file).map_err(fail)?;
    }
    Ok(())
}

fn one(registry: &mut Registry, path: &Path, file: File) -> Result<(), String> {
    if file.version != 1 {
        return Err(format!("version is {}, must be 1", file.version));
    }
    for (name, variables) in file.mitigations {
        check(&format!("mitigations.{name}"), &variables)?;
        registry.add_mitigation(name, variables)?;
    }
    let source = format!("sidecar:{}", path.file_name().unwrap_or_default().to_string_lossy());
    for (name, environment) in file.environments {
        check(&format!("environments.{name}.env"), &environment.env)?;
        let unsupported = [
            ("venv", &environment.venv),
            ("buck_target", &environment.buck_target),
            ("emulator", &environment.emulator),
            ("mirage_profile", &environment.mirage_profile),
        ];
        if let Some((key, _)) = unsupported.into_iter().find(|(_, value)| value.is_some()) {
            return Err(format!("environments.{name}.{key} is not supported; use docker, or leave it out"));
        }
        registry.add_environment(CellEnvironment::named(name, environment.docker, environment.env, source.clone()))?;
    }
    Ok(())
}

fn check(key: &str, variables: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, value) in variables {
        if !guard::is_name(name) {
            return Err(format!("{key} has {name:?}, which is no variable name"));
        }
        if value.contains('\0') {
            return Err(format!("{key}.{name} contains a NUL"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(text: &str) -> Result<Registry, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own.json");
        std::fs::write(&path, text).unwrap();
        let mut registry = Registry::builtin();
        add(&mut registry, &[path]).map(|()| registry).map_err(|error| error.to_string())
    }

    #[test]
    fn names_of_ones_own() {
        let registry = loaded(
            r#"{"version": 1, "mitigations": {"mine": {"A": "1"}},
                "environments": {"box": {"docker": "i:1", "venv": null, "env": {"B": "2"}}}}"#,
        )
        .unwrap();
        assert_eq!(registry.mitigation("mine").unwrap()["A"], "1");
        let environment = registry.environment("box").unwrap().unwrap();
        assert_eq!((environment.docker(), environment.env()["B"].as_str()), (Some("i:1"), "2"));
        assert_eq!(environment.to_matrix()["source_package"], "sidecar:own.json");
        assert_eq!(environment.to_matrix()["inline"], false);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (text, part) in [
            ("[", "EOF"),
            (r#"{"mitigations": {}}"#, "version"),
            (r#"{"version": 2}"#, "must be 1"),
            (r#"{"version": 1, "extra": {}}"#, "extra"),
            (r#"{"version": 1, "mitigations": {"none": {}}}"#, "none"),
            (r#"{"version": 1, "mitigations": {"m": {"A-": "x"}}}"#, "A-"),
            (r#"{"version": 1, "mitigations": {"m": {"A": 1}}}"#, "string"),
            (r#"{"version": 1, "environments": {"local": {}}}"#, "local"),
            (r#"{"version": 1, "environments": {"e": {"venv": "v"}}}"#, "environments.e.venv"),
        ] {
            assert!(loaded(text).unwrap_err().contains(part), "{text}: {}", loaded(text).unwrap_err());
        }
        let mut registry = Registry::builtin();
        let twice = [PathBuf::from("a/x.json"), PathBuf::from("b/x.json")];
        let error = add(&mut registry, &twice[..]).unwrap_err();
        assert!(error.to_string().contains("x.json"));
    }
}
