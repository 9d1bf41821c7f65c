//! Each fault of `bench serve` does what it says, and only in the steps that it is meant for.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use tests::patience::until;
use tests::processes::{Guarded, assert_gone};
use tests::server::Server;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tokenspeed");
const SMALL: &[&str] = &["--num-prompts", "3", "--random-output-len", "3", "--ready-check-timeout-sec", "0"];

/// A server whose bench has one fault in measured step 2.
fn server(fault: &Value) -> Server {
    let mut fault = fault.clone();
    fault["on"] = json!({"kind": "measured", "step": 2});
    Server::ready(PROGRAM.as_ref(), &json!({"engine": {"ttft_ms": 1, "itl_ms": 1}, "bench": {"faults": [fault]}}))
}

fn file(server: &Server, step: u32) -> PathBuf {
    server.folder().join(format!("bench.tok.step{step}.json"))
}

fn command(server: &Server, step: u32) -> std::process::Command {
    let mut command = server.bench(SMALL);
    command.arg("--label").arg(format!("bench-step{step}")).arg("--output-file").arg(file(server, step));
    command
}

/// Exit status and bytes of the export of step 2, after a step 1 that must be sound.
fn run(fault: &Value) -> (Option<i32>, Option<Vec<u8>>, Server) {
    let server = server(fault);
    let sound = command(&server, 1).output().expect("the bench runs");
    assert!(sound.status.success(), "{sound:?}");
    let text = std::fs::read_to_string(file(&server, 1)).expect("an export");
    let document: Value = serde_json::from_str(&text).expect("sound JSON");
    assert_eq!((&document["completed"], &document["failed"]), (&json!(3), &json!(0)), "other steps stay sound");
    let out = command(&server, 2).output().expect("the bench runs");
    let bytes = std::fs::metadata(file(&server, 2)).ok().filter(std::fs::Metadata::is_file);
    let bytes = bytes.filter(|m| m.len() < 100 << 20).and_then(|_| std::fs::read(file(&server, 2)).ok());
    (out.status.code(), bytes, server)
}

fn document(fault: &Value) -> Value {
    let (code, bytes, _server) = run(&json!({"document": [fault]}));
    assert_eq!(code, Some(0));
    serde_json::from_slice(&bytes.expect("an export")).expect("JSON")
}

fn text(fault: &Value) -> Vec<u8> {
    let (code, bytes, _server) = run(fault);
    assert_eq!(code, Some(0));
    bytes.expect("a file")
}

#[test]
fn documents() {
    assert_eq!(document(&json!({"short": 1}))["completed"], 2);
    assert_eq!(document(&json!({"failed": -1}))["failed"], -1);
    for value in [json!(true), json!(32.0), json!("32"), json!(null)] {
        assert_eq!(document(&json!({"set": {"completed": value}}))["completed"], value);
    }
    assert!(document(&json!({"remove": ["completed", "failed"]})).get("completed").is_none());
    assert_eq!(document(&json!({"pad": 5_000_000}))["padding"].as_str().map(str::len), Some(5_000_000));
    let raw = text(&json!({"document": [{"set_raw": {"std_itl_ms": "NaN", "median_ttft_ms": "1e999"}}]}));
    let raw = String::from_utf8(raw).expect("text");
    assert!(raw.contains("\"std_itl_ms\": NaN") && raw.contains("\"median_ttft_ms\": 1e999"), "{raw}");
    let double = String::from_utf8(text(&json!({"document": [{"duplicate": {"completed": 0}}]}))).expect("text");
    assert!(double.starts_with("{\"completed\": 0, ") && double.contains("\"completed\": 3"), "{double}");
    let deep = text(&json!({"document": [{"nest": 100_000}]}));
    assert!(deep.windows(100_000).any(|w| w.iter().all(|b| *b == b'[')));
}

#[test]
fn bytes() {
    assert_eq!(text(&json!({"bytes": ["empty"]})), b"");
    assert_eq!(text(&json!({"bytes": [{"text": "[]"}]})), b"[]");
    assert_eq!(text(&json!({"bytes": [{"raw": [0, 255]}]})), [0, 255]);
    let half = text(&json!({"bytes": [{"truncate": 0.5}]}));
    assert!(half.starts_with(b"{\"date\": ") && !half.ends_with(b"}"));
    assert!(String::from_utf8(text(&json!({"bytes": ["invalid_utf8"]}))).is_err());
    assert!(text(&json!({"bytes": ["bom"]})).starts_with(b"\xef\xbb\xbf{"));
    assert!(text(&json!({"bytes": ["utf16"]})).starts_with(b"\xff\xfe{\0"));
}

#[test]
fn places() {
    let at = |fault: Value| {
        let (code, _, server) = run(&json!({"place": fault}));
        assert_eq!(code, Some(0));
        let meta = std::fs::symlink_metadata(file(&server, 2)).ok();
        (meta, server)
    };
    assert!(at(json!("nothing")).0.is_none());
    assert!(at(json!("fifo")).0.is_some_and(|m| m.file_type().is_fifo()));
    assert!(at(json!("directory")).0.is_some_and(|m| m.is_dir()));
    assert!(at(json!({"symlink": "/nowhere"})).0.is_some_and(|m| m.is_symlink()));
    assert!(at(json!({"sparse": 1_u64 << 40})).0.is_some_and(|m| m.len() == 1 << 40));
}

#[test]
fn exits() {
    let (code, bytes, _server) = run(&json!({"before": [{"exit": 3}]}));
    assert_eq!((code, bytes), (Some(3), None));
    let (code, bytes, _server) = run(&json!({"after": [{"exit": 4}]}));
    assert!(code == Some(4) && bytes.is_some());
    let server = server(&json!({"after": [{"die": 11}]}));
    let out = command(&server, 2).output().expect("the bench runs");
    assert_eq!(out.status.signal(), Some(11));
    assert!(file(&server, 2).exists());
}

#[test]
fn output_before_the_export() {
    let server = server(&json!({"before": [{"stdout": 10_000_000}]}));
    let out = command(&server, 2).output().expect("the bench runs");
    assert!(out.status.success() && out.stdout.len() > 10_000_000);
}

#[test]
fn a_hanging_bench_ends_on_sigterm_unless_it_ignores_it() {
    for (before, ends) in [(json!(["hang"]), true), (json!(["ignore_sigterm", {"helper": true}, "hang"]), false)] {
        let server = server(&json!({"before": before}));
        let mut bench = Guarded::spawn(&mut command(&server, 2)).expect("the bench starts");
        let helpers = |bench: &Guarded| bench.family().iter().filter(|p| p.command.contains("__helper")).count();
        if !ends {
            until("the helper", || (helpers(&bench) == 1).then_some(()));
        }
        // It must be past its preparations before the signal counts: only then does it wait in pause(2).
        let pid = bench.pid();
        until("a pause", || {
            let name = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            name.starts_with("34 ").then_some(())
        });
        bench.signal(Signal::SIGTERM);
        if ends {
            assert_eq!(bench.wait().signal(), Some(15));
        } else {
            bench.signal(Signal::SIGINT);
            bench.signal(Signal::SIGKILL);
            assert_eq!(bench.wait().signal(), Some(9), "TERM and INT did nothing");
            let left = bench.family();
            assert_eq!(left.len(), 1, "the helper is left: {left:?}");
            assert!(kill(Pid::from_raw(left[0].pid), Signal::SIGTERM).is_ok());
        }
        let mark = bench.mark().to_owned();
        drop(bench);
        assert_gone(&mark);
    }
}

#[test]
fn a_late_export_comes_after_sigterm() {
    let server = server(&json!({"before": [{"late_export": 300}, "hang"]}));
    let mut bench = Guarded::spawn(&mut command(&server, 2)).expect("the bench starts");
    let pid = bench.pid();
    until("the waiting thread", || {
        std::fs::read_dir(format!("/proc/{pid}/task")).ok().and_then(|tasks| (tasks.count() == 2).then_some(()))
    });
    bench.signal(Signal::SIGTERM);
    assert_eq!(bench.wait().code(), Some(0));
    let text = std::fs::read_to_string(file(&server, 2)).expect("an export");
    assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON")["completed"], 3);
}

#[test]
fn the_bench_can_take_the_server_down_when_it_is_done() {
    let mut server = server(&json!({"after": [{"fire": {"exit": {"code": 6}}}]}));
    assert!(command(&server, 2).output().expect("the bench runs").status.success());
    assert_eq!(server.process.wait().code(), Some(6));
    assert!(file(&server, 2).exists());
}
