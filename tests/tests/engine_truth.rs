//! Many streams from one ticker, and the raw reader that measures what they physically allow.

use serde_json::json;
use std::time::Duration;
use tests::engine::raw_reader::{Load, raw_reader};
use tests::server::Server;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tokenspeed");

fn load(server: &Server, concurrency: usize, num_prompts: usize, max_tokens: u32) -> Load {
    let deadline = Duration::from_mins(2);
    Load { url: server.url(), concurrency, num_prompts, max_tokens, tokens_per_chunk: 1, model: None, deadline }
}

#[test]
fn two_hundred_streams_from_one_ticker() {
    let server = Server::ready(PROGRAM.as_ref(), &json!({"engine": {"ttft_ms": 50, "itl_ms": 20}}));
    server.reset_truth();
    let report = raw_reader(&load(&server, 200, 400, 30)).expect("the reader");
    assert_eq!((report.completed, report.failed, report.tokens), (400, 0, 400 * 30));
    let truth = server.truth();
    assert_eq!((truth.completed, truth.tokens, truth.writes, truth.max_active), (400, 12_000, 12_000, 200));
    assert_eq!((truth.reused, truth.stalled, truth.client_gone), (200, 0, 0));
    // A step serves all streams: two generations of 30 tokens and the waits for their first ones, not 12,000 timers.
    assert!((60..=400).contains(&truth.late_tick_ms.count), "{truth:?}");
    // Nobody is served before its time, and no step comes before its time.
    assert!(truth.ttft_ms.mean >= 50.0 && truth.itl_ms.mean >= 19.0, "{truth:?}");
    assert_eq!((truth.ttft_ms.count, truth.itl_ms.count), (400, 400 * 29));
    assert_eq!((report.ttft_ms.count, report.itl_ms.count), (400, 400 * 29));
    // The reader is never earlier than the writer.
    assert!(report.ttft_ms.p50 >= truth.ttft_ms.p50 - 0.5, "{report:?} {truth:?}");
    assert!(truth.cpu_s > 0.0 && report.cpu_s > 0.0 && report.cpu_us_per_token > 0.0);
}

#[test]
fn unpaced_streams_and_chunks_of_several_tokens() {
    let server =
        Server::ready(PROGRAM.as_ref(), &json!({"engine": {"ttft_ms": 0, "itl_ms": 0, "tokens_per_chunk": 4}}));
    server.reset_truth();
    // The reader counts events: 3 of them for 10 tokens.
    let report = raw_reader(&Load { tokens_per_chunk: 4, ..load(&server, 4, 8, 10) }).expect("the reader");
    assert_eq!(report.tokens, 8 * 3);
    assert_eq!((server.truth().tokens, server.truth().writes), (80, 24));
}

#[test]
fn broken_streams_are_not_completed_ones() {
    for fault in ["cut", "eof", "short", "error_late"] {
        let script = json!({"engine": {"ttft_ms": 1, "itl_ms": 1}, "requests": [{"every": 4, "do": fault}]});
        let server = Server::ready(PROGRAM.as_ref(), &script);
        let report = raw_reader(&load(&server, 8, 8, 8)).expect("the reader");
        assert_eq!((report.completed, report.failed), (6, 2), "{fault}");
    }
}

#[test]
fn a_client_that_does_not_read_delays_nobody() {
    use std::io::Write as _;
    let server =
        Server::ready(PROGRAM.as_ref(), &json!({"engine": {"ttft_ms": 0, "itl_ms": 0, "tokens_per_chunk": 1000}}));
    let mut lazy = std::net::TcpStream::connect(("127.0.0.1", server.gateway.number())).expect("connects");
    let body = r#"{"prompt":"a","max_tokens":40000000,"stream":true,"ignore_eos":true}"#;
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    lazy.write_all((head + body).as_bytes()).expect("sends");
    tests::patience::until("a clogged stream", || (server.truth().stalled > 0).then_some(()));
    let report = raw_reader(&Load { tokens_per_chunk: 1000, ..load(&server, 2, 4, 1000) }).expect("the reader");
    assert_eq!(report.tokens, 4, "one event of 1000 tokens each");
    drop(lazy);
    tests::patience::until("the lazy client's end", || (server.truth().client_gone == 1).then_some(()));
}
