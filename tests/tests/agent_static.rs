//! The shipped binary in an image that holds nothing: no libc, no /dev, no passwd, any uid; /proc as every
//! container has it.
//!
//! Needs `make build`; without `dist/` it says so.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::needs::{root, skip};
use tests::ports::FreePort;
use tests::processes::Guarded;

fn shipped(test: &str) -> Option<(PathBuf, PathBuf)> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join("dist");
    let (agent, engine) = (dist.join("agent"), dist.join("tokenspeed"));
    if agent.is_file() && engine.is_file() {
        return Some((agent, engine));
    }
    skip(test, "dist/agent and dist/tokenspeed are not there; run make build");
    None
}

/// FS-46, FS-74.
#[test]
fn a_trial_in_an_empty_root_as_any_uid() {
    let test = "a_trial_in_an_empty_root_as_any_uid";
    let Some((agent, engine)) = shipped(test) else { return };
    if !root(test) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let inside = |name: &str| folder.path().join(name);
    for (name, mode) in [("", 0o755), ("bin", 0o755), ("proc", 0o755), ("ts-out", 0o777)] {
        let _ = std::fs::create_dir(inside(name));
        std::fs::set_permissions(inside(name), PermissionsExt::from_mode(mode)).expect("a mode");
    }
    std::fs::copy(agent, inside("bin/agent")).expect("a copy");
    std::fs::copy(engine, inside("bin/tokenspeed")).expect("a copy");
    let (gateway, control) = (FreePort::find(), FreePort::find());
    // PID 1 of its own namespace, as in a container.
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(format!("--mount-proc={}", inside("proc").display()));
    command.args(["chroot", "--userspec=64321:64321"]).arg(folder.path()).arg("/bin/agent").env_clear();
    let settings = [
        ("PATH", "/bin:/usr/bin:/usr/sbin:/sbin"),
        ("TS_RUN_TOKEN", "t1"),
        ("TS_NUM_PROMPTS", "4"),
        ("TS_INPUT_LEN", "4"),
        ("TS_OUTPUT_LEN", "4"),
        ("TS_GENERATE_PROBE", "1"),
    ];
    command.envs(settings);
    command.env("TS_PORT", gateway.number().to_string()).env("TS_CONTROL_PORT", control.number().to_string());
    command.stdout(std::fs::File::create(inside("stdout")).expect("a file"));
    let mut guarded = Guarded::spawn(&mut command).expect("unshare");
    let status = guarded.wait();
    let said = std::fs::read_to_string(inside("stdout")).expect("text");
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("TS_BENCH_RESULT: pass") && said.contains("server exited cleanly on SIGTERM"), "{said}");
    assert!(inside("ts-out/bench.t1.step1.json").is_file());
}

/// FS-02.
#[test]
fn it_is_small_and_static() {
    let Some((agent, _)) = shipped("it_is_small_and_static") else { return };
    let bytes = std::fs::read(&agent).expect("the agent");
    // As shipped, with the tokenizer.
    assert!(bytes.len() < 10_000_000, "{} bytes", bytes.len());
    // ET_DYN without an interpreter segment: position independent and static.
    assert_eq!(bytes[16], 3, "not position independent");
    let number =
        |at: usize, n: usize| bytes[at..at + n].iter().rev().fold(0_usize, |value, b| value << 8 | usize::from(*b));
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let interpreter = (0..count).any(|i| number(table + i * size, 4) == 3);
    assert!(!interpreter, "it asks for a dynamic loader");
}
