//! `agent load --profile variadic` against everything known of the published client: transcripts, request bodies, the
//! shape of the leg file, headlines, exit statuses.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

mod peer;

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use peer::{Next, Peer, json, leg, load, say, say_chunked};
use serde_json::{Value, json};

fn golden() -> PathBuf {
    peer::fixtures().join("variadic/client")
}

/// Plays one transcript the way its case says.
fn play(transport: &str, body: &[u8], stream: &mut TcpStream) -> Next {
    let head = |more: &str| format!("{}{more}\r\n", peer::EVENT_STREAM);
    match transport {
        "close" => say(stream, &[head("Connection: close\r\n").as_bytes(), body].concat()),
        "chunked" => say_chunked(stream, body, 37),
        "chunked-truncated" => {
            say(stream, head("Transfer-Encoding: chunked\r\n").as_bytes());
            say(stream, &[format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n40\r\nabc"].concat());
        }
        "short-length" => {
            say(stream, &[head(&format!("Content-Length: {}\r\n", body.len() + 50)).as_bytes(), body].concat());
        }
        "stall" => {
            say(
                stream,
                &[
                    head("Transfer-Encoding: chunked\r\n").as_bytes(),
                    format!("{:x}\r\n", body.len()).as_bytes(),
                    body,
                    b"\r\n",
                ]
                .concat(),
            );
            return Next::Keep;
        }
        "drop" => {}
        "status500" => say(stream, b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"),
        other => panic!("unknown transport {other}"),
    }
    Next::Close
}

#[test]
fn transcripts_give_the_published_records() {
    let cases = json(&golden().join("sse_cases.json"));
    assert_eq!(cases.as_array().unwrap().len(), 22);
    for case in cases.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let transport = case["transport"].as_str().unwrap().to_owned();
        let body = std::fs::read(golden().join(format!("sse/{name}.bin"))).unwrap();
        let (server, url) = if transport == "refused" {
            (None, format!("http://{}", peer::refused()))
        } else {
            let server = Peer::start(move |asked, stream| {
                if asked.line.contains("/metrics") {
                    say(stream, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
                    return Next::Close;
                }
                play(&transport, &body, stream)
            });
            let url = server.url();
            (Some(server), url)
        };
        let more =
            ["--profile", "variadic", "--num-prompts", "1", "--warmup", "0", "--timeout", "0.5", "--no-calibration"];
        let (status, file) = leg(&url, &golden().join("corpus.json"), &more);
        let record = file["records"][0].as_object().unwrap();
        let keys: Vec<&str> = record.keys().map(String::as_str).collect();
        let expected_keys: Vec<&str> =
            case["keys_in_order"].as_array().unwrap().iter().map(|k| k.as_str().unwrap()).collect();
        assert_eq!(keys, expected_keys, "{name}");
        for (key, expected) in case["expected"].as_object().unwrap() {
            match key.as_str() {
                "itls_len" => {
                    assert_eq!(record["itls"].as_array().unwrap().len() as u64, expected.as_u64().unwrap(), "{name}");
                }
                "has_ttft" => {
                    assert_eq!(record.get("ttft").is_some_and(Value::is_number), expected.as_bool().unwrap(), "{name}");
                }
                "err" if expected != "empty completion" => {
                    assert!(record["err"].as_str().unwrap().contains(": "), "{name}");
                }
                key => assert_eq!(record.get(key), Some(expected), "{name}: {key}"),
            }
        }
        assert_eq!(status, i32::from(case["expected"]["ok"] != json!(true)), "{name}");
        assert_eq!(file["metrics_before"]["available"], false, "{name}");
        drop(server);
    }
}

/// The scripted server behind the golden leg.
fn counting_server() -> Peer {
    let served = AtomicU64::new(0);
    Peer::start(move |asked, stream| {
        if asked.line.starts_with("GET /metrics ") {
            let n = served.load(Ordering::SeqCst);
            let page = format!(
                "# HELP vllm:spec_decode_num_draft_tokens_total x\n\
                 vllm:spec_decode_num_draft_tokens_total{{model_name=\"m\"}} {}.0\n\
                 vllm:spec_decode_num_accepted_tokens_total{{model_name=\"m\"}} {}.0\n\
                 vllm:spec_decode_sci{{a=\"b c\"}} 1.5e3\nvllm:spec_decode_bad x y\nvllm:other 3\n",
                n * 10,
                n * 6
            );
            say(stream, format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len()).as_bytes());
            return Next::Close;
        }
        served.fetch_add(1, Ordering::SeqCst);
        let body = "data: {\"choices\": [{\"delta\": {\"role\": \"assistant\"}}]}\n\n\
                    data: {\"choices\": [{\"delta\": {\"content\": \"abc\"}}]}\n\n\
                    data: {\"choices\": [{\"delta\": {\"content\": \"de\"}}]}\n\n\
                    data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 7, \"completion_tokens\": 4}}\n\ndata: [DONE]\n\n";
        say_chunked(stream, body.as_bytes(), 4096);
        Next::Close
    })
}

const LEG: [&str; 19] = [
    "--profile",
    "variadic",
    "--model",
    "ours",
    "--num-prompts",
    "5",
    "--concurrency",
    "1",
    "--max-tokens",
    "192",
    "--label",
    "L",
    "--arm",
    "OURS",
    "--round",
    "2",
    "--seed",
    "0",
    "--no-calibration",
];

#[test]
fn requests_are_the_published_bytes_in_the_published_order() {
    let golden_requests = json(&golden().join("requests.json"));
    let server = counting_server();
    let (status, _) = leg(&server.url(), &golden().join("corpus.json"), &LEG);
    assert_eq!(status, 0);
    let asked = server.asked();
    let bodies: Vec<Value> = asked.iter().map(|a| json!(String::from_utf8(a.body.clone()).unwrap())).collect();
    assert_eq!(json!(bodies), golden_requests["bodies"]);
    for (index, asked) in asked.iter().enumerate() {
        let mut names: Vec<&str> = asked.headers.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(format!("{}|{}", asked.line, names.join("|")), golden_requests["request_line_and_header_names"][0]);
        assert_eq!(
            (asked.headers["connection"].as_str(), asked.headers["content-type"].as_str()),
            ("close", "application/json")
        );
        assert_eq!(asked.headers["content-length"], asked.body.len().to_string());
        assert!(index == 0 || asked.connection != server.asked()[index - 1].connection, "a connection per request");
    }
}

/// Replaces times by the golden file's placeholders.
fn masked(value: &Value, key: &str, url: &str) -> Value {
    const SECONDS: [&str; 6] = ["warm_wall_s", "measured_wall_s", "ttft", "latency", "t_dispatch", "itls"];
    const MEASURED: [&str; 6] =
        ["wall_s", "output_tok_s", "mean_ttft_ms", "median_ttft_ms", "mean_tpot_ms", "decode_only_tok_s"];
    match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), masked(value, key, url))).collect(),
        Value::Array(items) => items.iter().map(|item| masked(item, key, url)).collect(),
        Value::Number(_) if SECONDS.contains(&key) => json!("<seconds>"),
        Value::Number(_) if MEASURED.contains(&key) => json!("<measured>"),
        Value::String(text) if key == "url" => json!(text.replace(url, "<url>")),
        Value::String(_) if key == "dataset" || key == "out" => json!(format!("<{key}>")),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other.clone(),
    }
}

#[test]
fn the_leg_file_has_the_published_shape() {
    let server = counting_server();
    let url = server.url();
    let (status, mut file) = leg(&format!("{url}/"), &golden().join("corpus.json"), &LEG);
    assert_eq!(status, 0);
    // What is ours stands after what is published, and is taken off here.
    let ours = file.as_object_mut().unwrap().shift_remove("client").unwrap();
    assert_eq!(file["config"].as_object_mut().unwrap().shift_remove("profile"), Some(json!("variadic")));
    let expected = json(&golden().join("leg_shape.json"));
    assert_eq!(
        serde_json::to_string_pretty(&masked(&file, "", &url)).unwrap(),
        serde_json::to_string_pretty(&expected).unwrap()
    );
    let wall = &file["summary"]["headline_all"]["wall_s"];
    let walls = [&file["summary"]["warm_wall_s"], &file["summary"]["measured_wall_s"]].map(|w| w.as_f64().unwrap());
    assert!((wall.as_f64().unwrap() - walls[0] - walls[1]).abs() < 1e-9);
    assert_eq!(ours["outcomes"]["measured"]["complete"], 5);
    assert_eq!(ours["outcomes"]["warmup"]["planned"], 4);
    assert_eq!(ours["connections"]["measured_on_new"], 5);
}

#[test]
fn exit_statuses() {
    for case in json(&golden().join("exit_codes.json")).as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out.json");
        let mut args: Vec<String> = [
            "--profile",
            "variadic",
            "--url",
            &format!("http://{}", peer::refused()),
            "--dataset",
            golden().join("corpus.json").to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ]
        .map(str::to_owned)
        .to_vec();
        args.extend(case["extra_argv"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap().to_owned()));
        let output = load(&args);
        assert_eq!(
            output.status.code(),
            case["exit_code"].as_i64().map(|c| i32::try_from(c).unwrap()),
            "{name}: {output:?}"
        );
        assert_eq!(out.exists(), case["out_written"].as_bool().unwrap(), "{name}");
        assert_eq!(output.stdout.is_empty(), case["stdout_is_empty"].as_bool().unwrap(), "{name}");
        if out.exists() {
            assert_eq!(json(&out)["summary"]["headline_warm"], case["headline_warm"], "{name}");
        } else {
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(words.contains("12") && words.contains("13"), "both numbers: {words}");
        }
    }
}

#[test]
fn bad_arguments_are_two_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.json");
    for bad in [
        &["--url", "https://127.0.0.1:1"][..],
        &["--url", "http://a.b"],
        &["--concurrency", "0", "--url", "http://127.0.0.1:1"],
        &["--url"],
        &["--nonsense"],
    ] {
        let mut args: Vec<String> = bad.iter().map(|arg| (*arg).to_owned()).collect();
        args.extend(
            ["--dataset", golden().join("corpus.json").to_str().unwrap(), "--out", out.to_str().unwrap()]
                .map(str::to_owned),
        );
        let output = load(&args);
        assert_eq!(output.status.code(), Some(2), "{bad:?}: {output:?}");
        assert!(!out.exists() && output.stdout.is_empty() && !output.stderr.is_empty(), "{bad:?}");
    }
}

#[test]
fn log_lines() {
    let server = counting_server();
    let dir = tempfile::tempdir().unwrap();
    let corpus = peer::corpus(dir.path(), 56);
    let args = [
        "--profile",
        "variadic",
        "--url",
        &server.url(),
        "--dataset",
        corpus.to_str().unwrap(),
        "--num-prompts",
        "52",
        "--concurrency",
        "2",
        "--label",
        "X",
        "--no-calibration",
    ];
    let output = load(&args.map(str::to_owned));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..4],
        ["[X] warmup 4 at c=2", "[X] measured 52 at c=2", "  [X/measured] 25/52 t=0s", "  [X/measured] 50/52 t=0s"]
    );
    let summary: Value = serde_json::from_str(lines[4].strip_prefix("CLIENT_RESULT ").unwrap()).unwrap();
    assert_eq!((lines.len(), &summary["headline_warm"]["ok"]), (5, &json!(52)));
}

#[test]
fn a_closed_loop_never_has_more_than_its_workers() {
    let in_flight = std::sync::Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let seen = std::sync::Arc::clone(&in_flight);
    let server = Peer::start(move |_, stream| {
        let now = seen.0.fetch_add(1, Ordering::SeqCst) + 1;
        seen.1.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(30)); // the time that a request takes
        seen.0.fetch_sub(1, Ordering::SeqCst);
        say_chunked(stream, b"data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\n\ndata: [DONE]\n\n", 999);
        Next::Close
    });
    let dir = tempfile::tempdir().unwrap();
    let corpus = peer::corpus(dir.path(), 16);
    let (status, _) = leg(
        &server.url(),
        &corpus,
        &["--profile", "variadic", "--num-prompts", "12", "--concurrency", "4", "--no-calibration"],
    );
    assert_eq!((status, in_flight.1.load(Ordering::SeqCst)), (0, 4));
}
