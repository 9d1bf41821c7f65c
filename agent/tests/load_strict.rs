//! `agent load --profile strict` on real sockets: every class of outcome, connections, stamps, arrivals, requests.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

mod peer;

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use peer::{Asked, Next, Peer, leg, say, say_chunked};
use serde_json::{Value, json};

const ANSWER: &[u8] = b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n\
    data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"c\"}}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

fn corpus() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = peer::corpus(dir.path(), 200);
    (dir, path)
}

/// A peer that has no `/metrics` and answers every other request by the script.
fn server(script: impl Fn(&Asked, &mut TcpStream) -> Next + Send + Sync + 'static) -> Peer {
    Peer::start(move |asked, stream| {
        if asked.line.contains("/metrics") {
            say(stream, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
            return Next::Keep;
        }
        script(asked, stream)
    })
}

fn one(server: &Peer, more: &[&str]) -> (i32, Value) {
    let (_dir, corpus) = corpus();
    let base = ["--num-prompts", "1", "--warmup", "0", "--timeout", "1", "--no-calibration"];
    leg(&server.url(), &corpus, &[&base[..], more].concat())
}

fn planned_is_the_sum(file: &Value) {
    for phase in ["warmup", "measured"] {
        let classes = file["client"]["outcomes"][phase].as_object().unwrap();
        let planned = classes["planned"].as_u64().unwrap();
        let sum: u64 = classes.iter().filter(|(name, _)| *name != "planned").map(|(_, n)| n.as_u64().unwrap()).sum();
        assert_eq!(planned, sum, "{classes:?}");
    }
}

#[test]
fn each_failure_has_its_class() {
    type Play = fn(&mut TcpStream) -> Next;
    let plays: [(&str, Play); 12] = [
        ("complete", |stream| {
            say_chunked(stream, ANSWER, 5);
            Next::Keep
        }),
        ("empty", |stream| {
            say_chunked(stream, b"data: {\"choices\":[{\"delta\":{\"role\":\"a\"}}]}\n\ndata: [DONE]\n\n", 99);
            Next::Keep
        }),
        ("truncated", |stream| {
            say(stream, format!("{}\r\n", peer::EVENT_STREAM).as_bytes());
            say(stream, &ANSWER[..120]);
            Next::Close
        }),
        ("truncated", |_| Next::Close),
        ("truncated", |stream| {
            say(stream, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\ndata: x");
            Next::Close
        }),
        ("server_status", |stream| {
            say(stream, b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9\r\n\r\ntoo busy!");
            Next::Keep
        }),
        ("server_status", |stream| {
            say(stream, b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n");
            Next::Keep
        }),
        ("in_band_error", |stream| {
            say_chunked(stream, b"data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\n\ndata: {\"error\":{\"message\":\"boom\"}}\n\n", 99);
            Next::Keep
        }),
        ("protocol_error", |stream| {
            say(stream, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
            Next::Keep
        }),
        ("protocol_error", |stream| {
            say(stream, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx");
            Next::Keep
        }),
        ("protocol_error", |stream| {
            say(stream, b"220 mail.example.org ESMTP\r\n\r\n");
            Next::Close
        }),
        ("timeout", |stream| {
            say(stream, format!("{}Transfer-Encoding: chunked\r\n\r\n", peer::EVENT_STREAM).as_bytes());
            Next::Keep
        }),
    ];
    for (class, play) in plays {
        let server = server(move |_, stream| play(stream));
        let (status, file) = one(&server, &["--timeout", "0.3"]);
        let record = &file["records"][0];
        assert_eq!(record["outcome"], class, "{record}");
        assert_eq!((status, record["ok"] == true), (i32::from(class != "complete"), class == "complete"));
        assert_eq!(record["err"].is_string(), class != "complete");
        assert_eq!(record["attempts"], 1);
        assert_eq!(server.asked().len(), 1, "{class}: no silent retry");
        assert_eq!(file["client"]["outcomes"]["measured"][class], 1);
        planned_is_the_sum(&file);
    }
    let (_dir, corpus) = corpus();
    let url = format!("http://{}", peer::refused());
    let (status, file) = leg(&url, &corpus, &["--num-prompts", "3", "--warmup", "0", "--no-calibration"]);
    assert_eq!((status, &file["client"]["outcomes"]["measured"]["connect"]), (1, &json!(3)));
    planned_is_the_sum(&file);
}

#[test]
fn the_error_body_and_the_broken_streams_figures_are_kept() {
    let server = server(|_, stream| {
        say(stream, b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9\r\n\r\ntoo busy!");
        Next::Keep
    });
    let (_, file) = one(&server, &[]);
    assert_eq!(file["records"][0]["err"], "server_status: HTTP 503 Service Unavailable: too busy!");

    let server = self::server(|_, stream| {
        say_chunked(stream, b"data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\n\ndata: {\"error\":{}}\n\n", 99);
        Next::Keep
    });
    let (_, file) = one(&server, &[]);
    let record = &file["records"][0];
    assert!(record["ttft"].is_number() && record["n_chunks"] == 1, "{record}");
}

#[test]
fn connections_are_opened_before_the_window_and_kept() {
    let server = server(|_, stream| {
        say_chunked(stream, ANSWER, 4096);
        Next::Keep
    });
    let (_dir, corpus) = corpus();
    let (status, file) =
        leg(&server.url(), &corpus, &["--num-prompts", "20", "--concurrency", "5", "--no-calibration"]);
    assert_eq!(status, 0);
    let connections = &file["client"]["connections"];
    assert_eq!((&connections["opened_before_warmup"], &connections["opened_before_window"]), (&json!(5), &json!(5)));
    assert_eq!((&connections["measured_on_ready"], &connections["measured_on_new"]), (&json!(20), &json!(0)));
    for record in file["records"].as_array().unwrap() {
        assert_eq!(record["connect"], Value::Null, "opened beforehand");
        assert!(record["phase"] == "warmup" || record["connection_reused"] == true, "{record}");
    }
    let used: std::collections::HashSet<usize> = server.asked().iter().map(|asked| asked.connection).collect();
    assert!(used.len() <= 5, "{used:?}");
    assert!(server.asked().iter().all(|asked| !asked.headers.contains_key("connection")));
}

#[test]
fn a_server_that_closes_every_time_gets_new_connections() {
    let server = server(|_, stream| {
        say(stream, format!("{}Connection: close\r\n\r\n", peer::EVENT_STREAM).as_bytes());
        say(stream, ANSWER);
        Next::Close
    });
    let (_dir, corpus) = corpus();
    let (status, file) =
        leg(&server.url(), &corpus, &["--num-prompts", "6", "--concurrency", "1", "--warmup", "1", "--no-calibration"]);
    assert_eq!((status, &file["client"]["outcomes"]["measured"]["complete"]), (0, &json!(6)));
    // The connection opened for the window serves one request; each of the others opens its own, and says so.
    assert_eq!(file["client"]["connections"]["measured_on_new"], 5);
    assert_eq!(file["records"][1]["connection_reused"], false);
    let last = file["records"].as_array().unwrap().last().unwrap();
    assert!(last["connection_reused"] == false && last["connect"].is_number(), "{last}");
}

#[test]
fn a_kept_connection_that_the_server_has_dropped_is_a_class_of_its_own() {
    let server = server(|asked, stream| {
        // The second request on a connection is cut off without a byte, as by a keep-alive limit that has run out.
        if asked.body.windows(10).any(|w| w == b"\"prompt 0\"") {
            say_chunked(stream, ANSWER, 4096);
            return Next::Keep;
        }
        Next::Close
    });
    let (_dir, corpus) = corpus();
    let (status, file) = leg(&server.url(), &corpus, &["--num-prompts", "1", "--warmup", "1", "--no-calibration"]);
    assert_eq!((status, &file["records"][1]["outcome"]), (1, &json!("stale_connection")));
    assert_eq!(server.asked().len(), 2, "no silent retry");
}

#[test]
fn a_connection_that_closes_while_idle_is_replaced_before_it_is_used() {
    // Each answer ends the connection without announcing it; the client notices while idle.
    let answered = AtomicUsize::new(0);
    let server = server(move |_, stream| {
        say_chunked(stream, ANSWER, 4096);
        if answered.fetch_add(1, Ordering::SeqCst) == 0 { Next::Close } else { Next::Keep }
    });
    let (_dir, corpus) = corpus();
    // The pause between warm-up and window (two scrapes' worth of round trips) is when the end arrives; whether it is
    // seen before the next request or as a stale connection is the kernel's choice, but never anything else.
    let (_, file) = leg(&server.url(), &corpus, &["--num-prompts", "3", "--warmup", "1", "--no-calibration"]);
    let classes = &file["client"]["outcomes"]["measured"];
    let sum = classes["complete"].as_u64().unwrap() + classes["stale_connection"].as_u64().unwrap();
    assert!(sum == 3 && classes["stale_connection"].as_u64().unwrap() <= 1, "{classes}");
}

#[test]
fn done_without_an_end_of_body_does_not_hold_the_worker_for_long() {
    let server = server(|_, stream| {
        say(stream, format!("{}Transfer-Encoding: chunked\r\n\r\n", peer::EVENT_STREAM).as_bytes());
        say(stream, &[format!("{:x}\r\n", ANSWER.len()).as_bytes(), ANSWER, b"\r\n"].concat());
        Next::Keep
    });
    let (status, file) = one(&server, &["--timeout", "20"]);
    let record = &file["records"][0];
    assert_eq!((status, &record["outcome"], &record["done"]), (0, &json!("complete"), &json!(true)));
    assert!(record["latency"].as_f64().unwrap() < 1.0, "the answer was over at [DONE]: {record}");
}

#[test]
fn bytes_are_stamped_by_the_kernel_when_they_arrive() {
    let server = server(|_, stream| {
        say(stream, format!("{}Connection: close\r\n\r\n", peer::EVENT_STREAM).as_bytes());
        say(stream, b"data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\n\n");
        std::thread::sleep(Duration::from_millis(100)); // the gap that is to be measured
        say(stream, b"data: {\"choices\":[{\"delta\":{\"content\":\"z\"}}]}\n\ndata: [DONE]\n\n");
        Next::Close
    });
    let (_, file) = one(&server, &[]);
    assert_eq!(file["client"]["certification"]["stamps"], "kernel");
    assert!(file["client"]["certification"]["read_lag_ms"]["n"].as_u64().unwrap() >= 2);
    let itls: Vec<f64> = file["records"][0]["itls"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    assert!(itls.iter().any(|itl| (0.099..1.0).contains(itl)), "{itls:?}");
}

#[test]
fn an_open_loop_keeps_its_schedule_whatever_the_server_does() {
    // No request is answered before the last one has come: a closed loop would wait for ever.
    let (wanted, seen) = (8, Mutex::new(0_usize));
    let all = std::sync::Condvar::new();
    let shared = std::sync::Arc::new((seen, all));
    let gate = std::sync::Arc::clone(&shared);
    let server = server(move |_, stream| {
        let (seen, all) = &*gate;
        let mut count = seen.lock().unwrap();
        *count += 1;
        all.notify_all();
        let (count, _) = all.wait_timeout_while(count, peer::DEADLINE, |count| *count < wanted).unwrap();
        drop(count);
        say_chunked(stream, ANSWER, 4096);
        Next::Keep
    });
    let (_dir, corpus) = corpus();
    let more =
        ["--num-prompts", "8", "--warmup", "0", "--arrival", "constant:100", "--timeout", "60", "--no-calibration"];
    let (status, file) = leg(&server.url(), &corpus, &more);
    assert_eq!((status, &file["client"]["peak_in_flight"]), (0, &json!(8)));
    assert_eq!(file["client"]["arrivals"], "constant:100");
    for (index, record) in file["records"].as_array().unwrap().iter().enumerate() {
        let intended = record["t_intended"].as_f64().unwrap();
        assert!((intended - 0.01 * f64::from(u32::try_from(index).unwrap())).abs() < 1e-6, "{record}");
        let actual = record["t_dispatch"].as_f64().unwrap();
        assert!(actual >= intended - 1e-6 && record["t_sent"].as_f64().unwrap() >= actual, "{record}");
    }
    assert_eq!(file["client"]["certification"]["send_lag_ms"]["n"], 8);
}

#[test]
fn a_limit_of_requests_in_flight_makes_them_late_and_says_so() {
    let server = server(|_, stream| {
        std::thread::sleep(Duration::from_millis(50)); // the time that a request takes
        say_chunked(stream, ANSWER, 4096);
        Next::Keep
    });
    let (_dir, corpus) = corpus();
    let more = [
        "--num-prompts",
        "6",
        "--warmup",
        "0",
        "--arrival",
        "constant:1000",
        "--max-in-flight",
        "1",
        "--no-calibration",
    ];
    let (_, file) = leg(&server.url(), &corpus, &more);
    assert_eq!(file["client"]["peak_in_flight"], 1);
    let last = &file["records"][5];
    let late = last["t_dispatch"].as_f64().unwrap() - last["t_intended"].as_f64().unwrap();
    assert!(late > 0.2, "{last}");
    assert_eq!(file["client"]["certification"]["client_bound"], true);
}

#[test]
fn requests_say_what_was_asked_for() {
    let server = server(|_, stream| {
        say_chunked(
            stream,
            b"data: {\"choices\":[{\"text\":\"ab\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n",
            99,
        );
        Next::Keep
    });
    let more = [
        "--endpoint",
        "completions",
        "--no-sampling",
        "--ignore-eos",
        "--extra-body",
        r#"{"n": 2, "stream": true}"#,
        "--header",
        "X-Test=a=b",
        "--max-tokens",
        "7",
        "--model",
        "m",
    ];
    let (status, file) = one(&server, &more);
    assert_eq!(status, 0);
    let asked = &server.asked()[0];
    assert_eq!(asked.line, "POST /v1/completions HTTP/1.1");
    assert_eq!(asked.headers["x-test"], "a=b");
    let body: Value = serde_json::from_slice(&asked.body).unwrap();
    let expected = json!({"model": "m", "prompt": "prompt 0", "max_tokens": 7, "stream": true,
        "stream_options": {"include_usage": true}, "ignore_eos": true, "n": 2});
    assert_eq!(serde_json::to_string(&body).unwrap(), serde_json::to_string(&expected).unwrap());
    assert_eq!(file["config"]["headers"], json!(["X-Test"]));
    assert_eq!((&file["config"]["profile"], &file["config"]["temperature"]), (&json!("strict"), &Value::Null));
}

#[test]
fn a_large_request_is_sent_whole_over_a_slow_connection() {
    let dir = tempfile::tempdir().unwrap();
    let text = "w".repeat(8 << 20);
    let path = dir.path().join("corpus.json");
    std::fs::write(&path, json!([{"id": "a", "conversations": [{"from": "human", "value": text}]}]).to_string())
        .unwrap();
    let (sender, lengths) = mpsc::channel();
    let server = server(move |asked, stream| {
        sender.send(asked.body.len()).unwrap();
        say_chunked(stream, ANSWER, 4096);
        Next::Keep
    });
    let (status, file) = leg(&server.url(), &path, &["--num-prompts", "1", "--warmup", "0", "--no-calibration"]);
    assert_eq!((status, &file["records"][0]["band"]), (0, &json!("?")));
    assert!(lengths.recv().unwrap() > 8 << 20);
}

#[test]
fn localhost_reaches_a_server_on_either_family() {
    let Ok(listener) = std::net::TcpListener::bind("[::1]:0") else {
        eprintln!("skipped: no IPv6 loopback here");
        return;
    };
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 8192];
                while std::io::Read::read(&mut stream, &mut buffer).is_ok_and(|count| count > 0) {
                    say_chunked(&mut stream, ANSWER, 4096);
                }
            });
        }
    });
    let (_dir, corpus) = corpus();
    let (status, file) =
        leg(&format!("http://localhost:{port}"), &corpus, &["--num-prompts", "2", "--warmup", "1", "--no-calibration"]);
    assert_eq!((status, &file["client"]["outcomes"]["measured"]["complete"]), (0, &json!(2)));
}

#[test]
fn the_client_certifies_itself_against_its_mock() {
    let server = server(|_, stream| {
        say_chunked(stream, ANSWER, 4096);
        Next::Keep
    });
    let (_dir, corpus) = corpus();
    let (_, file) = leg(&server.url(), &corpus, &["--num-prompts", "8", "--concurrency", "2"]);
    let certification = &file["client"]["certification"];
    assert_eq!(certification["calibration"]["status"], "measured", "{certification}");
    assert_eq!(certification["calibration"]["streams"], 2);
    assert!(certification["cpu_share"].is_number() && certification["peak_memory_bytes"].as_u64().unwrap() < 100 << 20);
}
