//! The contract's long rows in real time, with the shipped agent and its own constants: `make test-long`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tests::ports::FreePort;
use tests::{needs, programs};

/// Runs the shipped agent on a script; its status, its stdout and how long it took.
fn run(script: &str) -> (Option<i32>, String, Duration) {
    let out = tempfile::tempdir().expect("a folder");
    let (gateway, control) = (FreePort::find(), FreePort::find());
    let engine = programs::tokenspeed();
    let began = Instant::now();
    let done = Command::new(programs::agent())
        .env("PATH", engine.parent().expect("a folder"))
        .env("FAKE_TS_SCRIPT", script)
        .env("TS_MODEL", "m")
        .env("TS_OUT_DIR", out.path())
        .env("TS_RUN_TOKEN", "long")
        .env("TS_PORT", gateway.number().to_string())
        .env("TS_CONTROL_PORT", control.number().to_string())
        .env("TS_NUM_PROMPTS", "4")
        .env("TS_INPUT_LEN", "8")
        .env("TS_OUTPUT_LEN", "8")
        .env("TS_BENCH_WARMUP_STEPS", "0")
        .env("TS_TEARDOWN_GRACE", "5")
        .env("TS_BENCH_TIMEOUT", "2")
        .stdin(Stdio::null())
        .output()
        .expect("the agent");
    (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned(), began.elapsed())
}

#[test]
fn no_generation_is_52_after_the_whole_window_row_78() {
    if !needs::long() {
        return;
    }
    let (status, stdout, took) = run(r#"{"control": {"health_generate": {"sequence": [503]}}}"#);
    assert_eq!(status, Some(52), "{stdout}");
    assert!(stdout.contains("TS_BENCH_FAIL: health_generate_unhealthy"), "{stdout}");
    assert!((Duration::from_secs(29)..Duration::from_mins(1)).contains(&took), "{took:?}");
}

#[test]
fn generation_in_the_last_second_of_the_window_goes_on_row_79() {
    if !needs::long() {
        return;
    }
    // Probes come every 50 to 100 ms: some 290 of them fill 29 of the window's 30 seconds.
    let sequence = format!("[{}200]", "503,".repeat(285));
    let (status, stdout, took) = run(&format!(r#"{{"control": {{"health_generate": {{"sequence": {sequence}}}}}}}"#));
    assert_eq!(status, Some(0), "{stdout}");
    assert!(took > Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_bench_deaf_to_sigterm_is_killed_a_minute_later_row_83() {
    if !needs::long() {
        return;
    }
    let deaf = r#"{"bench": {"faults": [{"on": {"kind": "measured"}, "before": ["ignore_sigterm", "hang"]}]}}"#;
    let (status, stdout, took) = run(deaf);
    assert_eq!(status, Some(53), "{stdout}");
    assert!(stdout.contains("timed out after 2s"), "{stdout}");
    assert!((Duration::from_secs(61)..Duration::from_secs(100)).contains(&took), "{took:?}");
}
