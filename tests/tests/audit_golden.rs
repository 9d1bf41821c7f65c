//! Real exports with known verdicts, judged by both programs as processes; and what their `audit` commands print and end with.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tests::programs;

/// What the step was asked for, the verdict of the host, and that of the agent where it differs (contract H.3).
struct Known {
    file: &'static str,
    dataset: &'static str,
    prompts: u64,
    output_len: u64,
    host: Option<&'static str>,
    agent: Option<&'static str>,
}

const SHORTFALL: Option<&str> = Some("served_request_shortfall");
const UNUSABLE: Option<&str> = Some("result_json_unusable");

const fn random(file: &'static str, prompts: u64, output_len: u64, verdict: Option<&'static str>) -> Known {
    Known { file, dataset: "random", prompts, output_len, host: verdict, agent: verdict }
}

const fn sharegpt(file: &'static str, prompts: u64, verdict: Option<&'static str>) -> Known {
    Known { file, dataset: "sharegpt", prompts, output_len: 16, host: verdict, agent: verdict }
}

/// The host demands the core metrics, the agent does not.
const fn hosts(file: &'static str) -> Known {
    Known { file, dataset: "random", prompts: 20, output_len: 16, host: UNUSABLE, agent: None }
}

const KNOWN: [Known; 36] = [
    random("all-failed-connection-refused", 20, 16, SHORTFALL),
    random("all-failed-http500-detailed", 20, 16, SHORTFALL),
    random("all-failed-http500-minimal", 20, 16, SHORTFALL),
    random("good-8-tokens-per-chunk", 20, 16, None),
    random("good-all-percentiles", 20, 16, None),
    random("good-burstiness-infinity", 20, 16, None),
    random("good-concurrency-zero", 20, 16, None),
    random("good-detailed", 20, 16, None),
    random("good-early-stop-detailed", 20, 16, None),
    random("good-goodput", 20, 16, None),
    random("good-labelled", 20, 16, None),
    random("good-lone-surrogate-detailed", 4, 16, None),
    random("good-minimal", 20, 16, None),
    random("good-n4-detailed", 20, 16, None),
    random("good-no-usage-detailed", 20, 16, None),
    random("good-one-token", 20, 1, None),
    random("good-rate-limited", 20, 16, None),
    random("good-real-engine-detailed", 32, 64, None),
    random("good-real-engine-n4-detailed", 16, 16, None),
    sharegpt("good-sharegpt-detailed", 30, None),
    random("good-through-real-gateway", 20, 16, None),
    random("good-through-real-serve-stack", 20, 16, None),
    random("good-with-warmups", 20, 16, None),
    random("shortfall-cut-midstream-detailed", 20, 16, SHORTFALL),
    sharegpt("shortfall-dataset-too-small", 500, SHORTFALL),
    random("shortfall-http500-detailed", 20, 16, SHORTFALL),
    random("shortfall-http500-minimal", 20, 16, SHORTFALL),
    random("shortfall-real-engine-keepalive-detailed", 32, 64, SHORTFALL),
    random("shortfall-sse-error-first", 20, 16, SHORTFALL),
    random("silent-truncation-clean-eof", 20, 16, None),
    random("silent-truncation-late-sse-error", 20, 16, None),
    random("unusable-empty-file", 20, 16, UNUSABLE),
    hosts("unusable-no-latency-keys"),
    hosts("unusable-no-ttft-keys"),
    random("unusable-truncated-write", 20, 16, UNUSABLE),
    random("unusable-two-objects-appended", 20, 16, UNUSABLE),
];

fn exports() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/exports")
}

fn export(name: &str) -> String {
    exports().join(name).with_extension("json").to_string_lossy().into_owned()
}

/// Runs a program's `audit` and reads its lines.
fn audit(program: PathBuf, words: &[&str]) -> (i32, Vec<Value>, String) {
    let mut command = Command::new(program);
    command.arg("audit").args(words);
    for name in proto::env::ALL {
        command.env_remove(name);
    }
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let lines = String::from_utf8(stdout).expect("UTF-8");
    let lines = lines.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    (status.code().expect("no signal"), lines, String::from_utf8_lossy(&stderr).into_owned())
}

#[track_caller]
fn check(known: &Known, line: &Value, wanted: Option<&str>) {
    let file = known.file;
    assert_eq!(line["file"], export(file));
    assert_eq!(line["verdict"], if wanted.is_none() { "ok" } else { "fail" }, "{file}");
    assert_eq!(line["reason"].as_str(), wanted, "{file}");
    assert!(line["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{file}");
    assert_eq!(line["hint"].is_string(), wanted.is_some(), "{file}");
}

fn status(reason: Option<&str>) -> i32 {
    let rows = proto::exit::AgentExit::ALL;
    reason.map_or(0, |reason| rows.iter().find(|row| row.reason() == reason).map_or(-1, |row| row.code().into()))
}

#[test]
fn every_golden_export_has_its_verdict_on_both_layers() {
    let listed: Vec<String> = KNOWN.iter().map(|known| export(known.file)).collect();
    let mut there: Vec<String> =
        fs::read_dir(exports()).unwrap().map(|entry| entry.unwrap().path().to_string_lossy().into_owned()).collect();
    there.sort();
    assert_eq!(there, listed, "every file has a line in the table");
    for known in &KNOWN {
        let file = export(known.file);
        let (prompts, output_len) = (known.prompts.to_string(), known.output_len.to_string());
        let words = [&file, "--num-prompts", &prompts, "--dataset", known.dataset, "--output-len", &output_len];

        let (code, lines, _) = audit(programs::agent(), &words);
        check(known, &lines[0], known.agent);
        assert_eq!((code, lines.len()), (status(known.agent), 1), "{}", known.file);

        let (code, lines, _) = audit(programs::agent(), &[&words[..], &["--layer", "host"]].concat());
        check(known, &lines[0], known.host);
        assert_eq!(code, status(known.host), "{}", known.file);

        let (code, lines, _) = audit(programs::controller(), &words);
        check(known, &lines[0], known.host);
        assert_eq!(code, i32::from(known.host.is_some()), "{}", known.file);
    }
}

#[test]
fn golden_exports_with_several_choices() {
    // 20 requests of 4 choices, 64 tokens each request: the gateway summed over the choices.
    let file = export("good-n4-detailed");
    let rollout = ["--num-prompts", "20", "--output-len", "16", "--rollout", "--rollout-samples", "4"];
    let words = [&[file.as_str()][..], &rollout, &["--min-mean-output-tokens", "8"]].concat();
    for (program, wanted) in [(programs::agent(), 59), (programs::controller(), 1)] {
        let (code, lines, _) = audit(program, &words);
        assert_eq!(lines[0]["reason"], "rollout_length_basis_unusable");
        assert!(lines[0]["hint"].as_str().unwrap().contains("min_mean_output_tokens: 0"));
        assert_eq!(code, wanted);
    }
    let unguarded = [&[file.as_str()][..], &rollout, &["--min-mean-output-tokens", "0"]].concat();
    for program in [programs::agent(), programs::controller()] {
        let (code, lines, _) = audit(program, &unguarded);
        assert_eq!((code, lines[0]["verdict"].as_str()), (0, Some("ok")));
        assert!(lines[0]["detail"].as_str().unwrap().contains("per_request"));
    }
    // Asked for one choice, the same file holds entries that no completion can have.
    let one = [file.as_str(), "--num-prompts", "20", "--output-len", "16", "--rollout", "--rollout-samples", "1"];
    assert_eq!(audit(programs::agent(), &one).0, 54);
    // What the agent takes an environment without the variables to mean: one sample, no floor.
    let silent = [&export("good-detailed"), "--num-prompts", "20", "--output-len", "16", "--rollout"];
    assert_eq!(audit(programs::agent(), &silent).0, 0);
}

#[test]
fn the_last_bad_file_decides_the_agents_status() {
    let (good, short, unusable) =
        (export("good-minimal"), export("shortfall-http500-minimal"), export("unusable-empty-file"));
    let words = |files: &[&String]| {
        let mut words: Vec<String> = files.iter().map(|file| (*file).clone()).collect();
        words.extend(["--num-prompts", "20", "--output-len", "16"].map(String::from));
        words
    };
    for (files, code) in
        [(&[&good, &short, &unusable, &good][..], 54), (&[&unusable, &good, &short][..], 55), (&[&good, &good][..], 0)]
    {
        let words = words(files);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (seen, lines, _) = audit(programs::agent(), &words);
        assert_eq!((seen, lines.len()), (code, files.len()));
        assert_eq!(audit(programs::controller(), &words).0, i32::from(code != 0));
    }
}

/// FS-63, FS-64.
#[test]
fn files_that_are_no_exports() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    symlink(export("good-minimal"), at("link")).unwrap();
    nix::unistd::mkfifo(at("fifo").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(at("directory")).unwrap();
    fs::File::create(at("sparse")).unwrap().set_len(1 << 40).unwrap();
    fs::write(at("deep"), format!("{{\"a\":{}", "[".repeat(10_000_000))).unwrap();
    fs::write(at("bom"), "\u{feff}{}").unwrap();
    fs::write(at("utf16"), b"\xff\xfe{\0}\0").unwrap();
    for (name, detail) in [
        ("link", "not a regular file (a symbolic link)"),
        ("fifo", "not a regular file (a FIFO)"),
        ("directory", "not a regular file (a directory)"),
        ("sparse", "1099511627776 bytes, more than"),
        ("deep", "nested deeper than 1024"),
        ("bom", "a byte order mark"),
        ("utf16", "not UTF-8 at byte 0"),
        ("none", "no such file"),
    ] {
        let (code, lines, _) = audit(programs::agent(), &[&at(name), "--num-prompts", "1"]);
        assert_eq!((code, lines[0]["reason"].as_str()), (54, UNUSABLE), "{name}");
        assert!(lines[0]["detail"].as_str().unwrap().contains(detail), "{name}: {}", lines[0]["detail"]);
        if name != "directory" {
            let (code, lines, _) = audit(programs::controller(), &[&at(name), "--num-prompts", "1"]);
            assert_eq!((code, lines[0]["reason"].as_str()), (1, UNUSABLE), "{name}");
        }
    }
}

#[test]
fn the_controller_finds_the_steps_of_a_directory_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for (name, from) in [
        ("bench.7-1.step10.json", "good-minimal"),
        ("bench.7-1.step9.json", "good-detailed"),
        ("bench-warmup.7-1.step1.json", "unusable-empty-file"),
        ("bench.7-1.step10.json.tmp", "unusable-empty-file"),
    ] {
        fs::copy(export(from), folder.path().join(name)).unwrap();
    }
    let path = folder.path().to_string_lossy().into_owned();
    let asked = ["--num-prompts", "20", "--output-len", "16"];
    let (code, lines, _) = audit(programs::controller(), &[&[path.as_str()][..], &asked].concat());
    let names: Vec<_> = lines.iter().map(|line| line["file"].as_str().unwrap().rsplit('/').next().unwrap()).collect();
    assert_eq!((code, names), (0, vec!["bench.7-1.step9.json", "bench.7-1.step10.json"]));

    // Nothing to judge is not a pass.
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().to_string_lossy().into_owned();
    let (code, lines, words) = audit(programs::controller(), &[&[path.as_str()][..], &asked].concat());
    assert_eq!((code, lines.len()), (1, 0));
    assert!(words.contains("no bench.*.step*.json"), "{words}");
}

#[test]
fn documents_say_what_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let file = export("good-detailed");
    let config =
        write("trial.yaml", "image: example/engine@sha256:0\nnum_prompts: 20\noutput_len: 16\nruntime: process\n");
    assert_eq!(audit(programs::controller(), &[&file, "--config", &config]).0, 0);
    let other =
        write("other.yaml", "image: example/engine@sha256:0\nnum_prompts: 21\noutput_len: 16\nruntime: process\n");
    let (code, lines, _) = audit(programs::controller(), &[&file, "--config", &other]);
    assert_eq!((code, lines[0]["reason"].as_str()), (1, SHORTFALL));
    let result = write(
        "result.json",
        r#"{"schema_version": 1, "metrics": {"num_prompts": 20, "dataset": "random", "output_len": 16, "ignore_eos": true, "rollout": false}}"#,
    );
    assert_eq!(audit(programs::controller(), &[&file, "--result", &result]).0, 0);
    let broken = write("broken.json", "{");
    for words in [
        &[file.as_str(), "--result", &broken][..],
        &[&file, "--result", &folder.path().join("none").to_string_lossy()],
        &[&file, "--config", &broken],
        &[&file, "--config", &config, "--result", &result],
        &[&file, "--config", &config, "--num-prompts", "20"],
    ] {
        let (code, lines, words_said) = audit(programs::controller(), words);
        assert_eq!((code, lines.len()), (64, 0), "{words:?}");
        assert!(!words_said.is_empty());
    }
}

#[test]
fn usage_errors_are_64_and_name_the_option() {
    let file = export("good-minimal");
    for (words, named) in [
        (&[file.as_str()][..], "--num-prompts"),
        (&["--num-prompts", "20"], "FILE"),
        (&[&file, "--num-prompts", "020"], "--num-prompts"),
        (&[&file, "--num-prompts", "0"], "--num-prompts"),
        (&[&file, "--num-prompts", "20", "--dataset", "hf"], "--dataset"),
        (&[&file, "--num-prompts", "20", "--ignore-eos", "maybe"], "--ignore-eos"),
        (&[&file, "--num-prompts", "20", "--rollout-samples", "4"], "--rollout-samples"),
        (&[&file, "--num-prompts", "20", "--rollout", "--ignore-eos", "true"], "--ignore-eos"),
        (&[&file, "--num-prompts", "20", "--rollout", "--min-mean-output-tokens", "129"], "--min-mean-output-tokens"),
        (&[&file, "--num-prompts", "20", "--unknown"], "--unknown"),
    ] {
        for program in [programs::agent(), programs::controller()] {
            let (code, lines, said) = audit(program, words);
            assert_eq!((code, lines.len()), (64, 0), "{words:?}");
            assert!(said.contains(named), "{words:?}: {said}");
        }
    }
    assert_eq!(audit(programs::agent(), &[&file, "--num-prompts", "20", "--layer", "nobody"]).0, 64);
}
