//! Contract K.5, row by row, without an engine: guards, environment, argv.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proto::names::RunToken;

use super::argv::{self, Container};
use super::env::{self, Environment, Locations, Run};
use super::guard::Owned;
use super::identity::Identity;
use super::ports::Ports;
use super::{docker_args, guard};
use crate::config::source::{Format, parse};
use crate::config::trial::{RuntimeKind, Trial};
use crate::config::{Overrides, validate};
use crate::error::ConfigErrors;
use crate::run::identity::ProcessIdentity;

fn read(yaml: &str) -> Result<Trial, ConfigErrors> {
    validate(parse(yaml, Format::Yaml).unwrap(), &Overrides::default()).map(|loaded| loaded.trial)
}

fn ok(yaml: &str) -> Trial {
    read(yaml).unwrap_or_else(|e| panic!("{yaml}: {e}"))
}

/// Judges `docker_args` as words.
fn args(runtime: &str, extra: &str, words: &[&str]) -> Result<(), String> {
    let list = serde_json::to_string(words).unwrap();
    match read(&format!("{{runtime: {runtime}, {extra} docker_args: {list}}}")) {
        Ok(_) => Ok(()),
        Err(errors) => {
            assert_eq!(errors.first.key.as_deref(), Some("docker_args"), "{errors}");
            Err(errors.first.message)
        }
    }
}

#[track_caller]
fn refused(words: &[&str]) -> String {
    args("docker", "", words).err().unwrap_or_else(|| panic!("accepted: {words:?}"))
}

/// FS-42, FS-82.
#[test]
fn row_187_owned_options() {
    for words in [
        &["--name", "x"][..],
        &["--name=x"],
        &["-v", "a:b"],
        &["-v/tmp:/ts-out"],
        &["-iv/tmp:/ts-out"],
        &["--volume=a:b"],
        &["--mount", "type=bind,source=/,target=/x"],
        &["--entrypoint", "sh"],
        &["--net=host"],
        &["--network", "none"],
        &["-u0:0"],
        &["-u", "0"],
        &["--user=0"],
        &["--ipc", "host"],
        &["--shm-size", "1g"],
        &["--rm=false"],
        &["--rm"],
        &["--device", "x"],
        &["--group-add", "x"],
        &["--security-opt", "x"],
        &["--env-file", "f"],
        // Design section 4 and contract F.9, recommended additions.
        &["--log-driver", "none"],
        &["--log-opt", "max-size=1"],
        &["--pull", "always"],
        &["--pull=always"],
        &["--volumes-from", "x"],
        &["--restart", "always"],
        &["--label", "ts-bench.uid=0"],
        &["--label=ts-bench.run-token=x"],
        &["-l", "ts-bench.x"],
        &["-lts-bench.x=1"],
        &["-il=ts-bench.x=1"],
        &["--label-file", "f"],
        &["--sig-proxy=false"],
    ] {
        let message = refused(words);
        assert!(message.contains("docker_args may not set"), "{words:?}: {message}");
    }
    for words in [&["--label", "team=x"][..], &["-l", "team=x"], &["--label=team=x"], &["--annotation", "ts-bench.x=1"]]
    {
        args("docker", "", words).unwrap();
    }
}

#[test]
fn podman_has_more_doors() {
    for words in [
        &["--replace"][..],
        &["--env-host"],
        &["--rootfs"],
        &["--userns=keep-id"],
        &["--pod", "p"],
        &["--unsetenv", "TS_PORT"],
        &["--secret", "s,type=env,target=TS_PORT"],
    ] {
        assert!(args("podman", "", words).is_err(), "{words:?}");
    }
    args("docker", "", &["--userns=host"]).unwrap();
    assert!(args("podman", "", &["-e", "TS_*"]).is_err());
}

#[test]
fn row_188_detach() {
    for words in ["-d", "--detach", "--detach=true", "-dit", "-itd", "-id"] {
        refused(&[words]);
    }
}

#[test]
fn rows_189_and_190_variables() {
    for words in [
        &["-e=TS_MAX_CONCURRENCY=1"][..],
        &["-eTS_RUN_TOKEN=x"],
        &["-ieTS_RUN_TOKEN=x"],
        &["--env=TS_MODEL=x"],
        &["-e", "TS_MODEL"],
        &["--env", "TS_MODEL=x"],
        &["-e", "HOME=/x"],
        &["-e", "NO_PROXY=x"],
        &["-ti", "-e", "TS_LEASE_SEC=0"],
    ] {
        assert!(refused(words).contains("protocol variable"), "{words:?}");
    }
    for words in [
        &["-emodel=x"][..],
        &["-e", "--name"],
        &["-e", "MY=1"],
        &["-hfoo"],
        &["-wd"],
        &["-p", "80:80"],
        &["--cap-add", "X"],
        &["-e"],
        &["-e", "TS_DRAIN_TIMEOUT=3"],
        &["--ulimit", "nofile=1"],
        &["--privileged"],
        &["-it"],
    ] {
        args("docker", "", words).unwrap_or_else(|e| panic!("{words:?}: {e}"));
    }
}

/// FS-76.
#[test]
fn row_191_secrets() {
    for words in [&["-e", "HF_TOKEN"][..], &["--env=HF_TOKEN=x"], &["-eHF_TOKEN=x"], &["-e", "TS_GRPC_TOKEN"]] {
        assert!(refused(words).contains("credential"), "{words:?}");
    }
    args("docker", "", &["-e", "MYTOK=x"]).unwrap();
    let message = args("docker", "hf_token_env: MYTOK,", &["-e", "MYTOK=s3cret"]).unwrap_err();
    assert!(message.contains("credential MYTOK"), "{message}");
    assert!(args("docker", "hf_token_env: MYTOK,", &["-e", "HF_TOKEN"]).is_err());
}

#[test]
fn row_192_an_option_in_the_place_of_a_label() {
    refused(&["--label", "--name"]);
}

#[test]
fn a_bare_word_would_be_the_image() {
    for words in [
        &["ubuntu"][..],
        &["--cap-add", "X", "ubuntu"],
        &["--cap-add=X", "ubuntu"],
        &["-e", "A=1", "ubuntu"],
        &["-it", "ubuntu"],
        &["--privileged", "ubuntu"],
        &["--"],
        &["-"],
        &["-p80:80", "ubuntu"],
    ] {
        assert!(refused(words).contains("for the image"), "{words:?}");
    }
}

/// Every variable of ours, under settings that switch everything on.
const EVERYTHING: &str = "{rollout: true, top_p: 0.9, max_concurrency: 8, serve_args: [a], bench_args: [--no-calibration], \
    hip_visible_devices: '0', hf_offline: true, bench_tool: native}";

#[test]
fn row_193_mitigations_may_not_set_the_protocol() {
    for name in proto::env::PROTOCOL.iter().chain(&["HIP_VISIBLE_DEVICES"]) {
        let errors = read(&format!("{{_aorta_trial_env: {{{name}: '1'}}}}")).err().unwrap_or_else(|| panic!("{name}"));
        assert!(errors.first.message.contains(name), "{errors}");
    }
    let both = read("{_aorta_trial_env: {TS_SEED: '1', HOME: /x, OK: '1', TS_MODEL: m}}").err().unwrap();
    assert!(both.first.message.contains("HOME, TS_MODEL, TS_SEED"), "{both}");
}

/// The other half of the rule: what is declared is set under some configuration, but for three listeners that only
/// people set.
#[test]
fn every_protected_name_is_one_that_is_set() {
    let by_hand = ["TS_GRPC_LISTEN", "TS_GRPC_TOKEN", "TS_METRICS_LISTEN"];
    let mut set = keys_of(&ok(EVERYTHING));
    let file = tempfile::NamedTempFile::new().unwrap();
    set.extend(keys_of(&ok(&format!("{{dataset: sharegpt, dataset_path: {}}}", file.path().display()))));
    for name in proto::env::PROTOCOL.iter().filter(|name| !by_hand.contains(name)) {
        assert!(set.iter().any(|set| set == name), "{name}");
    }
}

fn keys_of(trial: &Trial) -> Vec<String> {
    environment(trial).into_keys().collect()
}

#[test]
fn row_194_mitigations_may_not_set_what_is_built() {
    for name in [
        "HOME",
        "HF_HOME",
        "HF_HUB_CACHE",
        "USER",
        "LOGNAME",
        "XDG_CACHE_HOME",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "NO_PROXY",
    ] {
        assert!(read(&format!("{{_aorta_trial_env: {{{name}: x}}}}")).is_err(), "{name}");
    }
    ok("{_aorta_trial_env: {USER: x, HF_HUB_OFFLINE: '1'}, run_as_current_user: false}");
    assert!(read("{_aorta_trial_env: {HF_HUB_OFFLINE: '1'}, hf_offline: true}").is_err());
}

#[test]
fn row_195_mitigations_may_not_carry_a_secret() {
    for yaml in [
        "{_aorta_trial_env: {HF_TOKEN: x}}",
        "{hf_token_env: MYTOK, _aorta_trial_env: {MYTOK: x}}",
        "{hf_token_env: MYTOK, _aorta_trial_env: {HF_TOKEN: x}}",
    ] {
        assert!(read(yaml).err().unwrap().first.message.contains("credential"), "{yaml}");
    }
}

#[test]
fn rows_196_and_197_what_passes() {
    let builtin = "DISABLE_TF32 HSA_XNACK GPU_MAX_HW_QUEUES DEBUG_HIP_DYNAMIC_QUEUES ROC_AQL_QUEUE_SIZE HSA_ENABLE_SDMA \
        HSA_NO_SCRATCH_RECLAIM HSA_DISABLE_CACHE ROC_SIGNAL_POOL_SIZE GPU_FORCE_BLIT_COPY_SIZE \
        DEBUG_CLR_BATCH_CPU_SYNC_SIZE NCCL_LAUNCH_ORDER_IMPLICIT RCCL_GFX942_CHEAP_FENCE_OFF \
        PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_CUDA_ALLOC_CONF HIP_LAUNCH_BLOCKING AMD_LOG_LEVEL \
        TORCH_ROCM_FA_PREFER_CK TS_DRAIN_TIMEOUT TS_ATTENTION_BACKEND";
    for name in builtin.split_ascii_whitespace() {
        let trial = ok(&format!("{{_aorta_trial_env: {{{name}: '1'}}}}"));
        assert_eq!(environment(&trial).get(name).map(String::as_str), Some("1"), "{name}");
    }
}

fn identity() -> Identity {
    Identity { uid: 1000, gid: 1001, user: "rocm".into() }
}

fn environment(trial: &Trial) -> Environment {
    let token = RunToken::parse("7-42").unwrap();
    let run = Run {
        token: &token,
        ports: Ports { gateway: 8000, control: 8001 },
        identity: &identity(),
        no_proxy: Some("corp.example"),
    };
    env::agent(trial, &Locations::in_container(trial), &run)
}

fn container(trial: &Trial, passes_token: bool) -> Vec<String> {
    let token = RunToken::parse("7-42").unwrap();
    let controller =
        ProcessIdentity { boot_id: "b-o-o-t".into(), pid_namespace: 4_026_531_836, pid: 7, start_time: 99 };
    argv::run(&Container {
        trial,
        name: &proto::names::container(&token),
        identity: &identity(),
        bin: Path::new("/w/u1000/bin"),
        agent: "agent.0123abcd",
        out: Path::new("/w/u1000/out"),
        hf_home: Path::new("/w/u1000/hf"),
        dataset: matches!(trial.load.data, crate::config::trial::Data::Sharegpt { .. })
            .then_some(Path::new("/w/u1000/datasets/chat.0123456789abcdef.json")),
        env: &environment(trial),
        passes_token,
        labels: &identity().labels(&controller, &token, Path::new("/w/u1000/out")),
    })
}

/// One line per option, its value beside it.
fn lines(argv: &[String]) -> String {
    let mut text = String::new();
    for word in argv {
        if word.starts_with('-') && !text.is_empty() {
            text.push('\n');
        } else if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
    }
    text
}

/// The form with GPUs, whole.
/// FS-05, FS-07, FS-42, FS-82.
#[test]
fn argv_docker_gpu() {
    insta::assert_snapshot!(lines(&container(
        &ok("{steps: 3, docker_args: [--cap-add, SYS_PTRACE], _aorta_trial_env: {HSA_NO_SCRATCH_RECLAIM: '1'}}"),
        true
    )));
}

#[test]
fn argv_docker_without_gpu() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let trial = ok(&format!(
        "{{require_gpu: false, run_as_current_user: false, generate_probe: false, dataset: sharegpt, dataset_path: {}, network: none, shm_size: 1g}}",
        file.path().display()
    ));
    insta::assert_snapshot!(lines(&container(&trial, false)));
}

#[test]
fn argv_podman_rollout() {
    let mut trial = ok(EVERYTHING);
    trial.own.runtime = RuntimeKind::Podman;
    trial.own.container_cli = "podman".into();
    insta::assert_snapshot!(lines(&container(&trial, false)));
}

/// FS-76.
#[test]
fn rows_198_to_200_token_by_name() {
    let secret = OsString::from("hf_s3cret");
    let host = vec![(OsString::from("MYTOK"), secret.clone()), (OsString::from("PATH"), OsString::from("/bin"))];
    let lookup = |name: &str| host.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    let trial = ok("hf_token_env: MYTOK");
    let token = env::hf_token(&trial, lookup);
    assert_eq!(token.as_ref(), Some(&secret));
    let argv = container(&trial, true);
    assert!(argv.windows(2).any(|w| w == ["-e", "HF_TOKEN"]));
    assert!(argv.iter().all(|word| !word.contains("s3cret")));
    let client = env::client(host.clone(), token.as_deref());
    assert!(client.contains(&("HF_TOKEN".into(), secret)));
    assert!(client.iter().any(|(name, _)| name == "PATH"));
    for absent in [None, Some(OsString::new())] {
        assert_eq!(env::hf_token(&trial, |_| absent.clone()), None);
    }
    assert!(!container(&trial, false).iter().any(|word| word == "HF_TOKEN"));
}

/// FS-72, FS-74, FS-82.
#[test]
fn row_201_no_host_ipc_and_the_caller_by_numbers() {
    let with = container(&ok("{}"), false);
    assert!(!with.iter().any(|word| word.starts_with("--ipc") || word == "-d" || word == "-t" || word == "-i"));
    assert_eq!(with.windows(2).filter(|w| w[0] == "--group-add").count(), 2);
    assert!(with.windows(2).any(|w| w == ["--user", "1000:1001"]));
    assert!(with.iter().any(|word| word == "USER=rocm") && with.iter().any(|word| word == "LOGNAME=rocm"));
    let without = container(&ok("run_as_current_user: false"), false);
    assert!(!without.iter().any(|word| word == "--user" || word.starts_with("USER=") || word.starts_with("LOGNAME=")));
}

/// FS-74.
#[test]
fn row_202_a_user_without_a_name() {
    assert_eq!(Identity::of(4_242_424, 1).user, "aorta-4242424");
    assert_eq!(Identity::of(0, 0).user, "root");
}

#[test]
fn row_203_sharegpt() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let trial = ok(&format!("{{dataset: sharegpt, dataset_path: {}}}", file.path().display()));
    let env = environment(&trial);
    assert!(!env.contains_key("TS_INPUT_LEN") && !env.contains_key("TS_OUTPUT_LEN"));
    assert_eq!(env["TS_DATASET_PATH"], "/ts-data/dataset.json");
    assert!(container(&trial, false).iter().any(|word| {
        word == "type=bind,source=/w/u1000/datasets/chat.0123456789abcdef.json,target=/ts-data/dataset.json,readonly"
    }));
}

#[test]
fn mounts_with_commas_are_one_csv_field() {
    let trial = ok("{}");
    let mut argv = None;
    let token = RunToken::parse("7-42").unwrap();
    let env = environment(&trial);
    argv.get_or_insert_with(|| {
        argv::run(&Container {
            trial: &trial,
            name: "n",
            identity: &identity(),
            bin: Path::new("/a,b\"c/bin"),
            agent: "agent.x",
            out: Path::new("/o"),
            hf_home: Path::new("/h"),
            dataset: None,
            env: &env,
            passes_token: false,
            labels: &[],
        })
    });
    assert!(
        argv.unwrap().contains(&"type=bind,\"source=/a,b\"\"c/bin\",target=/ts-bin,readonly".to_owned()),
        "{token}"
    );
}

/// FS-45.
#[test]
fn proxies_are_told_about_loopback() {
    let env = environment(&ok("{}"));
    assert_eq!(env["NO_PROXY"], "corp.example,127.0.0.1,localhost,::1");
    assert_eq!(env["no_proxy"], env["NO_PROXY"]);
}

/// Design section 4: the controller's own environment, less `TS_*` and the secrets, plus the agent's.
#[test]
fn the_process_form() {
    let trial = ok("{runtime: process, hf_token_env: MYTOK, run_as_current_user: false}");
    let identity = identity();
    let token = RunToken::parse("7-42").unwrap();
    let at = Locations { out: PathBuf::from("/w/out"), hf_home: PathBuf::from("/w/hf"), dataset: None };
    let run = Run { token: &token, ports: Ports { gateway: 1, control: 2 }, identity: &identity, no_proxy: None };
    let agent = env::agent(&trial, &at, &run);
    let host = [
        ("TS_SEED", "99"),
        ("TS_DRAIN_TIMEOUT", "1"),
        ("MYTOK", "s"),
        ("HF_TOKEN", "old"),
        ("HOME", "/root"),
        ("PATH", "/bin"),
        ("TSX", "1"),
    ];
    let host = host.map(|(n, v)| (OsString::from(n), OsString::from(v)));
    let get = |token: Option<&str>| -> BTreeMap<String, String> {
        let token = token.map(OsString::from);
        let pairs = env::process(host.clone(), &trial, &agent, token.as_deref());
        pairs.into_iter().map(|(n, v)| (n.into_string().unwrap(), v.into_string().unwrap())).collect()
    };
    let env = get(None);
    assert_eq!(env["TS_SEED"], "0");
    assert!(!env.contains_key("TS_DRAIN_TIMEOUT") && !env.contains_key("MYTOK") && !env.contains_key("HF_TOKEN"));
    assert_eq!((env["HOME"].as_str(), env["TS_OUT_DIR"].as_str()), ("/w/out/home", "/w/out"));
    assert_eq!((env["PATH"].as_str(), env["TSX"].as_str(), env["USER"].as_str()), ("/bin", "1", "rocm"));
    assert_eq!(get(Some("s"))["HF_TOKEN"], "s");
}

#[test]
fn owned_names_cover_every_environment() {
    for yaml in ["{}", EVERYTHING, "{runtime: process}", "{run_as_current_user: false}"] {
        let trial = ok(yaml);
        let owned = env::owned_names(&trial);
        for name in environment(&trial).keys() {
            assert!(owned.contains(name), "{yaml}: {name}");
        }
        for name in &owned {
            assert!(guard::is_name(name), "{name}");
        }
    }
}

/// The agent's own reader accepts what the controller sends (contract A.4).
#[test]
fn tiny_temperatures_arrive() {
    let env = environment(&ok("{rollout: true, temperature: 0.0000001}"));
    assert_eq!(env["TS_TEMPERATURE"], "0.0000001");
    assert_eq!(proto::text::plain_decimal(&env["TS_TEMPERATURE"]), Some(1e-7));
    let args = environment(&ok("{serve_args: ['--x', 'a \"b\" * é']}"));
    assert_eq!(proto::args::decode_array(&args["TS_SERVE_ARGS"]).unwrap(), ["--x", "a \"b\" * é"]);
}

/// FS-77.
#[test]
fn a_plan_shows_no_value_of_a_mitigation() {
    let trial = ok(
        "{_aorta_trial_env: {FOO: s3cret}, docker_args: [-e, 'B=s3cret', --env=C=s3cret, -ieD=s3cret, -e, -eE=s3cret]}",
    );
    let shown = argv::shown(&container(&trial, true), &trial).join(" ");
    assert!(shown.contains("-e B=*** --env=C=*** -ieD=*** -e -eE=***"), "{shown}");
    assert!(
        shown.contains("-e FOO=***") && shown.contains("TS_NUM_PROMPTS=64") && !shown.contains("s3cret"),
        "{shown}"
    );
}

proptest! {
    #[test]
    fn docker_args_never_panic(words in proptest::collection::vec("(-{0,2})[a-zA-Z=_/:é.-]{0,10}", 0..6)) {
        let _ = docker_args::check(&words, &Owned::of(&ok("{}")), RuntimeKind::Podman);
    }

    /// Whatever stands around it, an owned variable attached to `-e` is found.
    #[test]
    fn an_owned_variable_never_slips_through(
        before in proptest::collection::vec("--[a-z]{3,8}=[a-z]{0,4}", 0..3),
        cluster in "[itPq]{0,3}",
        equals in proptest::bool::ANY,
        name in proptest::sample::select(proto::env::PROTOCOL),
    ) {
        let mut words = before;
        words.push(format!("-{cluster}e{}{name}=1", if equals { "=" } else { "" }));
        let judged = docker_args::check(&words, &Owned::of(&ok("{}")), RuntimeKind::Docker);
        prop_assert!(judged.is_err(), "{:?}", words);
    }
}
