//! One trial, interrupted: by what, when, on what server, in which runtime; and what must be true afterwards
//! (design section 6). The matrix and the soak are lists of such cases.

use crate::controlled::{Controlled, Ended};
use crate::engine::bench::dataset::Random;
use crate::patience::until;
use crate::programs;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;

/// What hits the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blow {
    /// SIGTERM
    Term,
    /// SIGHUP
    Hup,
    /// SIGINT
    Int,
    /// SIGKILL: only the lease is left
    Kill,
    /// SIGTERM, and another one 300 ms later
    TwoTerms,
}

/// A phase that a trial can be held in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The server never becomes healthy
    WaitHealth,
    /// `/health_generate` never says yes
    WaitGenerate,
    /// `/get_server_info` gives no answer (rollout)
    ReadBack,
    /// The probe's token never comes
    Probe,
    /// A warm-up step hangs
    Warmup,
    /// A measured step hangs
    Measure,
    /// The server takes its time to drain
    Teardown,
}

/// When it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// While the trial is held in a phase.
    In(Phase),
    /// So long after the spawn, wherever the trial is then.
    After(Duration),
}

/// What has to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// Ends on SIGTERM
    Normal,
    /// Ignores SIGTERM, with its children
    Deaf,
    /// Has left a deaf orphan in a session of its own
    Stranger,
}

/// What holds the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    /// A plain process
    Process,
    /// The real Docker engine
    Docker,
}

/// One interrupted trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// What hits the controller.
    pub blow: Blow,
    /// When.
    pub when: When,
    /// What has to be stopped.
    pub server: Server,
    /// What holds it.
    pub runtime: Runtime,
}

impl Blow {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Term, Self::Hup, Self::Int, Self::Kill, Self::TwoTerms];

    /// The signal that the controller must be seen to die by.
    pub const fn signal(self) -> Signal {
        match self {
            Self::Term | Self::TwoTerms => Signal::SIGTERM,
            Self::Hup => Signal::SIGHUP,
            Self::Int => Signal::SIGINT,
            Self::Kill => Signal::SIGKILL,
        }
    }
}

impl Phase {
    /// All of them, in the order of a trial.
    pub const ALL: [Self; 7] = [
        Self::WaitHealth,
        Self::WaitGenerate,
        Self::ReadBack,
        Self::Probe,
        Self::Warmup,
        Self::Measure,
        Self::Teardown,
    ];

    /// The agent's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WaitHealth => "wait_health",
            Self::WaitGenerate => "wait_generate",
            Self::ReadBack => "read_back",
            Self::Probe => "generate_probe",
            Self::Warmup => "warmup",
            Self::Measure => "measure",
            Self::Teardown => "teardown",
        }
    }

    /// A script that holds a trial there.
    fn script(self) -> Value {
        let hang = |kind: &str| json!({ "bench": { "faults": [{ "on": { "kind": kind }, "before": ["hang"] }] } });
        match self {
            Self::WaitHealth => json!({ "control": { "health": { "sequence": [503] } } }),
            Self::WaitGenerate => json!({ "control": { "health_generate": { "sequence": [503] } } }),
            Self::ReadBack => json!({ "control": { "server_info": { "status": { "sequence": ["hang"] } } } }),
            Self::Probe => {
                json!({ "requests": [{ "every": 1, "do": "stall" }], "engine": { "ttft_ms": 3_600_000 } })
            }
            Self::Warmup => hang("warmup"),
            Self::Measure => hang("measured"),
            Self::Teardown => json!({ "stop": { "drain_ms": 20_000 } }),
        }
    }

    fn config(self) -> Value {
        match self {
            Self::ReadBack => json!({ "rollout": true, "rollout_samples": 1, "min_mean_output_tokens": 0 }),
            Self::WaitHealth | Self::WaitGenerate | Self::Probe | Self::Warmup | Self::Measure | Self::Teardown => {
                json!({})
            }
        }
    }
}

impl Server {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Normal, Self::Deaf, Self::Stranger];

    fn into(self, script: &mut Value) {
        match self {
            Self::Normal => {}
            Self::Deaf => script["deaf"] = json!({ "leader": true, "children": true }),
            Self::Stranger => {
                let spawn = json!({ "spawn": { "count": 1, "session": "own_session", "orphan": true, "deaf": true } });
                script["faults"] = json!([{ "at": "start", "do": spawn }]);
            }
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { blow, when, server, runtime } = self;
        match when {
            When::In(phase) => write!(f, "{blow:?} in {}, {server:?} server, {runtime:?}", phase.name()),
            When::After(at) => write!(f, "{blow:?} after {} us, {server:?} server, {runtime:?}", at.as_micros()),
        }
    }
}

impl Case {
    /// Runs the trial, interrupts it, and looks at what is left.
    ///
    /// # Panics
    /// When anything is left, when the controller ended otherwise than it must, or when its document is not true.
    pub fn play(self) {
        let (mut script, config) = match self.when {
            When::In(phase) => (phase.script(), phase.config()),
            When::After(_) => (json!({}), json!({ "num_prompts": 4, "steps": 1 })),
        };
        self.server.into(&mut script);
        let trial = match self.runtime {
            Runtime::Process => Controlled::new(&config, script),
            Runtime::Docker => Controlled::docker(&config, &script),
        };
        let mut running = trial.start();
        match self.when {
            When::In(phase) => running.until_journal(&format!("\"name\":\"{}\"", phase.name())),
            When::After(at) => std::thread::sleep(at),
        }
        running.controller().signal(self.blow.signal());
        if self.blow == Blow::TwoTerms {
            std::thread::sleep(Duration::from_millis(300));
            running.controller().signal(Signal::SIGTERM);
        }
        let ended = running.end();
        self.judge(&ended);
    }

    fn judge(self, ended: &Ended) {
        // An instant may lie after the trial's end, which then is its own.
        let own_end = ended.status.code().filter(|_| matches!(self.when, When::After(_)));
        if let Some(code) = own_end {
            assert_eq!(ended.document["passed"], json!(code == 0), "{self}: {}", ended.document);
        } else {
            assert_eq!(ended.status.signal(), Some(self.blow.signal() as i32), "{self}: {}", ended.stderr);
            self.judge_document(ended);
        }
        self.judge_remains(ended);
    }

    fn judge_document(self, ended: &Ended) {
        let document = &ended.document;
        // Before the first look at the command line nothing was started, and the old document is gone or untouched.
        let unborn = matches!(self.when, When::After(at) if at < Duration::from_millis(30));
        if document.is_null() {
            assert!(self.blow == Blow::Kill || unborn, "{self}: no document\n{}", ended.stderr);
            return;
        }
        assert!(document["schema_version"].is_u64(), "{self}: {document}");
        if self.blow == Blow::Kill {
            // It may have been written just before, and then it is the whole truth.
            assert!(document["passed"].is_boolean() || document["error"].is_object(), "{self}: {document}");
            return;
        }
        let reasons = ended.reasons();
        // A trial that had ended when the signal came keeps its verdict; nothing else does.
        let kept = document["passed"] == json!(true) && matches!(self.when, When::After(_));
        assert!(kept || reasons.first() == Some(&"interrupted"), "{self}: {document}");
        if let When::In(phase) = self.when {
            // An engine that is too slow for the signal's 3.9 s leaves the rest to the helper, by name.
            let helped = self.runtime == Runtime::Docker && document["trial"]["reaper"].is_object();
            let wanted: &[&str] = if helped { &["interrupted", "container_not_removed"] } else { &["interrupted"] };
            assert_eq!(reasons, wanted, "{self}: {document}");
            assert_eq!(document["failure_details"][0]["phase"], json!(phase.name()), "{self}");
        }
    }

    fn judge_remains(self, ended: &Ended) {
        let trial = &ended.controlled;
        if self.runtime == Runtime::Docker {
            until(&format!("{self}: no container"), || trial.containers().is_empty().then_some(()));
        }
        until(&format!("{self}: no process"), || trial.processes().is_empty().then_some(()));
        if self.blow == Blow::Kill {
            // What a dead controller cannot take away is named dead and removed on request.
            let reap = Command::new(programs::controller()).arg("reap").env("TMPDIR", trial.folder()).output();
            let reap = reap.expect("reap");
            assert_eq!(reap.status.code(), Some(0), "{self}: {}", String::from_utf8_lossy(&reap.stderr));
        }
        trial.assert_nothing_left();
    }
}

/// Every blow in every phase on every server.
pub fn matrix(runtime: Runtime) -> Vec<Case> {
    let mut cases = Vec::new();
    for phase in Phase::ALL {
        for server in Server::ALL {
            cases.extend(Blow::ALL.map(|blow| Case { blow, when: When::In(phase), server, runtime }));
        }
    }
    cases
}

/// Cases at random instants of a trial; the same seed gives the same ones.
pub fn soak(seed: u64, count: usize, runtime: Runtime, within: Duration) -> Vec<Case> {
    let mut random = Random::new(seed.cast_signed());
    let mut pick = |n: usize| usize::try_from(random.below(n as u64)).unwrap_or(0);
    let micros = usize::try_from(within.as_micros()).unwrap_or(usize::MAX);
    let one = |_| Case {
        blow: Blow::ALL[pick(5)],
        server: Server::ALL[pick(3)],
        when: When::After(Duration::from_micros(pick(micros) as u64)),
        runtime,
    };
    (0..count).map(one).collect()
}
