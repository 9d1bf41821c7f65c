//! GPU memory after a trial, whole: the controller's own loop on a sysfs of our own and the container client of this
//! package, with short waits.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::config::source::{Format, parse};
use controller::config::{Overrides, validate};
use controller::result::document::{Document, ResultDocument};
use controller::result::store::ResultTarget;
use controller::run::dispatcher::{End, Setup, execute};
use controller::run::progress::{Mode, Progress};
use controller::run::timings::{Roots, Timings};
use controller::run::token;
use serde_json::{Value, json};
use tests::{needs, programs};

const GIB: u64 = 1 << 30;

/// A host of our own: GPUs, a container client, a work root.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    /// With so many GPUs that hold a little.
    fn new(gpus: u32, script: &Value) -> Self {
        let host = Self { folder: tempfile::tempdir().unwrap() };
        for gpu in 0..gpus {
            fs::create_dir_all(host.gpu(gpu).parent().unwrap()).unwrap();
            fs::write(host.gpu(gpu).with_file_name("vendor"), "0x1002\n").unwrap();
            host.used(gpu, &(GIB / 4).to_string());
        }
        fs::write(host.path("kfd"), "").unwrap();
        fs::write(host.path("script.json"), script.to_string()).unwrap();
        let client = env!("CARGO_BIN_EXE_fake-docker");
        let words = format!("#!/bin/sh\nFAKE_DOCKER_DIR={} exec {client} \"$@\"\n", host.folder.path().display());
        fs::write(host.path("docker"), words).unwrap();
        fs::set_permissions(host.path("docker"), fs::Permissions::from_mode(0o755)).unwrap();
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn gpu(&self, number: u32) -> PathBuf {
        self.path(&format!("sys/class/drm/card{number}/device/mem_info_vram_used"))
    }

    fn used(&self, gpu: u32, bytes: &str) {
        fs::write(self.gpu(gpu), bytes).unwrap();
    }

    /// How often the client was called with this.
    fn calls(&self, sub: &str) -> usize {
        let begins = format!("\"args\":[\"{sub}\"");
        fs::read_to_string(self.path("calls.jsonl")).unwrap_or_default().matches(&begins).count()
    }

    async fn called(&self, sub: &str) {
        while self.calls(sub) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// One trial while something happens beside it; its document.
    async fn run(&self, changes: &Value, timings: &Timings, beside: impl Future<Output = ()>) -> ResultDocument {
        let mut config = json!({
            "image": "img:1", "model": "m", "container_cli": self.path("docker"), "work_dir": self.path("w"),
            "agent_path": programs::agent(),
        });
        for (key, value) in changes.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        let loaded = validate(parse(&config.to_string(), Format::Json).unwrap(), &Overrides::default()).unwrap();
        let trial = Arc::new(loaded.trial);
        let setup = Setup {
            identity: token::identity(&trial).unwrap(),
            trial,
            findings: loaded.findings,
            timings: *timings,
            roots: Roots { sysfs: self.path("sys"), kfd: self.path("kfd"), registry: Some(self.path("registry")) },
            stops: None,
            target: ResultTarget::open(Some(Path::new(&self.path("result.json")))).unwrap(),
            progress: Progress::new(Mode::None),
            started: Instant::now(),
        };
        let (end, ()) = tokio::join!(execute(setup), beside);
        match end {
            End::Status(1, document) => match *document {
                Document::Result(result) => *result,
                Document::Error(error) => panic!("{error:?}"),
            },
            other @ (End::Status(..) | End::Signal(_)) => panic!("{other:?}"),
        }
    }
}

/// The client fails while its container stays, so every trial of this file ends with a removal.
fn script() -> Value {
    json!({ "run": { "container": "stays", "delay_ms": 300, "exit": 1 } })
}

fn short() -> Timings {
    Timings { gpu_poll: Duration::from_millis(50), gpu_wait: Duration::from_millis(1500), ..Timings::default() }
}

fn reasons(document: &ResultDocument) -> Vec<&str> {
    document.failure_details.iter().map(|detail| detail.reason.as_str()).collect()
}

/// The memory of one GPU as it is held once the client runs.
async fn held(host: &Host, gpu: u32) {
    host.called("run").await;
    host.used(gpu, &(9 * GIB).to_string());
}

/// FS-16, FS-85: the container is gone, its memory comes back later; the trial ends after that, and says nothing of it.
#[tokio::test]
async fn memory_that_comes_back_late_is_waited_for_fs_16_fs_85() {
    if !needs::static_programs("memory_that_comes_back_late_is_waited_for_fs_16_fs_85") {
        return;
    }
    let host = Host::new(2, &script());
    let released = std::cell::Cell::new(None);
    let document = host
        .run(&json!({ "exclusive_gpus": true }), &Timings { gpu_wait: Duration::from_mins(1), ..short() }, async {
            held(&host, 1).await;
            host.called("rm").await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(fs::read_dir(host.path("containers")).unwrap().count(), 0, "it is gone already");
            host.used(1, "0");
            released.set(Some(Instant::now()));
        })
        .await;
    assert!(released.get().is_some(), "the trial ended with the memory still held");
    assert!(document.trial.phases.gpu_memory_wait_ms.is_some());
    assert_eq!(reasons(&document), ["container_failed", "no_bench_export"]);
}

/// FS-16, FS-86: it never comes back: bounded, and a failure only where the GPUs were this trial's alone.
#[tokio::test]
async fn memory_that_never_comes_back_fs_16_fs_86() {
    if !needs::static_programs("memory_that_never_comes_back_fs_16_fs_86") {
        return;
    }
    for exclusive in [true, false] {
        let host = Host::new(2, &script());
        let document = host.run(&json!({ "exclusive_gpus": exclusive }), &short(), held(&host, 1)).await;
        let failed = document.failure_details.iter().find(|detail| detail.reason == "gpu_memory_not_reclaimed");
        assert_eq!(failed.is_some(), exclusive, "{:?}", reasons(&document));
        assert!(failed.is_none_or(|detail| detail.facts["gpu"] == json!(1)), "{failed:?}");
        let found = document.trial.findings.iter().any(|finding| finding.hint.contains("exclusive_gpus"));
        assert_eq!(found, !exclusive, "{:?}", document.trial.findings);
    }
}

/// FS-87: growth on a GPU that the container could not see is not its own, exclusive or not.
#[tokio::test]
async fn growth_on_an_unwatched_gpu_is_nobodys_fs_87() {
    if !needs::static_programs("growth_on_an_unwatched_gpu_is_nobodys_fs_87") {
        return;
    }
    let host = Host::new(2, &script());
    let own = json!({ "exclusive_gpus": true, "hip_visible_devices": "0" });
    let document = host.run(&own, &short(), held(&host, 1)).await;
    assert_eq!(reasons(&document), ["container_failed", "no_bench_export"]);
    assert!(!document.trial.findings.iter().any(|finding| finding.hint.contains("exclusive_gpus")));
}

/// FS-88: readings that break during the trial are neither a release nor a leak.
#[tokio::test]
async fn readings_that_break_are_no_leak_fs_88() {
    if !needs::static_programs("readings_that_break_are_no_leak_fs_88") {
        return;
    }
    let host = Host::new(2, &script());
    let document = host
        .run(&json!({ "exclusive_gpus": true }), &short(), async {
            host.called("run").await;
            host.used(0, "");
            // As good as EIO: the file cannot be read.
            fs::remove_file(host.gpu(1)).unwrap();
            fs::create_dir(host.gpu(1)).unwrap();
        })
        .await;
    assert_eq!(reasons(&document), ["container_failed", "no_bench_export"]);
    let said = serde_json::to_string(&document.trial.findings).unwrap();
    assert!(said.contains("the memory of GPU 0, 1 could be read before the run and cannot be now"), "{said}");

    let nothing = Host::new(0, &script());
    let document = nothing.run(&json!({ "exclusive_gpus": true }), &short(), async {}).await;
    assert_eq!(reasons(&document), ["container_failed", "no_bench_export"]);
    let said = serde_json::to_string(&document.trial.findings).unwrap();
    assert!(said.contains("no GPU shows its memory"), "{said}");
}

/// FS-14: while the container may live, its memory cannot be expected back: nobody waits for it.
#[tokio::test]
async fn no_release_is_waited_for_behind_a_container_that_stays_fs_14() {
    if !needs::static_programs("no_release_is_waited_for_behind_a_container_that_stays_fs_14") {
        return;
    }
    let mut script = script();
    script["rm"] = json!({ "exit": 1, "stderr": "tried to kill container, but did not receive an exit event" });
    let host = Host::new(1, &script);
    let timings = Timings { remove_total: Duration::from_secs(2), ..Timings::default() };
    let document = host.run(&json!({}), &timings, held(&host, 0)).await;
    assert!(reasons(&document).contains(&"container_not_removed"), "{:?}", reasons(&document));
    let detail = document.failure_details.iter().find(|detail| detail.reason == "container_not_removed").unwrap();
    assert!(detail.detail.contains("did not receive an exit event"), "{}", detail.detail);
    let waited = document.trial.phases.gpu_memory_wait_ms.unwrap();
    assert!(waited < 60_000.0, "{waited} ms of the five minutes");
}
