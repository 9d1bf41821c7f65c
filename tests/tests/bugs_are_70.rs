//! A panic is a bug, and a bug is 70 with its reason in words: never Rust's own 101, never a pass.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use tests::{needs, programs};

/// A uid of nobody else, so that the limit counts this test's threads alone.
const UID: u32 = 61_070;

/// Runs a program that is allowed no second thread: what its runtime can only panic about.
fn without_threads(program: &std::path::Path, args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new("/usr/bin/prlimit");
    command.arg("--nproc=1").arg(program).args(args).env_clear().env("PATH", "/usr/bin:/bin").uid(UID).gid(UID);
    let out = command.envs(env.iter().copied()).current_dir("/").output().expect("prlimit");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn no_thread_to_be_had() {
    if !needs::root("no_thread_to_be_had") {
        return;
    }
    // Reachable for the other uid.
    let folder = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir().expect("one");
    for program in [programs::agent(), programs::controller(), programs::tokenspeed()] {
        std::fs::copy(&program, folder.path().join(program.file_name().expect("a name"))).expect("a copy");
    }
    let out = folder.path().join("out");
    std::fs::create_dir(&out).expect("out");
    std::os::unix::fs::chown(&out, Some(UID), Some(UID)).expect("owner");
    let path = folder.path().display().to_string();
    let env =
        [("TS_MODEL", "m"), ("TS_NUM_PROMPTS", "4"), ("TS_OUT_DIR", out.to_str().expect("a path")), ("PATH", &path)];
    let (code, stdout, stderr) = without_threads(&folder.path().join("agent"), &["run"], &env);
    assert_eq!(code, Some(70), "{stdout}\n{stderr}");
    assert!(!stderr.is_empty(), "{stdout}");
    assert!(!stdout.contains("TS_BENCH_RESULT: pass"));

    let config = folder.path().join("c.json");
    std::fs::write(&config, r#"{"model": "m", "runtime": "process"}"#).expect("config");
    let args = ["run", "--config", config.to_str().expect("a path")];
    let (code, stdout, stderr) = without_threads(&folder.path().join("controller"), &args, &[("PATH", &path)]);
    // Said in words before anything is started: the host cannot run it.
    assert_eq!(code, Some(69), "{stdout}\n{stderr}");
    assert!(stderr.contains("signals cannot be handled"), "{stderr}");
}
