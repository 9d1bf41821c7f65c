//! Each server fault does what it says, against the real kernel.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use tests::patience::until;
use tests::processes::{Process, assert_gone, of_group, of_session};
use tests::server::{Server, request};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tokenspeed");

fn ready(script: &Value) -> Server {
    Server::ready(PROGRAM.as_ref(), script)
}

fn start(script: &Value) -> Server {
    Server::start(PROGRAM.as_ref(), script)
}

fn ask(server: &Server, path: &str) -> u16 {
    request(server.control.number(), "GET", path, "").map_or(0, |answer| answer.status)
}

/// One short completion; the whole answer.
fn complete(server: &Server) -> Option<String> {
    let body = r#"{"prompt":"a","max_tokens":4,"stream":true}"#;
    request(server.gateway.number(), "POST", "/v1/completions", body).map(|answer| answer.text)
}

fn roles(server: &Server) -> Vec<String> {
    let mut roles: Vec<String> = server
        .journal()
        .iter()
        .filter(|entry| entry["event"] == "start")
        .filter_map(|entry| entry["role"].as_str().map(str::to_owned))
        .collect();
    roles.sort();
    roles
}

#[test]
fn three_processes_of_one_group_that_end_in_order() {
    let mut server = ready(&json!({}));
    assert_eq!(roles(&server), ["engine", "gateway", "orchestrator"]);
    let leader = server.process.pid().as_raw();
    let group = of_group(leader);
    assert_eq!(group.len(), 3, "{group:?}");
    let journal = server.journal();
    let starts: Vec<&Value> = journal.iter().filter(|entry| entry["event"] == "start").collect();
    assert!(starts.iter().all(|entry| entry["pgid"] == leader));
    // What the test runner itself lets through is not ours; nothing of the orchestrator's own is added to it.
    assert!(starts.iter().all(|entry| entry["fds"] == starts[0]["fds"]), "{starts:#?}");
    assert!(server.log().contains("ts serve ready on http://127.0.0.1:"), "{}", server.log());
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.wait().code(), Some(0));
    assert_gone(server.process.mark());
    let stopped: Vec<String> = server
        .journal()
        .iter()
        .filter(|entry| entry["event"] == "signal")
        .filter_map(|entry| entry["role"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(stopped, ["orchestrator", "gateway", "engine"]);
}

#[test]
fn start_up_goes_through_the_real_ones_phases() {
    let server = start(&json!({"startup": {"ms": 1500}}));
    let look = || {
        let gateway = |path| request(server.gateway.number(), "GET", path, "").map_or(0, |answer| answer.status);
        (gateway("/health"), gateway("/readiness"), ask(&server, "/health"))
    };
    let mut seen = vec![look()];
    until("readiness", || {
        let now = look();
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        (now == (200, 200, 200)).then_some(())
    });
    // A look is three questions: the server may move on between two of them, so only order is certain.
    assert_eq!(seen.first(), Some(&(0, 0, 0)));
    assert!(seen.contains(&(200, 503, 0)) && seen.contains(&(200, 200, 0)), "{seen:?}");
    assert!(seen.is_sorted_by_key(|(a, b, c)| (*a == 200, *b == 200, *c == 200)), "{seen:?}");
}

#[test]
fn exit_statuses_at_each_phase() {
    let exit = |at: Value| json!({"faults": [{"at": at, "do": {"exit": {"code": 7}}}]});
    for at in [json!("start"), json!("loading"), json!("ready")] {
        let mut server = start(&exit(at.clone()));
        assert_eq!(server.process.wait().code(), Some(7), "{at}");
        assert_eq!(ask(&server, "/health"), 0, "{at}");
        assert_gone(server.process.mark());
    }
    for at in [json!({"health": 2}), json!({"health_generate": 1})] {
        let mut server = start(&exit(at.clone()));
        server.await_health();
        // The answer that sets the exit off still comes; whatever is asked after it may find nobody.
        let last = if at.get("health").is_some() { "/health" } else { "/health_generate" };
        assert_eq!(ask(&server, last), 200, "{at}");
        assert_eq!(server.process.wait().code(), Some(7), "{at}");
    }
    let mut server = ready(&exit(json!({"request": 3})));
    for _ in 0..3 {
        let _ = complete(&server);
    }
    assert_eq!(server.process.wait().code(), Some(7));
}

#[test]
fn a_step_is_known_by_its_request_ids() {
    let script = json!({"faults": [{"at": {"step": {"kind": "measured", "step": 2, "request": 3}},
        "do": {"child_exit": {"child": "engine"}}}]});
    let mut server = ready(&script);
    let run = |server: &Server, prefix: &str| {
        let id = format!("aorta-tok-{prefix}");
        let args = [
            "--num-prompts",
            "5",
            "--max-concurrency",
            "1",
            "--random-output-len",
            "2",
            "--ready-check-timeout-sec",
            "0",
        ];
        server.bench(&args).args(["--request-id-prefix", &id]).output().expect("the bench runs")
    };
    for prefix in ["bench-warmup-s1", "bench-warmup-s2", "bench-s1"] {
        assert!(run(&server, prefix).status.success());
        assert!(server.process.ended().is_none(), "{prefix}");
    }
    run(&server, "bench-s2");
    // A child that ends with 0 takes the orchestrator with it, with 0.
    assert_eq!(server.process.wait().code(), Some(0));
}

#[test]
fn the_orchestrator_follows_its_children() {
    for (action, phase, code) in [
        (json!({"child_exit": {"child": "gateway", "signal": 9}}), "ready", 247),
        (json!({"child_exit": {"child": "engine", "code": 5}}), "ready", 5),
        (json!({"child_exit": {"child": "engine", "code": 0}}), "loading", 1),
    ] {
        let mut server = start(&json!({"faults": [{"at": phase, "do": action}]}));
        assert_eq!(server.process.wait().code(), Some(code), "{action}");
        assert_gone(server.process.mark());
    }
}

#[test]
fn a_taken_gateway_port_is_1_and_a_taken_control_port_a_warning() {
    let reference = ready(&json!({}));
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let mut server = Server::start_with(PROGRAM.as_ref(), &json!({}), &["--port", &port]);
    assert_eq!(server.process.wait().code(), Some(1));
    let server = Server::start_with(PROGRAM.as_ref(), &json!({}), &["--control-port", &port]);
    until("the gateway serves", || complete(&server).filter(|text| text.contains("[DONE]")));
    until("a warning", || server.log().contains("WARNING: control server could not bind").then_some(()));
    drop(reference);
}

#[test]
fn a_leader_can_go_and_leave_its_children() {
    for action in [json!({"exit": {"code": 3, "leave_children": true}}), json!({"die": 9}), json!({"die": 6})] {
        let mut server = ready(&json!({}));
        server.fault(&action);
        let status = server.process.wait();
        match action["die"].as_i64() {
            Some(signal) => assert_eq!(status.signal().map(i64::from), Some(signal)),
            None => assert_eq!(status.code(), Some(3)),
        }
        let left = server.process.family();
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(complete(&server).is_some_and(|text| text.contains("[DONE]")), "they serve on");
    }
}

#[test]
fn deaf_processes_stay() {
    let mut server = ready(&json!({"deaf": {"leader": true, "children": true}}));
    server.process.signal_group(Signal::SIGTERM);
    server.process.signal_group(Signal::SIGINT);
    // The signals were taken before these answers were given.
    assert_eq!((ask(&server, "/health"), server.process.ended()), (200, None));
    assert!(complete(&server).is_some());
    assert_eq!(server.process.family().len(), 3);
}

#[test]
fn deaf_children_are_killed_when_the_drain_is_over() {
    let script = json!({"deaf": {"children": true}});
    let mut server = Server::start_with(PROGRAM.as_ref(), &script, &["--drain-timeout", "1"]);
    server.await_health();
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.wait().code(), Some(0));
    assert_gone(server.process.mark());
}

#[test]
fn answers_of_the_control_port() {
    let script = json!({"control": {
        "health": {"sequence": [204, 302, 503, 200], "cycle": true}, "location": "http://127.0.0.1:1/",
        "health_generate": {"sequence": [503, "close", 200]},
        "server_info": {"status": {"sequence": [503, 200]}, "shape": "flat", "sampling_backend": null}}});
    let server = start(&script);
    let first = until("an answer", || server.health());
    assert_eq!(first.status, 204);
    let redirect = server.health().expect("an answer");
    assert_eq!(redirect.status, 302);
    assert!(redirect.text.contains("location: http://127.0.0.1:1/"), "{}", redirect.text);
    let next: Vec<u16> = (0..3).map(|_| ask(&server, "/health")).collect();
    assert_eq!(next, [503, 200, 204]);
    let generate: Vec<u16> = (0..4).map(|_| ask(&server, "/health_generate")).collect();
    assert_eq!(generate, [503, 0, 200, 200]);
    assert_eq!(ask(&server, "/get_server_info"), 503);
}

#[test]
fn shapes_of_the_server_info() {
    let info = |knobs: Value, backend: &[&str]| {
        let mut server = Server::start_with(PROGRAM.as_ref(), &json!({"control": {"server_info": knobs}}), backend);
        server.await_health();
        let answer = request(server.control.number(), "GET", "/get_server_info", "").expect("an answer");
        serde_json::from_str::<Value>(answer.body()).unwrap_or(Value::Null)
    };
    let triton = &["--sampling-backend", "triton"];
    let nested = info(json!({}), triton);
    assert_eq!(nested["server_args"]["sampling_backend"], "triton");
    assert!(nested.get("sampling_backend").is_none());
    assert_eq!(info(json!({}), &[])["server_args"]["sampling_backend"], "greedy");
    let flat = info(json!({"shape": "flat", "sampling_backend": "triton_full"}), triton);
    assert_eq!(
        (&flat["sampling_backend"], &flat["server_args"]["sampling_backend"]),
        (&json!("triton_full"), &json!("triton_full"))
    );
    let absent = info(json!({"shape": "absent"}), triton);
    assert!(absent.get("sampling_backend").or(absent["server_args"].get("sampling_backend")).is_none());
    assert_eq!(info(json!({"shape": "top_only", "sampling_backend": 3}), triton)["sampling_backend"], 3);
    assert_eq!(info(json!({"body": "not json"}), triton), Value::Null);
}

#[test]
fn hanging_is_connectable_and_silent() {
    let server = ready(&json!({}));
    server.fault(&json!("hang"));
    for port in [server.gateway.number(), server.control.number()] {
        until("silence", || {
            use std::io::{Read as _, Write as _};
            let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).expect("still listening");
            socket.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").expect("takes bytes");
            socket.set_read_timeout(Some(std::time::Duration::from_millis(300))).expect("a timeout");
            // An answer only means that the fault has not arrived yet.
            socket.read(&mut [0; 1]).is_err().then_some(())
        });
    }
}

#[test]
fn a_start_up_that_hangs_can_still_be_ended() {
    for at in ["start", "loading"] {
        let mut server = start(&json!({"startup": {"ms": 50}, "faults": [{"at": at, "do": "hang"}]}));
        until("the engine", || (roles(&server) == ["engine", "orchestrator"]).then_some(()));
        server.process.signal(Signal::SIGTERM);
        assert_eq!(server.process.wait().code(), Some(0), "{at}");
        assert_eq!(roles(&server), ["engine", "orchestrator"], "{at}: no gateway was ever started");
    }
}

#[test]
fn a_port_can_be_stolen_after_the_check() {
    let mut server = start(&json!({"faults": [{"at": "start", "do": {"occupy": "gateway"}}]}));
    assert_eq!(server.process.wait().code(), Some(1));
    assert!(server.log().contains("cannot bind 127.0.0.1:"), "{}", server.log());
    let server = start(&json!({"faults": [{"at": "loading", "do": {"occupy": "engine"}}]}));
    until("a warning", || server.log().contains("could not bind").then_some(()));
}

#[test]
fn a_stopped_group_has_stopped() {
    let server = ready(&json!({}));
    server.fault(&json!("stop_group"));
    let states = || server.process.family().iter().map(|p| p.state).collect::<Vec<_>>();
    until("all three stopped", || (states() == ['T', 'T', 'T']).then_some(()));
    server.process.signal_group(Signal::SIGCONT);
    until("all three go on", || (!states().contains(&'T')).then_some(()));
}

fn session_of(pid: i32) -> i32 {
    nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(pid))).expect("a session").as_raw()
}

/// Members of the family beside the regular three.
fn extra(server: &Server) -> Vec<Process> {
    server.process.family().into_iter().filter(|process| process.command.contains("__helper")).collect()
}

#[test]
fn extra_processes_where_they_are_wanted() {
    let mut server = ready(&json!({}));
    let leader = server.process.pid().as_raw();
    for (session, own_group, own_session) in
        [("shared", false, false), ("own_group", true, false), ("own_session", true, true)]
    {
        let before = extra(&server).len();
        server.fault(&json!({"spawn": {"session": session, "orphan": true, "deaf": true}}));
        let sleeper = until("one more", || {
            let now = extra(&server);
            // Past the middle process and past its own setup.
            now.into_iter().skip(before).find(|p| p.ppid != leader && (p.pgid != leader) == own_group)
        });
        assert_eq!(sleeper.sid != session_of(leader), own_session, "{sleeper:?}");
    }
    server.process.signal_group(Signal::SIGTERM);
    assert_eq!(server.process.wait().code(), Some(0));
    assert_eq!(extra(&server).len(), 3, "deaf ones outlive the polite end");
}

#[test]
fn an_orphan_keeps_the_port() {
    for (holds, port) in [("gateway", 0), ("engine", 1)] {
        let mut server = ready(&json!({}));
        server.fault(&json!({"spawn": {"session": "own_session", "orphan": true, "holds": holds}}));
        let leader = server.process.pid().as_raw();
        until("the holder", || {
            let outside =
                |p: &Process| p.sid != session_of(leader) && p.ppid != leader && !p.command.contains("orphan");
            extra(&server).iter().any(outside).then_some(())
        });
        server.process.signal_group(Signal::SIGTERM);
        server.process.wait();
        let number = [server.gateway.number(), server.control.number()][port];
        until("only the holder is left", || (server.process.family().len() == 1).then_some(()));
        assert!(TcpListener::bind(("127.0.0.1", number)).is_err(), "{holds}: the port is still taken");
    }
}

#[test]
fn zombies_and_storms() {
    let server = ready(&json!({}));
    let leader = server.process.pid().as_raw();
    let session = of_session(session_of(leader));
    assert!(session.iter().filter(|p| p.pgid == leader).all(|p| p.state != 'Z'));
    server.fault(&json!({"zombies": 3}));
    let dead = || of_group(leader).iter().filter(|p| p.state == 'Z').count();
    until("three zombies", || (dead() == 3).then_some(()));
    server.fault(&json!({"fork_storm": 50}));
    // The orchestrator does one thing after the other: when it answers a later fault, the storm is over.
    server.fault(&json!({"spam": {"bytes": 10, "newlines": false}}));
    until("the spam after the storm", || server.log().contains("abcdefghij").then_some(()));
}

#[test]
fn spam_reaches_the_log_whole() {
    let server = ready(&json!({}));
    server.fault(&json!({"spam": {"bytes": 3_000_000, "binary": true}}));
    let log = server.folder().join("server.log");
    let bytes = until("three megabytes", || std::fs::read(&log).ok().filter(|b| b.len() > 3_000_000));
    let spam = &bytes[bytes.iter().position(|b| *b == 0).expect("binary")..];
    assert!(!spam.contains(&b'\n'), "no line feed in it");
    assert!((0..=255u8).filter(|b| *b != b'\n').all(|b| spam.contains(&b)), "every other byte");
}

#[test]
fn a_wildcard_bind() {
    let server = ready(&json!({"gateway": {"host": "0.0.0.0"}}));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("sockets");
    let wanted = format!("00000000:{:04X} 00000000:0000 0A", server.gateway.number());
    assert!(table.contains(&wanted), "{wanted}");
}

#[test]
fn the_scripted_end() {
    let mut server = ready(&json!({"stop": {"exit": 9}, "faults": [{"at": "sigterm", "do": {"spam": {"bytes": 26}}}]}));
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.wait().code(), Some(9));
    assert!(server.log().contains("abcdefghijklmnopqrstuvwxyz"));
}

#[test]
fn a_stream_is_cut_when_the_drain_is_over() {
    let script = json!({"engine": {"ttft_ms": 5, "itl_ms": 100}});
    let mut server = Server::start_with(PROGRAM.as_ref(), &script, &["--drain-timeout", "1"]);
    server.await_health();
    let port = server.gateway.number();
    let client = std::thread::spawn(move || {
        request(port, "POST", "/v1/completions", r#"{"prompt":"a","max_tokens":1000,"stream":true}"#)
    });
    until("a running stream", || (server.truth().active == 1).then_some(()));
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.wait().code(), Some(0));
    let text = client.join().expect("the client").expect("part of an answer").text;
    assert!(text.contains("data: {") && !text.contains("[DONE]"), "cut");
}

#[test]
fn a_bad_script_is_refused_by_name() {
    let run = |script: &str| {
        let out = std::process::Command::new(PROGRAM)
            .arg("version")
            .env(tests::engine::script::VARIABLE, script)
            .output()
            .expect("runs");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, words) = run(r#"{"engine":{"itl":3}}"#);
    assert_eq!(code, Some(78));
    assert!(words.contains("unknown field `itl`") && words.contains("README"), "{words}");
    assert!(matches!(run("/nowhere/script.json"), (Some(78), words) if words.contains("/nowhere/script.json")));
    assert!(matches!(run(r#"{"engine":{"tokens_per_chunk":0}}"#), (Some(78), words) if words.contains("at least 1")));
}

#[test]
fn a_build_without_bench() {
    let run = |args: &[&str], script: Value| {
        let mut command = std::process::Command::new(PROGRAM);
        let out = command.args(args).env(tests::engine::script::VARIABLE, script.to_string()).output().expect("runs");
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let none = json!({"help": {"bench": false}});
    assert!(
        matches!(run(&["--help"], json!({})), (Some(0), help) if help.contains("{serve,bench,env,merge-traces,version}"))
    );
    assert!(matches!(run(&["--help"], none.clone()), (Some(0), help) if !help.contains("bench")));
    assert_eq!(run(&["bench", "serve"], none).0, Some(2));
    assert_eq!(run(&[], json!({})).0, Some(1));
    assert_eq!(run(&["version"], json!({"version": {"text": "v?", "exit": 3}})), (Some(3), "v?\n".into()));
}
