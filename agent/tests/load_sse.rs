//! The parser against the conformance corpus in `tests/fixtures/sse`: each case, each line ending, each split point.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

mod peer;

use agent::load::clock::Stamp;
use agent::load::plan::Profile;
use agent::load::sse::{EVENT_MAX, Lines, Strict, TooLarge};
use agent::load::stream::{Reading, Timeline};
use proptest::prelude::*;
use serde_json::{Value, json};

fn cases(file: &str) -> Vec<Value> {
    peer::json(&peer::fixtures().join("sse").join(file)).as_array().unwrap().clone()
}

/// The bytes of a case, once for each line ending that it holds for.
fn variants(case: &Value) -> Vec<Vec<u8>> {
    if let Some(hex) = case["hex"].as_str() {
        return vec![(0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()];
    }
    let text = case["stream"].as_str().unwrap();
    if case["endings"] == json!(false) {
        return vec![text.as_bytes().to_vec()];
    }
    ["\n", "\r\n", "\r"].iter().map(|end| text.replace('\n', end).into_bytes()).collect()
}

/// Events of a stream that arrives in these pieces.
fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Value {
    let mut decoder = Strict::default();
    let mut found = Vec::new();
    for mut piece in pieces {
        while let Some(event) = decoder.next(&mut piece).unwrap() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            found.push(json!({"type": text(event.kind), "data": text(event.data)}));
        }
        assert!(piece.is_empty());
    }
    json!(found)
}

#[test]
fn every_stream_at_every_split() {
    let cases = cases("events.json");
    assert!(cases.len() >= 37);
    for case in &cases {
        for bytes in variants(case) {
            for split in 0..=bytes.len() {
                let (head, tail) = bytes.split_at(split);
                assert_eq!(events([head, tail]), case["events"], "{} split at {split} of {bytes:?}", case["name"]);
            }
            assert_eq!(events(bytes.chunks(1)), case["events"], "{} byte by byte", case["name"]);
        }
    }
}

#[test]
fn an_event_is_dispatched_by_its_last_byte() {
    for end in ["\n", "\r\n", "\r"] {
        let bytes = format!("data: a{end}{end}");
        let last_byte_needed = if end == "\r\n" { bytes.len() - 1 } else { bytes.len() };
        assert_eq!(events([bytes.as_bytes()]).as_array().unwrap().len(), 1);
        assert_eq!(events([&bytes.as_bytes()[..last_byte_needed]]).as_array().unwrap().len(), 1, "{end:?}");
        assert_eq!(events([&bytes.as_bytes()[..last_byte_needed - 1]]).as_array().unwrap().len(), 0, "{end:?}");
    }
}

/// Head and framing around a body; `cut` loses its end.
fn response(body: &[u8], chunk: usize, cut: Option<&str>) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    if cut == Some("length") {
        return [format!("{head}Content-Length: {}\r\n\r\n", body.len() + 10).as_bytes(), body].concat();
    }
    let mut out = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for piece in body.chunks(chunk) {
        out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    if cut.is_none() {
        out.extend_from_slice(b"0\r\n\r\n");
    }
    out
}

/// What the client makes of a response in pieces, each at its own moment.
fn answer<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Timeline, String) {
    let mut reading = Reading::new(Profile::Strict, false);
    let mut at = 0;
    let mut over = false;
    for piece in pieces {
        at += 1;
        if reading.feed(piece, Stamp(at)).is_some() {
            over = true;
            break;
        }
    }
    if !over {
        reading.eof(Stamp(at + 1), false);
    }
    let (seen, verdict) = reading.finish();
    let outcome = verdict.map_or_else(|failure| failure.class.as_str(), |()| "complete");
    (seen, outcome.to_owned())
}

fn facts(seen: &Timeline, outcome: &str) -> Value {
    json!({
        "outcome": outcome,
        "n_chunks": seen.chunks,
        "first_chunk_chars": seen.first_chars,
        "total_chars": seen.total_chars,
        "usage": seen.usage.as_deref().map(|usage| serde_json::from_str::<Value>(usage).unwrap()),
        "done": seen.done.is_some(),
    })
}

#[test]
fn every_answer_at_every_split() {
    let cases = cases("answers.json");
    assert!(cases.len() >= 30);
    for case in &cases {
        for body in variants(case) {
            for chunk in [7, 4096] {
                let bytes = response(&body, chunk, case["cut"].as_str());
                // Small chunks put the framing's own cuts everywhere: a few split points on top of them are enough.
                let step = if chunk == 7 { 13 } else { 1 };
                for split in (0..=bytes.len()).step_by(step) {
                    let (head, tail) = bytes.split_at(split);
                    let (seen, outcome) = answer([head, tail]);
                    let name = format!("{} split at {split}", case["name"]);
                    assert_eq!(facts(&seen, &outcome), case["expected"], "{name}");
                    let pieces = u64::from(seen.first_piece.is_some()) + seen.gaps.len() as u64;
                    assert_eq!(pieces, seen.chunks, "{name}");
                }
                let (seen, outcome) = answer(bytes.chunks(1));
                assert_eq!(facts(&seen, &outcome), case["expected"], "{} byte by byte", case["name"]);
            }
        }
    }
}

#[test]
fn stamps_are_those_of_the_piece_that_completes_an_event() {
    let body = b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n\
                 data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n\
                 data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\ndata: [DONE]\n\n";
    let bytes = response(body, 4096, None);
    let end_of = |text: &str| {
        let at = bytes.windows(text.len()).position(|w| w == text.as_bytes()).unwrap();
        Stamp((at + text.len() + 4) as u64) // "}]}\n\n" follows the text's closing brace; its last byte dispatches
    };
    let (seen, outcome) = answer(bytes.chunks(1));
    assert_eq!(outcome, "complete");
    // Byte number n, counted from 1, arrives at stamp n.
    assert_eq!(seen.first_byte, Some(Stamp(1)));
    assert_eq!(seen.first_choice, Some(end_of("\"assistant\"}}")));
    assert_eq!(seen.first_event, seen.first_choice);
    assert_eq!(seen.first_piece, Some(end_of("\"a\"}}")));
    assert_eq!(seen.last_piece, Some(end_of("\"b\"}}")));
    assert_eq!(seen.gaps, [seen.last_piece.unwrap().0 - seen.first_piece.unwrap().0]);
}

#[test]
fn a_megabyte_is_one_event_and_too_much_is_refused() {
    let text = "x".repeat(1 << 20);
    let body = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\ndata: [DONE]\n\n");
    let bytes = response(body.as_bytes(), 1 << 16, None);
    for step in [1 << 14, 1_000, bytes.len()] {
        let (seen, outcome) = answer(bytes.chunks(step));
        assert_eq!((outcome.as_str(), seen.chunks, seen.total_chars), ("complete", 1, 1 << 20));
    }
    let endless = vec![b'x'; 1 << 20];
    let (mut strict, mut lines) = (Strict::default(), Lines::default());
    let fed = EVENT_MAX / endless.len() + 1;
    assert_eq!((0..fed).find_map(|_| strict.next(&mut endless.as_slice()).err()), Some(TooLarge));
    assert_eq!((0..fed).find_map(|_| lines.next(&mut endless.as_slice()).err()), Some(TooLarge));
}

proptest! {
    /// Whatever the bytes: no panic, and the same events however they are cut.
    #[test]
    fn cuts_never_matter(bytes in proptest::collection::vec(prop_oneof![
        Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'd'), Just(b'a'), Just(b't'), Just(0xEF), Just(0xBB),
        Just(0xBF), any::<u8>()], 0..80), cuts in proptest::collection::vec(0_usize..80, 0..6)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(events(pieces.iter().copied()), events([bytes.as_slice()]));
    }

    /// Whatever a server sends: no panic, one verdict, the same for any cut.
    #[test]
    fn any_response_has_one_verdict(bytes in proptest::collection::vec(any::<u8>(), 0..200), chunk in 1_usize..50,
                                    step in 1_usize..60, framed in any::<bool>()) {
        let bytes = if framed { response(&bytes, chunk, None) } else { bytes };
        let (whole, cut) = (answer([bytes.as_slice()]), answer(bytes.chunks(step)));
        prop_assert_eq!(whole.1, cut.1);
    }

    /// The published reader: the same payloads however the lines are cut.
    #[test]
    fn published_lines_do_not_depend_on_cuts(text in "(data:| data: |x|\u{e9}|\r|\n|\n\ndata:|\u{85}){0,20}", step in 1_usize..9) {
        let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for mut piece in pieces {
                while let Some(payload) = lines.next(&mut piece).unwrap() {
                    found.push(payload.into_owned());
                }
            }
            found.extend(lines.rest().map(std::borrow::Cow::into_owned));
            found
        };
        let whole = read(&mut std::iter::once(text.as_bytes()));
        prop_assert_eq!(read(&mut text.as_bytes().chunks(step)), whole.clone());
        let expected: Vec<String> = text.split('\n').filter_map(|line| {
            line.trim().strip_prefix("data:").map(|data| data.trim().to_owned())
        }).collect();
        prop_assert_eq!(whole, expected);
    }
}
