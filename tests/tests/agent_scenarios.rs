//! Failure scenarios of the agent that no row of the contract covers; `docs/failure-scenarios.md` has all of them.

use controller::agent_link::{Follow, Link, LinkEvent, Target};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, setfsuid};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tests::needs;
use tests::patience::until;
use tests::processes::{all, marked};
use tests::trial::{Setup, Trial};

fn trial(script: Value) -> Setup {
    let program = |path| Path::new(path);
    Setup::new(program(env!("CARGO_BIN_EXE_agent-fast")), program(env!("CARGO_BIN_EXE_tokenspeed")), script)
}

fn hang() -> Value {
    json!({ "bench": { "faults": [{ "on": { "kind": "measured" }, "before": ["hang"] }] } })
}

/// FS-28: orphans that end while a step runs are reaped while it runs.
#[test]
fn orphans_are_reaped_while_a_step_runs_fs_28() {
    if !needs::root("orphans_are_reaped_while_a_step_runs_fs_28") {
        return;
    }
    // The step's requests are never answered, so it runs until the signal.
    let storm = json!({
        "engine": { "ttft_ms": 3_600_000 },
        "faults": [{ "at": { "step": { "kind": "warmup", "step": 1 } }, "do": { "fork_storm": 500 } }],
    });
    let running = trial(storm).under(&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]).start();
    let init = until("PID 1", || {
        let agent = |p: &tests::processes::Process| p.command.contains("agent-fast") && !p.command.contains("unshare");
        marked(running.mark()).into_iter().find(agent)
    });
    let journal = running.folder().join("journal.jsonl");
    until("the storm", || std::fs::read_to_string(&journal).ok()?.contains("fork_storm").then_some(()));
    let dead = || all().into_iter().filter(|p| p.ppid == init.pid && p.state == 'Z').count();
    until("no dead orphan", || (dead() == 0).then_some(()));
    assert!(!running.stdout().contains("warmup step 1 completed"), "the step still runs");
    let _ = kill(Pid::from_raw(init.pid), Signal::SIGTERM);
    running.end().expect(143, &[]);
}

/// FS-50: a port that was free and is taken before the server binds it: the report says so.
#[test]
fn a_port_stolen_after_the_check_is_named_fs_50() {
    let steals = |child: &str| json!({ "faults": [{ "at": "loading", "do": { "occupy": child } }] });
    trial(steals("gateway")).run().expect(
        50,
        &["server_exited_during_startup", "hint: the server could not bind a port", "ddress already in use"],
    );
    // The real engine goes on without its control port.
    trial(steals("engine"))
        .set("TS_READY_TIMEOUT", "20")
        .run()
        .expect(51, &["hint: the server could not bind a port", "ddress already in use"])
        .never("TS_BENCH_STEP_START");
}

/// FS-54: mode 0600 from the first moment, whatever the umask; another user is refused by it alone.
#[test]
fn a_socket_is_its_owners_alone_fs_54() {
    for umask in ["000", "077"] {
        let words = format!("umask {umask}; exec \"$0\"");
        let running = trial(hang()).set("TS_GRPC_LISTEN", "").under(&["sh", "-c", &words]).start();
        running.until_said("TS_BENCH_STEP_START: 1");
        let socket = running.folder().join("out/agent.t1.sock");
        let mode = std::fs::metadata(&socket).expect("the socket").permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "umask {umask}");
        assert!(UnixStream::connect(&socket).is_ok());
        if Uid::effective().is_root() {
            for folder in [running.folder(), &running.folder().join("out")] {
                std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("a mode");
            }
            let refused = as_somebody_else(move || UnixStream::connect(&socket).map(drop));
            assert_eq!(refused.expect_err("another user").kind(), std::io::ErrorKind::PermissionDenied);
        }
        running.signal(Signal::SIGTERM);
        running.end().expect(143, &[]);
    }
}

/// Does something with another user's rights to files; the thread ends with them.
fn as_somebody_else<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        setfsuid(Uid::from_raw(4242));
        work()
    });
    thread.join().expect("a thread")
}

/// FS-56: a frozen agent is noticed by the keep-alive, and nothing ends because of it.
#[tokio::test]
async fn a_frozen_agent_is_noticed_and_comes_back_fs_56() {
    let running = trial(hang()).set("TS_GRPC_LISTEN", "").start();
    running.until_said("TS_BENCH_STEP_START: 1");
    let mut link = Link::open(Target::Unix(running.folder().join("out/agent.t1.sock")), Follow::default());
    wait_for(&mut link, |event| matches!(event, LinkEvent::Event(_))).await;
    signal_agent(&running, Signal::SIGSTOP);
    // Ten seconds by its constants; the deadline of the step is far away.
    wait_for(&mut link, |event| matches!(event, LinkEvent::Lost { .. })).await;
    signal_agent(&running, Signal::SIGCONT);
    wait_for(&mut link, |event| matches!(event, LinkEvent::Connected { .. })).await;
    running.signal(Signal::SIGTERM);
    let ended = tokio::task::spawn_blocking(|| running.end()).await.expect("its end");
    ended.expect(143, &[]);
}

fn signal_agent(running: &Trial, signal: Signal) {
    for process in marked(running.mark()).iter().filter(|process| process.command.contains("agent-fast")) {
        let _ = kill(Pid::from_raw(process.pid), signal);
    }
}

async fn wait_for(link: &mut Link, wanted: impl Fn(&LinkEvent) -> bool) {
    let found = async {
        while let Some(event) = link.events.recv().await {
            if wanted(&event) {
                return;
            }
        }
        panic!("the link is over");
    };
    tokio::time::timeout(Duration::from_mins(1), found).await.expect("news of the link");
}

/// FS-81: nothing loops over the descriptor limit; as many as this process may have.
#[test]
fn the_highest_descriptor_limit_costs_nothing_fs_81() {
    let most = "ulimit -S -n $(ulimit -H -n); exec \"$0\"";
    trial(json!({})).under(&["sh", "-c", most]).run().expect(0, &["RESULT: pass"]);
}

/// FS-43, FS-90: three descriptors for server and bench, also where the agent itself was started with none and with
/// more.
#[test]
fn children_get_three_descriptors_and_no_input_fs_43_fs_90() {
    for words in ["exec \"$0\" <&-", "exec 7</dev/zero 9>/dev/null; exec \"$0\""] {
        let ended = trial(json!({})).under(&["bash", "-c", words]).run();
        ended.expect(0, &[]);
        let journal = ended.journal();
        for role in ["orchestrator", "bench"] {
            let mut starts = journal.iter().filter(|note| note["role"] == role && note["event"] == "start").peekable();
            assert!(starts.peek().is_some(), "{role}");
            for start in starts {
                assert_eq!(start["fds"], json!([0, 1, 2]), "{role}: {words}");
                assert_eq!(start["stdin"], json!("/dev/null"), "{role}: {words}");
            }
        }
    }
}

/// FS-32: the server outlives every thread that could have started it; it ends when the agent is killed.
#[test]
fn a_server_outlives_idle_threads_fs_32() {
    if !needs::long() {
        return;
    }
    let running = trial(hang()).start();
    running.until_said("TS_BENCH_STEP_START: 1");
    let server = || marked(running.mark()).into_iter().find(|process| process.command.contains(" serve "));
    let before = server().expect("the server").pid;
    // A pool's threads end after ten idle seconds.
    std::thread::sleep(Duration::from_secs(15));
    assert_eq!(server().expect("the server").pid, before);
    running.signal(Signal::SIGKILL);
    running.end().expect(137, &["received SIGTERM; aborting bench"]);
}
