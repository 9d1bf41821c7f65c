//! Configurations as YAML text: keys with values that may be written, values that may not, and anything anywhere.

use std::path::Path;

use crate::dice::{Dice, Mood};

/// A key, values that are right for it by themselves, and values that are not or only nearly.
struct Key(&'static str, &'static [&'static str], &'static [&'static str]);

const BAD_NUMBERS: &[&str] = &[
    "0",
    "-1",
    "true",
    "1.5",
    "null",
    "[]",
    "{}",
    "\"abc\"",
    "\"\"",
    "\"08\"",
    "\"+5\"",
    "\" 5 \"",
    "\"3_0\"",
    "\"-0\"",
    ".inf",
    "-.inf",
    ".nan",
    "1e400",
    "99999999999999999999",
    "-99999999999999999999",
    "2.0e+25",
    "010",
    "0x10",
    "1_000",
    "1:30",
    "\"５\"",
    "2026-01-01",
];
const COUNTS: &[&str] = &["1", "2", "8", "32", "64", "4.0", "\"7\"", "0x20", "1_000"];
const FLAGS: &[&str] = &["true", "false", "yes", "off"];
const BAD_FLAGS: &[&str] = &["null", "1", "0", "\"true\"", "\"yes\"", "[]"];
const TEXTS: &[&str] = &["m/n", "\"x y\"", "null", "\"\"", "7", "1.50", "'ü'"];
const BAD_TEXTS: &[&str] = &["[]", "[a]", "{}", "{a: 1}", "false", "0", "0.0", "\"a\\0b\"", "true"];
const PORTS: &[&str] = &["auto", "8000", "8001", "1024", "65535", "9000"];
const BAD_PORTS: &[&str] = &[
    "80",
    "0",
    "-1",
    "65536",
    "70000",
    "\"8000\"",
    "8000.0",
    "null",
    "true",
    "[]",
    "\"\"",
    "Auto",
    "99999999999999999999",
];

#[rustfmt::skip]
const KEYS: &[Key] = &[
    Key("image", &["img", "\"\"", "null", "a@sha256:0"], BAD_TEXTS),
    Key("model", TEXTS, BAD_TEXTS),
    Key("served_model_name", TEXTS, BAD_TEXTS),
    Key("tokenizer", TEXTS, BAD_TEXTS),
    Key("num_prompts", COUNTS, BAD_NUMBERS),
    Key("input_len", COUNTS, BAD_NUMBERS),
    Key("output_len", &["1", "4", "8", "128", "4096", "\"16\"", "16.0"], BAD_NUMBERS),
    Key("num_warmups", &["0", "1", "3", "\"0\"", "0.0", "-0.0"], BAD_NUMBERS),
    Key("warmup_steps", &["0", "1", "3", "\"0\""], BAD_NUMBERS),
    Key("seed", &["0", "7", "\"12\"", "4294967296"], BAD_NUMBERS),
    Key("steps", &["1", "2", "3", "null", "\"2\"", "3.0"], BAD_NUMBERS),
    Key("max_concurrency", &["1", "8", "null", "\"16\"", "4.0"], BAD_NUMBERS),
    Key("request_rate", &["inf", "\"inf\"", "\" INF \"", "\"+inf\"", "Infinity", "4", "0.5", "\"8\"", "\"1e2\"", "1e2", "1.5e+3", "1e-5", "123456789012345678"],
        &["0", "-3.5", "true", "null", ".inf", "-.inf", ".nan", "\"1e999\"", "\"-inf\"", "\"nan\"", "\"abc\"", "\"\"", "[]", "{}", "\"1_0\"", "\"_1\"", "\" 5 \"", "\"+5\"", "\"0x10\"", "\"1.\"", "\".5\"", "\"infinit\"", "\"１\"", "1:30", "99999999999999999999999"]),
    Key("ignore_eos", &["true", "false", "yes"], BAD_FLAGS),
    Key("percentile_metrics", &["ttft", "\"ttft,tpot\"", "null", "\"\""], BAD_TEXTS),
    Key("metric_percentiles", &["\"50,90,99\"", "99", "99.9", "\" 50 , 95 \"", "\"1e1\"", "null", "\"\"", "\"0.1,5_0\"", "\".5\"", "\"+50\""],
        &["\"0,50\"", "\"50,100\"", "\"50,abc\"", "\"50,,90\"", "\"50,\"", "\"-1\"", "\"nan\"", "\"inf\"", "100", "0", "[50, 90]", "true", "\"50;90\"", "\"５\"", "\"5__0\"", "\"1,_5\"", "{}"]),
    Key("ready_timeout_sec", &["1", "60", "900", "86400", "\"1200\"", "2400"], &["0", "86401", "-1", "true", "null", "1.5", "\"0900\"", "\"+9\"", ".inf", "99999999999999999999"]),
    Key("bench_timeout_sec", &["1", "1800", "3600", "\"60\"", "31536000"], &["0", "-1", "true", "null", "1.5", "\"060\"", "31536001", "99999999999999999999"]),
    Key("teardown_grace_sec", &["5", "15", "16", "45", "60", "3600", "\"45\""], &["4", "3601", "0", "true", "null", "\"045\"", "5.5"]),
    Key("gateway_startup_timeout_sec", &["1", "60", "\"900\""], &["0", "null", "true", "\"060\"", "1.5", "-1"]),
    Key("timeout_sec", &["90000", "100000", "5000", "\"90001\""], &["0", "1", "900", "null", "true", "\"0900000\"", "1.5"]),
    Key("serve_args", &["[]", "null", "\"--tp 2\"", "[--enforce-eager]", "[\"--tp\", 2]", "\"--x \\\"a b\\\"\"", "[\"--drain-timeout\", \"4\"]", "[\"--drain=3\"]", "[true, null, 1.5]", "[\"\"]", "\"\"", "[\"--gateway-startup\", \"7\"]", "[--tensor-parallel-size, 0x2]", "[\"--drain-timeout\", \"600\", \"--drain-timeout\", \"4\"]", "[2026-01-01]"],
        &["\"--foo 'bar\"", "\"a\\\\\"", "[\"--drain-timeout\", \"+5\"]", "[\"--drain-timeout\", \"3600\"]", "[\"--drain-timeout=0\"]", "[\"--drain-timeout\", \"08\"]", "[\"--drain-timeout\"]", "[\"--drain-timeout\", \"--tp\", \"2\"]", "[\"--d=5000\"]", "[\"a\\0b\"]", "7", "{a: 1}", "true", "[[a]]", "[\"--port\", \"1\"]", "[\"--po\"]", "[--host, x]", "[\"--sampling-backend\", \"greedy\"]", "[\"--\", \"--port\", \"1\"]", "[\"--drain-timeout\", \"５\"]", "[\"--prometheus-port\", \"9000\"]"]),
    Key("bench_args", &["[]", "null", "\"--goodput ttft:100\"", "[\"--extra-body\", \"{\\\"ignore_eos\\\": false}\"]", "[\"*\", \"?\", \"a b\"]", "[--seed-offset, 1]", "[\"-x\"]", "[--burstiness, 1.0]"],
        &["\"--foo \\\"bar\"", "[\"--seed\", \"1\"]", "[\"--max-conc\", \"1\"]", "[\"--s\"]", "[\"--save-detailed\"]", "[\"--input-len\", \"5\"]", "[\"--append-result\"]", "[\"--extra-request-body\", \"{}\"]", "3.5", "{}", "[\"\\0\"]", "[--output-len=4]"]),
    Key("docker_args", &["[]", "null", "[\"-e\", \"MY=1\"]", "[\"-emodel=x\"]", "[\"-e\", \"--name\"]", "[\"-hfoo\"]", "[\"-wd\"]", "[\"-p\", \"80:80\"]", "[\"--cap-add\", \"X\"]", "\"--ulimit nofile=1024\"", "[\"--label\", \"a=b\"]", "[\"--env=MY\"]", "[\"-it\"]", "[\"--privileged\"]", "[\"-e=\"]", "[\"-e\"]", "[\"--env\", \"\"]"],
        &["[\"--name\", \"x\"]", "[\"--name=x\"]", "[\"-v\", \"a:b\"]", "[\"-v/tmp:/ts-out\"]", "[\"-iv/tmp:/ts-out\"]", "[\"--mount\", \"a\"]", "[\"--entrypoint\", \"sh\"]", "[\"--net=host\"]", "[\"-u0:0\"]", "[\"--ipc\", \"host\"]", "[\"--shm-size\", \"1g\"]", "[\"--rm=false\"]", "[\"--device\", \"x\"]", "[\"--group-add\", \"x\"]", "[\"--security-opt\", \"x\"]", "[\"--env-file\", \"f\"]", "[\"-d\"]", "[\"--detach\"]", "[\"--detach=true\"]", "[\"-dit\"]", "[\"-itd\"]", "[\"-e=TS_MAX_CONCURRENCY=1\"]", "[\"-eTS_RUN_TOKEN=x\"]", "[\"-ieTS_RUN_TOKEN=x\"]", "[\"--env=TS_MODEL=x\"]", "[\"-e\", \"TS_MODEL\"]", "[\"-e\", \"HF_TOKEN\"]", "[\"--env=HF_TOKEN=x\"]", "[\"-e\", \"HOME=/x\"]", "[\"-e\", \"USER=x\"]", "[\"-e\", \"HF_HUB_OFFLINE=1\"]", "[\"--label\", \"--name\"]", "[\"--restart\", \"always\"]", "[\"--volumes-from\", \"x\"]", "[\"--log-driver\", \"none\"]", "[\"word\"]", "[\"-e\", \"TS_DRAIN_TIMEOUT=3\"]", "[\"-e\", \"TS_LEASE_SEC=0\"]", "[\"-dv/tmp:/x\"]", "[\"-\", \"--name\"]", "[\"-1d\"]", "[\"-é\"]", "\"-e 'A\"", "9"]),
    Key("work_dir", &["/tmp/ts-work-serve", "/tmp/other", "null", "\"\"", "/tmp/a/../b"], &["[]", "{}", "0", "\"a\\0b\"", "false"]),
    Key("hf_home", &["/tmp/hf", "null", "\"\"", "/"], &["[]", "0", "{}", "false"]),
    Key("hf_token_env", &["HF_TOKEN", "MYTOK", "null", "\"\""], &["\"a b\"", "\"1A\"", "0", "[]", "HOME", "TS_PORT"]),
    Key("hf_offline", FLAGS, BAD_FLAGS),
    Key("shm_size", &["16g", "1g", "null", "\"\"", "1024"], &["[]", "0", "{}", "true"]),
    Key("hip_visible_devices", &["0", "\"0,1\"", "null", "\"\"", "GPU-abc", "1.0", "true"], &["[0, 1]", "{}", "\"a\\0b\""]),
    Key("exclusive_gpus", FLAGS, BAD_FLAGS),
    Key("run_as_current_user", FLAGS, BAD_FLAGS),
    Key("keep_work_dir", FLAGS, BAD_FLAGS),
    Key("network", &["host", "bridge", "null", "\"\"", "none"], &["[]", "0", "{}"]),
    Key("port", PORTS, BAD_PORTS),
    Key("control_port", PORTS, BAD_PORTS),
    Key("gates", &["null", "{}", "{max_median_ttft_ms: 500}", "{max_p99_itl_ms: 50.5, min_output_throughput: 1}", "{max_median_ttft_ms: 0x10}", "{min_request_throughput: \"8\"}", "{max_p99_tpot_ms: 1e3}", "{max_p99_tpot_ms: \"1.5e2\"}"],
        &["[]", "{nope: 1}", "{max_median_ttft_ms: true}", "{max_median_ttft_ms: 0}", "{max_median_ttft_ms: -1}", "{max_median_ttft_ms: .inf}", "{max_median_ttft_ms: .nan}", "{max_median_ttft_ms: null}", "{max_median_ttft_ms: \"abc\"}", "{max_median_ttft_ms: []}", "\"x\"", "{1: 2}", "{max_median_ttft_ms: \" 5 \"}", "{max_median_ttft_ms: \"inf\"}", "{max_median_ttft_ms: \"nan\"}", "{max_median_ttft_ms: 99999999999999999999}", "{max_median_ttft_ms: \"1_0\"}"]),
    Key("_aorta_trial_env", &["null", "{}", "{HSA_NO_SCRATCH_RECLAIM: \"1\"}", "{TS_DRAIN_TIMEOUT: \"3\"}", "{TS_ATTENTION_BACKEND: \"x\"}", "{A: \"\"}"],
        &["{TS_NUM_PROMPTS: \"9\"}", "{TS_MAX_CONCURRENCY: \"1\"}", "{HOME: \"/x\"}", "{HF_HOME: \"/x\"}", "{USER: \"x\"}", "{HF_TOKEN: \"x\"}", "{A: 1}", "{\"a b\": \"x\"}", "{\"1A\": \"x\"}", "{A: \"a\\0b\"}", "{HIP_VISIBLE_DEVICES: \"0\"}", "{HF_HUB_OFFLINE: \"1\"}", "{TS_LEASE_SEC: \"0\"}", "{NO_PROXY: \"x\"}", "{TS_ROLLOUT: \"1\"}", "{TS_SAVE_DETAILED: \"1\"}", "{MYTOK: \"x\"}", "[]", "\"x\"", "{1: \"x\"}"]),
    Key("_aorta_environment", &["null", "{}", "{docker: other/image}", "{docker: null}", "{docker: \"\"}", "{name: local}"], &["[]", "\"x\"", "{docker: []}", "{docker: 5}", "{docker: 0}"]),
    Key("num_prompt", &["5"], &["null"]),
];

#[rustfmt::skip]
const ROLLOUT: &[Key] = &[
    Key("rollout_samples", &["1", "4", "8", "1024", "\"2\"", "2.0"], &["0", "1025", "true", "null", "1.5", "\"04\"", "\"+2\"", "[]", ".inf", "-1"]),
    Key("temperature", &["1.0", "0.7", "2", "0.001", "1"], &["0", "0.0", "2.01", "-1", "true", ".inf", ".nan", "null", "\"hot\"", "[]", "99999999999999999999"]),
    Key("top_p", &["null", "1.0", "0.95", "1", "0.5"], &["0", "1.01", "true", "-0.5", ".nan", "\"x\"", "{}"]),
    Key("min_mean_output_tokens", &["0", "1", "4", "\"2\"", "3.0"], &["-1", "true", "null", "1.5", "\"08\"", "\"abc\"", "5000", "[]"]),
    Key("sampling_backend", &["triton", "triton_full"], &["greedy", "flashinfer", "flashinfer_full", "\"\"", "Triton", "\" triton\"", "x", "true", "7", "[]"]),
    Key("save_detailed", &["true", "true", "true", "false"], BAD_FLAGS),
];

/// Every value of every key by itself, and in a sound rollout where it belongs there.
pub(crate) fn each_alone() -> Vec<String> {
    let plain = KEYS.iter().flat_map(|key| key.1.iter().chain(key.2).map(|value| format!("{{{}: {value}}}", key.0)));
    let rollout = ROLLOUT.iter().flat_map(|key| key.1.iter().chain(key.2).map(|value| (key.0, value)));
    let rollout = rollout.flat_map(|(key, value)| {
        [format!("{{rollout: true, output_len: 128, {key}: {value}}}"), format!("{{output_len: 128, {key}: {value}}}")]
    });
    plain.chain(rollout).collect()
}

/// One configuration.
pub(crate) fn config(dice: &mut Dice, mood: Mood, sharegpt: &Path) -> String {
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut put = |key: &str, value: String| match pairs.iter_mut().find(|(k, _)| k == key) {
        Some((_, known)) => *known = value,
        None => pairs.push((key.to_owned(), value)),
    };
    let rollout = dice.chance(35);
    if rollout {
        put("rollout", dice.word(&["true", "true", "true", "yes"]).to_owned());
        for key in ROLLOUT {
            if dice.chance(40) {
                put(key.0, dice.word(key.1).to_owned());
            }
        }
        put("output_len", dice.word(&["8", "128", "1024"]).to_owned());
        if dice.chance(20) {
            put("ignore_eos", "false".to_owned());
        }
    }
    if dice.chance(25) {
        put("dataset", dice.word(&["sharegpt", "\" sharegpt \""]).to_owned());
        put("dataset_path", format!("{:?}", sharegpt.display().to_string()));
        put("ignore_eos", dice.word(if rollout { &["false"][..] } else { &["true", "false"] }).to_owned());
    }
    let wild = mood == Mood::Wild;
    for _ in 0..dice.below(if wild { 4 } else { 7 }) {
        let key = dice.pick(KEYS);
        // What is right by itself may contradict another key; `ignore_eos` nearly always would.
        if key.0 != "ignore_eos" || wild {
            put(key.0, dice.word(key.1).to_owned());
        }
    }
    match mood {
        Mood::Valid => {}
        Mood::Near => {
            let near_rollout = dice.chance(if rollout { 50 } else { 10 });
            let key = dice.pick(if near_rollout { ROLLOUT } else { KEYS });
            put(key.0, dice.word(key.2).to_owned());
        }
        Mood::Wild => {
            for _ in 0..=dice.below(3) {
                let (to, from) = if dice.chance(20) {
                    (dice.pick(ROLLOUT), dice.pick(KEYS))
                } else {
                    (dice.pick(KEYS), dice.pick(KEYS))
                };
                let pool = if dice.chance(50) { from.1 } else { from.2 };
                put(to.0, dice.word(pool).to_owned());
            }
            if dice.chance(30) {
                let (key, value) = dice.pick(&[
                    ("dataset", "Random"),
                    ("dataset", "foo"),
                    ("dataset", "null"),
                    ("dataset_path", "/nowhere/x.json"),
                    ("dataset_path", "\"/\""),
                    ("dataset_path", "\"\""),
                    ("rollout", "null"),
                    ("rollout", "1"),
                    ("rollout", "false"),
                    ("7", "x"),
                    ("\"steps\"", "2"),
                ]);
                put(key, (*value).to_owned());
            }
        }
    }
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    format!("{{{}}}", pairs.join(", "))
}
