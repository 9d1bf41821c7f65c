//! Contract section K.2, by row number: phases and exits of the agent against the stand-in engine.

#![expect(clippy::needless_pass_by_value, reason = "`json!` literals as arguments")]

use serde_json::{Value, json};
use std::path::Path;
use tests::trial::Setup;

fn trial(script: Value) -> Setup {
    let program = |path| Path::new(path);
    Setup::new(program(env!("CARGO_BIN_EXE_agent-fast")), program(env!("CARGO_BIN_EXE_tokenspeed")), script)
}

fn bench(faults: Value) -> Value {
    json!({ "bench": { "faults": faults } })
}

fn measured(step: u32, more: Value) -> Value {
    let mut fault = json!({ "on": { "kind": "measured", "step": step } });
    fault.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    fault
}

fn warmup(more: Value) -> Value {
    let mut fault = json!({ "on": { "kind": "warmup" } });
    fault.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    fault
}

#[test]
fn a_sound_trial_passes() {
    let ended = trial(json!({})).set("TS_BENCH_STEPS", "2").set("TS_GENERATE_PROBE", "1").run();
    ended.expect(
        0,
        &[
            "TS_BENCH_OK: health after 0s",
            "TS_BENCH_METRIC: server_startup_sec=",
            "TS_BENCH_OK: health_generate",
            "first token after",
            "TS_BENCH_OK: warmup step 1 completed=8",
            "TS_BENCH_STEP_START: 2",
            "TS_BENCH_RESULT: pass",
            "server exited cleanly on SIGTERM",
        ],
    );
    let markers = std::fs::read(ended.out("markers.t1.log")).expect("markers");
    let markers = proto::marker::Markers::parse(&markers);
    assert_eq!((markers.step_starts, markers.digests.len()), (2, 2));
    assert_eq!(markers.result, Some(proto::marker::Outcome::Pass));
    // The digest is of the file that lies there.
    let export = std::fs::File::open(ended.out("bench.t1.step2.json")).expect("export");
    assert_eq!(proto::export::read(export).expect("export").sha256, markers.digests[1].1);
    assert!(ended.stderr.contains("Serving Benchmark Result"), "the bench's words reach stderr");
}

#[test]
fn row_76_server_exits_at_once() {
    let ended = trial(json!({ "faults": [{ "at": "start", "do": { "exit": { "code": 3 } } }] })).run();
    ended.expect(50, &["server_exited_during_startup rc=3", "--- last 40 lines of server log ---"]);
    ended.never("TS_BENCH_STEP_START").never("TS_BENCH_RESULT");
}

#[test]
fn row_77_never_healthy() {
    let started = std::time::Instant::now();
    let ended = trial(json!({ "control": { "health": { "sequence": [503] } } })).set("TS_READY_TIMEOUT", "6").run();
    ended.expect(51, &["readiness_timeout after 6s"]);
    assert!(started.elapsed() >= std::time::Duration::from_millis(300), "six short seconds");
}

/// FS-47, FS-48, FS-52.
#[test]
fn rows_78_to_80_health_and_generation() {
    trial(json!({ "control": { "health_generate": { "sequence": [503] } } }))
        .run()
        .expect(52, &["health_generate_unhealthy"])
        .never("TS_BENCH_STEP_START");
    // FS-52: health that flaps after its first 200 is not asked again; generation has a budget of its own.
    let flaps = json!({ "sequence": [200, 503, 200, 503] });
    let busy = json!({ "sequence": [503, 503, 503, 503, 503, 200] });
    trial(json!({ "control": { "health": flaps, "health_generate": busy } }))
        .run()
        .expect(0, &["TS_BENCH_RESULT: pass"]);
    let never = json!({ "sequence": [503] });
    trial(json!({ "control": { "health": flaps, "health_generate": never } }))
        .run()
        .expect(52, &["health_generate_unhealthy"]);
    let late: Vec<u16> = [503; 9].into_iter().chain([200]).collect();
    trial(json!({ "control": { "health_generate": { "sequence": late } } }))
        .run()
        .expect(0, &["TS_BENCH_RESULT: pass"]);
    for status in [204, 206, 401, 302] {
        trial(json!({ "control": { "health": { "sequence": [status] }, "location": "/health_generate" } }))
            .set("TS_READY_TIMEOUT", "6")
            .run()
            .expect(51, &["readiness_timeout"]);
    }
}

/// FS-48.
#[test]
fn row_78_a_hanging_answer_is_bounded() {
    trial(json!({ "control": { "health_generate": { "sequence": ["hang"] } } }))
        .time("probe_limit", 300)
        .time("generate_window", 500)
        .run()
        .expect(52, &["health_generate_unhealthy"]);
}

#[test]
fn row_81_bench_fails() {
    trial(bench(json!([warmup(json!({ "before": [{ "exit": 2 }] }))])))
        .run()
        .expect(53, &["warmup step 1 bench exited rc=2"])
        .never("TS_BENCH_STEP_START")
        .never("TS_BENCH_RESULT");
    let ended =
        trial(bench(json!([measured(1, json!({ "before": [{ "exit": 2 }] }))]))).set("TS_BENCH_STEPS", "2").run();
    ended.expect(53, &["step 1 bench exited rc=2"]);
    assert_eq!(ended.count("TS_BENCH_STEP_START"), 1);
}

/// FS-36.
#[test]
fn rows_82_83_step_deadline() {
    let hang = |before: Value| bench(json!([measured(1, json!({ "before": before }))]));
    let ended = trial(hang(json!(["hang"]))).set("TS_BENCH_TIMEOUT", "20").run();
    ended.expect(53, &["step 1 timed out after 20s"]);
    // FS-36: deaf, with a deaf helper; the server hears nothing before the teardown.
    let ended = trial(hang(json!(["ignore_sigterm", { "helper": true }, "hang"])))
        .set("TS_BENCH_TIMEOUT", "20")
        .time("bench_kill_after", 300)
        .run();
    ended.expect(53, &["step 1 timed out after 20s", "server exited cleanly on SIGTERM"]);
    let journal = ended.journal();
    let heard: Vec<_> = journal.iter().filter(|n| n["role"] == "orchestrator" && n["event"] == "signal").collect();
    let killed = journal.iter().filter(|n| n["role"] == "bench").filter_map(|n| n["at_ns"].as_i64()).max();
    assert!(heard.len() == 1 && heard[0]["at_ns"].as_i64() > killed, "{heard:?}, the bench's last word at {killed:?}");
}

/// FS-69.
#[test]
fn rows_84_85_no_export() {
    for fault in [json!({ "place": "nothing" }), json!({ "bytes": ["empty"] })] {
        let setup = trial(bench(json!([measured(1, fault)]))).set("TS_BENCH_STEPS", "2");
        // Row 85: an old one must not be taken for it.
        let out = setup.folder().join("out");
        std::fs::create_dir(&out).expect("out");
        std::fs::write(out.join("bench.t1.step1.json"), r#"{"completed": 8, "failed": 0}"#).expect("stale");
        let ended = setup.run();
        ended.expect(54, &["step 1 exported no result JSON at "]);
        assert_eq!(ended.count("TS_BENCH_STEP_START"), 1);
    }
    trial(bench(json!([warmup(json!({ "place": "nothing" }))])))
        .run()
        .expect(54, &["warmup step 1 exported no result JSON"])
        .never("TS_BENCH_STEP_START");
}

/// FS-59.
#[test]
fn row_86_warmup_shortfall() {
    trial(bench(json!([warmup(json!({ "document": [{ "short": 1 }] }))])))
        .run()
        .expect(55, &["warmup step 1 served_request_shortfall", "completed=7"])
        .never("TS_BENCH_STEP_START");
}

/// FS-59.
#[test]
fn rows_87_to_90_the_last_bad_step_decides() {
    let short = |step| measured(step, json!({ "document": [{ "short": 1 }] }));
    let broken = |step| measured(step, json!({ "document": [{ "set": { "completed": "8" } }] }));
    let dies = |step| measured(step, json!({ "before": [{ "exit": 1 }] }));
    let table = [
        (87, json!([short(1)]), 55, 3, true),
        (88, json!([short(1), broken(2)]), 54, 3, true),
        (89, json!([broken(1), short(2)]), 55, 3, true),
        (90, json!([short(1), dies(2)]), 53, 2, false),
    ];
    for (row, faults, code, starts, result) in table {
        let ended = trial(bench(faults)).set("TS_BENCH_STEPS", "3").run();
        ended.expect(code, &[]);
        assert_eq!(ended.count("TS_BENCH_STEP_START"), starts, "row {row}");
        assert_eq!(ended.count("TS_BENCH_RESULT: fail"), usize::from(result), "row {row}");
    }
}

/// FS-60, FS-66, FS-68.
#[test]
fn rows_91_to_95_exports() {
    let set = |value: Value| json!({ "document": [{ "set": value }] });
    let table = [
        (91, set(json!({ "failed": -1 })), 55),
        (93, set(json!({ "completed": 8.0 })), 54),
        (93, set(json!({ "completed": "8" })), 54),
        (93, json!({ "document": [{ "remove": ["completed"] }] }), 54),
        (94, json!({ "bytes": [{ "text": "[]" }] }), 54),
        (94, json!({ "bytes": [{ "text": "null" }] }), 54),
        (94, json!({ "bytes": [{ "truncate": 0.5 }] }), 54),
        (94, json!({ "bytes": ["invalid_utf8"] }), 0),
        (95, json!({ "document": [{ "set_raw": { "std_itl_ms": "NaN" } }] }), 0),
        (0, json!({ "place": { "symlink": "/dev/zero" } }), 54),
        (0, json!({ "place": "fifo" }), 54),
        (0, json!({ "place": "directory" }), 54),
    ];
    for (row, fault, code) in table {
        // Invalid UTF-8 makes a file that is no JSON text (row 94).
        let code = if fault == json!({ "bytes": ["invalid_utf8"] }) { 54 } else { code };
        let ended = trial(bench(json!([measured(1, fault.clone())]))).run();
        assert_eq!(ended.code, code, "row {row}: {fault}\n{}", ended.stdout);
    }
    let booleans = measured(1, set(json!({ "completed": true, "failed": false })));
    trial(bench(json!([booleans]))).set("TS_NUM_PROMPTS", "1").run().expect(54, &["result_json_unusable"]);
}

#[test]
fn row_96_tokens_keep_files_apart() {
    let first = trial(json!({})).set("TS_RUN_TOKEN", "a").run();
    first.expect(0, &[]);
    let out = first.folder.path().join("out");
    let before: Vec<_> = names(&out);
    let second = trial(json!({})).set("TS_RUN_TOKEN", "b").set("TS_OUT_DIR", out.to_str().expect("text")).run();
    second.expect(0, &[]);
    let after = names(&out);
    assert!(before.iter().all(|name| name.contains(".a.") && after.contains(name)), "{before:?}");
    assert_eq!(after.len(), before.len() * 2, "{after:?}");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|e| e.expect("an entry").file_name().into_string().expect("text")).collect()
}

const ROLLOUT: [(&str, &str); 5] = [
    ("TS_ROLLOUT", "1"),
    ("TS_TEMPERATURE", "1.0"),
    ("TS_IGNORE_EOS", "0"),
    ("TS_SAVE_DETAILED", "1"),
    ("TS_MIN_MEAN_OUTPUT_TOKENS", "2"),
];

fn rollout(script: Value) -> Setup {
    ROLLOUT.iter().fold(trial(script), |setup, (name, value)| setup.set(name, value))
}

#[test]
fn rows_107_to_113_read_back() {
    let reports = |value: Value| json!({ "control": { "server_info": { "sampling_backend": value } } });
    let info = |more: Value| json!({ "control": { "server_info": more } });
    let table = [
        (107, json!({}), 0, "sampling_backend triton"),
        (107, info(json!({ "shape": "top_only" })), 0, "sampling_backend triton"),
        (113, info(json!({ "body": r#"{"server_args": {"sampling_backend": "triton"}}"# })), 0, ""),
        (108, reports(json!("greedy")), 57, "rollout_sampling_ignored"),
        (109, reports(json!("triton_full")), 58, "rollout_sampling_backend_mismatch"),
        (110, reports(json!("Triton")), 58, "rollout_sampling_backend_mismatch"),
        (110, reports(json!("triton ")), 58, "rollout_sampling_backend_mismatch"),
        (111, info(json!({ "status": { "sequence": [404] } })), 60, "404"),
        (111, info(json!({ "status": { "sequence": [503] } })), 60, "503"),
        (111, info(json!({ "status": { "sequence": ["hang"] } })), 60, "no answer within"),
        (111, info(json!({ "status": { "sequence": ["close"] } })), 60, "rollout_sampling_backend_unverified"),
        (112, info(json!({ "body": "not json" })), 60, "is not JSON"),
        (112, info(json!({ "body": "[]" })), 60, "not a JSON object"),
        (112, info(json!({ "body": "{}" })), 60, "has no sampling_backend"),
        (112, info(json!({ "body": r#"{"sampling_backend": null}"# })), 60, "not a string"),
    ];
    for (row, script, code, phrase) in table {
        let ended = rollout(script).run();
        assert_eq!(ended.code, code, "row {row}\n{}", ended.stdout);
        assert!(ended.stdout.contains(phrase), "row {row}: {phrase:?}\n{}", ended.stdout);
        if code != 0 {
            // Row 115.
            ended.never("TS_BENCH_STEP_START").never("warmup step").expect(code, &["server exited cleanly on SIGTERM"]);
        }
    }
    // A try that fails is repeated; the verdict is that of the last one.
    rollout(info(json!({ "status": { "sequence": [503, 503, 200] } }))).run().expect(0, &[]);
}

#[test]
fn row_109_the_reverse() {
    rollout(json!({ "control": { "server_info": { "sampling_backend": "triton" } } }))
        .set("TS_SAMPLING_BACKEND", "triton_full")
        .run()
        .expect(58, &["the engine reports \"triton\"", "requested triton_full"]);
}

#[test]
fn row_114_nobody_asks_outside_rollout() {
    let ended = trial(json!({ "control": { "server_info": { "sampling_backend": "greedy" } } })).run();
    ended.expect(0, &[]).never("sampling_backend");
}

#[test]
fn row_115_server_gone_at_the_read_back() {
    let ended = rollout(json!({
        "control": { "server_info": { "status": { "sequence": ["hang"] } } },
        "faults": [{ "at": { "health_generate": 1 }, "do": { "exit": { "code": 4 } } }],
    }))
    .time("read_back_limit", 20_000)
    .run();
    ended.expect(60, &["rollout_sampling_backend_unverified: server exited rc=4"]);
}

#[test]
fn server_exit_between_readiness_and_the_first_step_is_50() {
    let exits = json!([{ "at": { "health": 1 }, "do": { "exit": { "code": 5 } } }]);
    trial(json!({ "control": { "health_generate": { "sequence": [503] } }, "faults": exits }))
        .run()
        .expect(50, &["server_exited_during_startup rc=5"]);
}

#[test]
fn fs_33_server_exit_during_a_step_names_the_server() {
    for (step, starts) in [(1, 1), (2, 2)] {
        let exits = json!([{ "at": { "step": { "kind": "measured", "step": step } }, "do": { "exit": {} } }]);
        let ended = trial(json!({ "faults": exits, "engine": { "itl_ms": 40 } })).set("TS_BENCH_STEPS", "3").run();
        // The bench may notice first and end by itself; the run ends and names the server all the same.
        ended.expect(53, &["server exited rc=0"]).never("TS_BENCH_RESULT");
        assert!(ended.count("TS_BENCH_STEP_START") >= starts && !ended.stdout.contains("STEP_START: 4"));
    }
}

#[test]
fn generate_probe_wants_a_token() {
    let probe = |script: Value| trial(script).set("TS_GENERATE_PROBE", "1");
    // A 5xx is worth another try.
    let busy = json!({ "requests": [{ "every": 1, "do": { "status": 503 } }] });
    probe(busy).time("generate_probe_min", 400).set("TS_READY_TIMEOUT", "10").run().expect(52, &["no token"]);
    let refused = json!({ "requests": [{ "every": 1, "do": { "status": 404 } }] });
    probe(refused).run().expect(52, &["health_generate_unhealthy: /v1/completions answered 404"]);
    let stalls = json!({ "requests": [{ "every": 1, "do": "error_first" }] });
    probe(stalls).run().expect(52, &["ended without a token"]);
    let dies = json!({
        "requests": [{ "every": 1, "do": "stall" }],
        "engine": { "ttft_ms": 3_600_000 },
        "faults": [{ "at": { "request": 1 }, "do": { "die": 9 } }],
    });
    probe(dies).run().expect(50, &["server_exited_during_startup rc=137"]);
}

#[test]
fn a_build_without_bench_is_refused_before_the_server() {
    let ended = trial(json!({ "help": { "bench": false } })).run();
    ended.expect(64, &["TS_BENCH_FAIL: usage", "lists no bench"]).never("server pid=");
    for silent in [json!({ "help": { "hang": true } }), json!({ "help": { "text": "", "exit": 1 } })] {
        trial(silent).time("query_limit", 1000).run().expect(0, &["finding no_bench_subcommand_list"]);
    }
}

#[test]
fn fs_44_proxies_are_never_asked() {
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    proxy.set_nonblocking(true).expect("non-blocking");
    let url = format!("http://{}", proxy.local_addr().expect("an address"));
    let ended = trial(json!({ "control": { "absent": true } }))
        .set("http_proxy", &url)
        .set("HTTP_PROXY", &url)
        .set("TS_READY_TIMEOUT", "10")
        .run();
    ended.expect(51, &["readiness_timeout"]);
    assert_eq!(proxy.accept().expect_err("nobody").kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn fs_49_a_taken_port_is_named_before_the_start() {
    for index in [0, 1] {
        let setup = trial(json!({}));
        let stranger = std::net::TcpListener::bind(("127.0.0.1", setup.ports()[index])).expect("a listener");
        let ended = setup.run();
        let holder = format!("is held by process {} ", std::process::id());
        ended.expect(64, &["must be free", &holder]).never("server pid=");
        drop(stranger);
    }
}

#[test]
fn fs_49_a_stranger_that_answers_is_not_the_server() {
    use std::io::{Read as _, Write as _};
    // The stand-in never binds its control port; somebody else does, after the start.
    let setup = trial(json!({ "control": { "absent": true }, "startup": { "ms": 100 } }));
    let port = setup.ports()[1];
    let running = setup.start();
    running.until_said("server pid=");
    let stranger = std::net::TcpListener::bind(("127.0.0.1", port)).expect("a listener");
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = stranger.accept().expect("a probe");
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        // Keeps listening until the agent has looked.
        stranger
    });
    let ended = running.end();
    drop(answering.join());
    ended.expect(51, &["a stranger answers", &format!("process {} ", std::process::id())]).never("STEP_START");
}

#[test]
fn fs_51_a_wildcard_bind_is_a_finding() {
    trial(json!({ "gateway": { "host": "0.0.0.0" } })).run().expect(0, &["finding listens_beyond_loopback"]);
}

#[test]
fn fs_38_40_any_output_is_swallowed() {
    let spam = |binary| json!([{ "at": "loading", "do": { "spam": { "bytes": 5_000_000, "binary": binary } } }]);
    trial(json!({ "faults": spam(true) })).run().expect(0, &[]);
    let loud = json!({
        "faults": [
            { "at": "loading", "do": { "spam": { "bytes": 2_000_000, "newlines": true } } },
            { "at": "ready", "do": { "exit": { "code": 7 } } },
        ],
        "bench": { "faults": [{ "before": [{ "stdout": 10_000_000 }] }] },
    });
    let ended = trial(loud).run();
    ended.expect(50, &["rc=7"]);
    let shown = ended.stdout.split("--- last 40 lines of server log ---\n").nth(1).expect("a tail");
    assert!(shown.lines().take_while(|l| !l.starts_with("TS_BENCH_")).count() <= 40);
    let ended = trial(bench(json!([{ "before": [{ "stdout": 10_000_000 }] }]))).run();
    ended.expect(0, &[]);
    assert!(ended.stderr.len() >= 20_000_000, "both steps' words: {}", ended.stderr.len());
}
