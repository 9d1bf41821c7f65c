//! A disk that fills up at each write of a trial: a failure with a reason, a document, and nothing left.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::controlled::{Controlled, Ended};
use tests::needs;

/// A file system of a few pages, gone when the test ends.
struct Small(PathBuf);

impl Small {
    fn new(test: &str, folder: &Path, size: &str) -> Option<Self> {
        if !needs::root(test) {
            return None;
        }
        std::fs::create_dir_all(folder).expect("a folder");
        let options = format!("size={size},mode=0755");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder).output();
        let mount = mount.expect("mount");
        if !mount.status.success() {
            needs::skip(test, &format!("tmpfs cannot be mounted ({})", String::from_utf8_lossy(&mount.stderr).trim()));
            return None;
        }
        Some(Self(folder.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn run_on(test: &str, size: &str, script: Value) -> Option<(Ended, Small)> {
    let trial = Controlled::new(&json!({}), script);
    let small = Small::new(test, &trial.folder().join("w"), size)?;
    Some((trial.run(), small))
}

#[test]
fn a_full_disk_during_the_export_is_a_failure_with_a_reason_fs_66() {
    let pad = json!({ "bench": { "faults": [{ "on": { "kind": "measured", "step": 2 }, "document": [{ "pad": 8_000_000 }] }] } });
    let test = "a_full_disk_during_the_export_is_a_failure_with_a_reason_fs_66";
    let Some((ended, _small)) = run_on(test, "2m", pad) else { return };
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(["bench_step_failed", "result_json_unusable"].contains(&ended.reasons()[0]), "{}", ended.document);
    assert_eq!(ended.document["passed"], json!(false));
    assert_eq!(ended.document["executed_iterations"], json!(1), "the sound first step stays: {}", ended.document);
    ended.controlled.assert_nothing_left();
}

#[test]
fn a_disk_filled_by_the_servers_log_ends_in_order_fs_83() {
    let spam = json!({ "faults": [{ "at": { "step": { "kind": "measured", "step": 1, "request": 1 } },
        "do": { "spam": { "bytes": 20_000_000, "newlines": false } } }] });
    let test = "a_disk_filled_by_the_servers_log_ends_in_order_fs_83";
    let Some((ended, _small)) = run_on(test, "2m", spam) else { return };
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.document["passed"], json!(false), "{}", ended.document);
    assert!(!ended.reasons().is_empty());
    ended.controlled.assert_nothing_left();
}

#[test]
fn a_full_disk_from_the_start_is_named_fs_83() {
    let test = "a_full_disk_from_the_start_is_named_fs_83";
    let trial = Controlled::new(&json!({}), json!({}));
    let Some(small) = Small::new(test, &trial.folder().join("w"), "64k") else { return };
    std::fs::write(small.0.join("filler"), vec![0_u8; 65_536]).ok();
    let ended = trial.run();
    assert_eq!(ended.status.code(), Some(69), "{}\n{}", ended.stderr, ended.document);
    let message = ended.document["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("No space left") && message.contains("/w"), "{message}");
    ended.controlled.assert_nothing_left();
}

#[test]
fn a_document_that_cannot_be_written_is_said_and_not_a_pass() {
    let test = "a_document_that_cannot_be_written_is_said_and_not_a_pass";
    let trial = Controlled::new(&json!({}), json!({}));
    let folder = trial.folder().join("full");
    let Some(small) = Small::new(test, &folder, "64k") else { return };
    std::fs::write(small.0.join("filler"), vec![0_u8; 65_536]).ok();
    let result = folder.join("result.json");
    let ended = trial.arg("--result").arg(&result.display().to_string()).run();
    assert!(!ended.status.success(), "{}", ended.stderr);
    assert!(ended.stderr.contains("No space left") && ended.stderr.contains("result.json"), "{}", ended.stderr);
    assert!(std::fs::metadata(&result).is_err(), "half a document");
    ended.controlled.assert_nothing_left();
}
