//! The container argv against the real client and engine: what they understood is read back from the container they
//! made. Nothing runs: `create` takes the same options as `run`.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail as loudly as the test")]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use controller::config::source::{Format, parse};
use controller::config::{Overrides, validate};
use controller::launch::host::Client;
use controller::launch::identity::{Identity, own_process};
use controller::launch::start::{HostEnv, Places, start};
use controller::launch::{scratch, stage};
use proto::names::RunToken;
use serde_json::Value;
use tests::needs;

/// An image without a file in it, removed at the end.
struct EmptyImage(String);

impl EmptyImage {
    fn make() -> Self {
        let name = format!("ts-bench-test-argv-{}", std::process::id());
        // Two empty blocks are the end of a tar archive, and so an empty one.
        let tar = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(tar.path(), [0u8; 1024]).unwrap();
        docker(&["import", tar.path().to_str().unwrap(), &name]);
        Self(name)
    }
}

impl Drop for EmptyImage {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rmi", "-f", &self.0]).output();
    }
}

/// A container that was made and never started.
struct Created(String);

impl Drop for Created {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rm", "-f", &self.0]).output();
    }
}

#[track_caller]
fn docker(args: &[&str]) -> String {
    let out = Command::new("docker").args(args).output().unwrap();
    assert!(out.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// FS-07, FS-42, FS-82.
#[test]
fn the_real_client_understands_every_option() {
    if !needs::docker("the_real_client_understands_every_option") {
        return;
    }
    let image = EmptyImage::make();
    // A comma in a path is the case that a mount option can get wrong.
    let dir = tempfile::Builder::new().prefix("ts,bench").tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("work");
    let config = serde_json::json!({
        "image": image.0, "require_gpu": false, "work_dir": root, "steps": 3, "network": "none", "shm_size": "64m",
        "docker_args": "--cap-add SYS_PTRACE --label team=x -e MINE=1",
        "serve_args": ["--note", "a \"b\" * $HOME"],
        "_aorta_trial_env": {"HSA_NO_SCRATCH_RECLAIM": "1"},
        "_aorta_environment": {"name": "local", "docker": null},
    });
    let loaded = validate(parse(&config.to_string(), Format::Json).unwrap(), &Overrides::default()).unwrap();
    assert!(loaded.findings.is_empty(), "{:?}", loaded.findings);
    let trial = loaded.trial;
    let identity = Identity::current();
    let made = scratch::prepare(&trial.place, identity.uid).unwrap();
    let program = std::env::current_exe().unwrap();
    let agent = stage::Agent { file_name: "agent.abc".into(), ..stage::agent_in_place(&program).unwrap() };
    let places = Places { bin: &made.bin, out: &made.out, hf_home: &made.hf_home, dataset: None, agent: &agent };
    let token = RunToken::parse(&format!("test-{}", std::process::id())).unwrap();
    let mut vars: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    vars.push(("HF_TOKEN".into(), "hf_s3cret".into()));
    let owner = own_process().unwrap();
    let plan = start(&trial, &places, &token, &identity, &owner, &HostEnv::from_pairs(vars)).unwrap();
    assert_eq!(plan.argv[..2], ["docker", "run"]);
    assert!(!plan.argv.iter().any(|word| word.contains("s3cret")));
    // `create` knows no `--pull never` before 20.10 and no other difference.
    let args: Vec<&String> = plan.argv[2..].iter().collect();
    let out = Command::new("docker").arg("create").args(args).env_clear().envs(plan.env.clone()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let created = Created(String::from_utf8_lossy(&out.stdout).trim().to_owned());

    let seen: Value = serde_json::from_str(&docker(&["inspect", &created.0])).unwrap();
    let seen = &seen[0];
    assert_eq!(seen["Name"], format!("/{}", plan.container.unwrap()));
    assert_eq!(seen["Config"]["Entrypoint"], serde_json::json!(["/ts-bin/agent.abc"]));
    assert_eq!(seen["Config"]["Cmd"], Value::Null);
    assert_eq!(seen["Config"]["Image"], image.0);
    assert_eq!(seen["Config"]["User"], format!("{}:{}", identity.uid, identity.gid));
    let host = &seen["HostConfig"];
    assert_eq!(host["AutoRemove"], true);
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(host["IpcMode"], "private");
    assert_eq!(host["ShmSize"], 64 << 20);
    assert_eq!(host["LogConfig"]["Type"], "local");
    assert_eq!(host["LogConfig"]["Config"]["max-size"], "16m");
    assert_eq!(host["SecurityOpt"], serde_json::json!(["seccomp=unconfined"]));
    let added = host["CapAdd"][0].as_str().unwrap();
    assert!(added.ends_with("SYS_PTRACE"), "{added}");
    let mount = |target: &str, source: &Path, readonly: bool| {
        let mounts = host["Mounts"].as_array().unwrap();
        let mount =
            mounts.iter().find(|mount| mount["Target"] == target).unwrap_or_else(|| panic!("{target}: {mounts:?}"));
        assert_eq!((mount["Type"].as_str(), mount["Source"].as_str()), (Some("bind"), source.to_str()));
        assert_eq!(mount["ReadOnly"].as_bool().unwrap_or(false), readonly, "{target}");
    };
    mount("/ts-bin", &made.bin, true);
    mount("/ts-out", &made.out, false);
    mount("/hf-cache", &made.hf_home, false);
    let labels = &seen["Config"]["Labels"];
    assert_eq!(labels["ts-bench.run-token"], token.as_str());
    assert_eq!(labels["ts-bench.host-pid"], std::process::id().to_string());
    assert_eq!(labels["ts-bench.boot-id"], owner.boot_id.as_str());
    assert_eq!(labels["ts-bench.out"], made.out.to_str().unwrap());
    assert_eq!(labels["team"], "x");
    let env: Vec<&str> = seen["Config"]["Env"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for pair in ["TS_BENCH_STEPS=3", "HSA_NO_SCRATCH_RECLAIM=1", "HF_TOKEN=hf_s3cret", "MINE=1", "TS_OUT_DIR=/ts-out"] {
        assert!(env.contains(&pair), "{pair}: {env:?}");
    }
    let args = env.iter().find_map(|pair| pair.strip_prefix("TS_SERVE_ARGS=")).unwrap();
    assert_eq!(proto::args::decode_array(args).unwrap(), ["--note", "a \"b\" * $HOME"]);

    // A source that is missing is refused, where `-v` would have made it as root (failure scenario FS-07).
    std::fs::remove_dir_all(&made.out).unwrap();
    let args: Vec<String> =
        plan.argv[2..].iter().map(|word| word.replace("aorta-ts-serve-", "aorta-ts-serve-x")).collect();
    let out = Command::new("docker").arg("create").args(args).output().unwrap();
    assert!(!out.status.success() && !made.out.exists(), "{}", String::from_utf8_lossy(&out.stdout));
}

#[tokio::test]
async fn the_real_engine_is_local_and_answers() {
    if !needs::docker("the_real_engine_is_local_and_answers") {
        return;
    }
    let document = parse("{\"image\": \"ts-bench-no-such-image:1\", \"pull\": \"never\"}", Format::Json).unwrap();
    let trial = validate(document, &Overrides::default()).unwrap().trial;
    let client = Client::find(&trial).unwrap().unwrap();
    client.local(|name| std::env::var_os(name)).await.unwrap();
    assert!(!client.reachable().await.unwrap().is_empty());
    let error = client.provide_image(&trial, |_| {}).await.unwrap_err();
    assert!(error.message.contains("ts-bench-no-such-image:1"), "{error}");
}
