//! The export reader: what it accepts, what it refuses, that chunks do not matter, and that it agrees with serde_json.

use std::fmt::Write as _;
use std::io::{self, Read};

use proptest::prelude::*;
use proto::export::{Counter, Export, JUDGED, OutputLens, ReadError, Scalar, read};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Gives out its bytes in pieces of one size.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let take = self.1.min(self.0.len()).min(buffer.len());
        buffer[..take].copy_from_slice(&self.0[..take]);
        self.0 = &self.0[take..];
        Ok(take)
    }
}

/// Reads whole and in every small piece size; all must say the same.
#[track_caller]
fn parse(bytes: impl AsRef<[u8]>) -> Result<Export, ReadError> {
    let bytes = bytes.as_ref();
    let whole = read(bytes);
    for size in (1..=19).chain([31, 64]) {
        let pieces = read(Pieces(bytes, size));
        match (&whole, &pieces) {
            (Ok(a), Ok(b)) => assert_eq!(a, b, "pieces of {size}"),
            (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string(), "pieces of {size}"),
            (a, b) => panic!("pieces of {size}: {a:?} and {b:?}"),
        }
    }
    whole
}

#[track_caller]
fn refused(bytes: impl AsRef<[u8]>, message: &str) {
    let error = parse(bytes).expect_err(message).to_string();
    assert_eq!(error, message);
}

#[track_caller]
fn accepted(text: &str) -> Export {
    parse(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn keeps_what_the_judgement_needs() {
    let text = " {\"completed\" : 32,\r\n\t\"failed\":0,\"duration\":1.5e0,\"label\":null,\"big\":9223372036854775808,\
                \"texts\":[\"a\\n\",\"\\ud83d\"],\"output_lens\":[ 3 , 4,5.0],\"total_output_tokens\":12} \n";
    let export = accepted(text);
    assert_eq!(export.completed, Counter::Integer(32));
    assert_eq!(export.failed, Counter::Integer(0));
    assert_eq!(export.total_output_tokens, Counter::Integer(12));
    let names: Vec<_> = export.scalars.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let wanted = [
        ("completed", Scalar::Integer(32)),
        ("failed", Scalar::Integer(0)),
        ("duration", Scalar::Float(1.5)),
        ("big", Scalar::Float(9_223_372_036_854_775_808.0)),
        ("total_output_tokens", Scalar::Integer(12)),
    ];
    assert_eq!(names, wanted);
    assert_eq!(export.scalar("duration"), Some(Scalar::Float(1.5)));
    assert_eq!(export.scalar("label"), None);
    let OutputLens::Whole(lengths) = export.output_lens else { panic!("a list of lengths") };
    assert_eq!(lengths.iter().collect::<Vec<_>>(), [(3, 1), (4, 1), (5, 1)]);
    assert_eq!(export.bytes, text.len() as u64);
    assert_eq!(export.sha256, hex(text.as_bytes()));
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn empty_object_and_absent_keys() {
    let export = accepted("{}");
    assert_eq!(
        (export.completed, export.failed, export.output_lens),
        (Counter::Absent, Counter::Absent, OutputLens::Absent)
    );
    assert!(export.scalars.is_empty());
}

/// FS-63.
#[test]
fn refuses_what_is_not_one_object() {
    assert!(matches!(parse(""), Err(ReadError::Empty)));
    refused(" \n", "nothing but white space at byte 2");
    refused("[]", "not a JSON object at byte 0");
    refused("null", "not a JSON object at byte 0");
    refused("NaN", "not a JSON object at byte 0");
    refused("\u{feff}{}", "a byte order mark or other text before the object at byte 0");
    refused("x", "not JSON at byte 0");
    refused("\0\0\0", "not JSON at byte 0");
    refused("{} {}", "data after the object at byte 3");
    refused("{}\0", "data after the object at byte 2");
    refused("{\"a\":1}{", "data after the object at byte 7");
    refused([0xff, 0xfe, b'{', 0, b'}', 0], "not UTF-8 at byte 0");
    refused([b'{', 0, b'}', 0], "expected a key in quotes at byte 1");
}

#[test]
fn refuses_broken_grammar_everywhere() {
    for (text, message) in [
        ("{", "the file ends inside an object or an array at byte 1"),
        ("{\"a", "the file ends inside a string at byte 3"),
        ("{\"a\"", "the file ends inside an object or an array at byte 4"),
        ("{\"a\":", "the file ends inside an object or an array at byte 5"),
        ("{\"a\":1", "the file ends inside an object or an array at byte 6"),
        ("{\"a\":-", "the file ends inside a number at byte 6"),
        ("{\"a\":1.", "the file ends inside a number at byte 7"),
        ("{\"a\":tru", "the file ends inside a literal at byte 8"),
        ("{\"a\":\"\\", "the file ends inside an escape sequence at byte 7"),
        ("{\"a\":\"\\u12", "the file ends inside an escape sequence at byte 10"),
        ("{\"a\":[1,2", "the file ends inside an object or an array at byte 9"),
        ("{,}", "expected a key in quotes at byte 1"),
        ("{\"a\":1,}", "expected a key in quotes at byte 7"),
        ("{\"a\" 1}", "expected ':' at byte 5"),
        ("{\"a\":1 \"b\":2}", "expected ',' or '}' at byte 7"),
        ("{\"a\":}", "expected a value at byte 5"),
        ("{\"a\":[1,]}", "expected a value at byte 8"),
        ("{\"a\":[,1]}", "expected a value at byte 6"),
        ("{\"a\":[1 2]}", "expected ',' or ']' at byte 8"),
        ("{\"a\":[1}}", "expected ',' or ']' at byte 7"),
        ("{\"a\":{\"b\":1]}", "expected ',' or '}' at byte 11"),
        ("{\"a\":{1:1}}", "expected a key in quotes at byte 6"),
        ("{\"a\":{\"b\":1,}}", "expected a key in quotes at byte 12"),
        ("{\"a\":01}", "a number with a leading zero at byte 6"),
        ("{\"a\":-01}", "a number with a leading zero at byte 7"),
        ("{\"a\":1.}", "expected a digit at byte 7"),
        ("{\"a\":.5}", "expected a value at byte 5"),
        ("{\"a\":+5}", "expected a value at byte 5"),
        ("{\"a\":-}", "expected a digit at byte 6"),
        ("{\"a\":1e}", "expected a digit at byte 7"),
        ("{\"a\":1e+}", "expected a digit at byte 8"),
        ("{\"a\":1.5.5}", "expected ',' or '}' at byte 8"),
        ("{\"a\":[1.2.3, 4, 5, 6, 7]}", "expected ',' or ']' at byte 9"),
        ("{\"a\":--1}", "expected a digit at byte 6"),
        ("{\"a\":truE}", "unknown literal at byte 8"),
        ("{\"a\":nul}", "unknown literal at byte 8"),
        ("{\"a\":Nan}", "unknown literal at byte 7"),
        ("{\"a\":-Inf}", "unknown literal at byte 9"),
        ("{\"a\":'x'}", "expected a value at byte 5"),
        ("{\"a\":\"\\x\"}", "unknown escape sequence at byte 7"),
        ("{\"a\":\"\\u12g4\"}", "expected a hexadecimal digit at byte 10"),
        ("{\"a\":\"\\u12\"}", "expected a hexadecimal digit at byte 10"),
        ("{\"a\":\"\t\"}", "control character in a string at byte 6"),
        ("{\"a\":\"\0\"}", "control character in a string at byte 6"),
        ("{\"a\nb\":1}", "control character in a string at byte 3"),
        ("{\"output_lens\":[1 2]}", "expected ',' or ']' at byte 18"),
        ("{\"output_lens\":[1,]}", "expected a value at byte 18"),
        ("{\"output_lens\":[1", "the file ends inside an object or an array at byte 17"),
        ("{/**/}", "expected a key in quotes at byte 1"),
    ] {
        refused(text, message);
    }
}

#[test]
fn accepts_every_form_of_value() {
    let export = accepted(
        "{\"a\":[],\"b\":{},\"c\":[[],{},[{}]],\"d\":{\"x\":{\"y\":[1,{\"z\":-0.5E+3}]}},\"e\":[true,false,null],\
         \"f\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\",\"g\":-0,\"h\":0.0,\"i\":1E5,\"j\":2e-3,\"k\":[1.5 , 2],\
         \"\":7,\"l\":\"\u{7f}\u{20ac}\u{10ffff}\"}",
    );
    let names: Vec<_> = export.scalars.iter().map(|(name, value)| (name.as_str(), value.as_f64())).collect();
    assert_eq!(names, [("g", 0.0), ("h", 0.0), ("i", 1e5), ("j", 2e-3), ("", 7.0)]);
    assert_eq!(export.scalar("g"), Some(Scalar::Integer(0)));
}

/// FS-62.
#[test]
fn bare_words_are_no_figures() {
    let export =
        accepted("{\"burstiness\":Infinity,\"x\":-Infinity,\"y\":NaN,\"z\":[NaN,Infinity,-Infinity,1],\"w\":1}");
    assert_eq!(export.scalars, [("w".to_owned(), Scalar::Integer(1))]);
    let judged = accepted("{\"completed\":NaN,\"failed\":-Infinity,\"output_lens\":[1,NaN]}");
    assert_eq!(judged.completed, Counter::NotInteger("NaN".into()));
    assert_eq!(judged.failed, Counter::NotInteger("-Infinity".into()));
    assert_eq!(judged.output_lens, OutputLens::Invalid("entry 1 is NaN, not a whole number of tokens".into()));
}

/// FS-62.
#[test]
fn numbers_beyond_a_double_are_no_figures() {
    let many = "7".repeat(401);
    let export = accepted(&format!(
        "{{\"a\":1e400,\"b\":-1e400,\"c\":{many},\"completed\":{many},\"failed\":-{many},\"d\":1e-400,\"e\":{}}}",
        "9".repeat(308)
    ));
    assert_eq!(export.scalar("d"), Some(Scalar::Float(0.0)));
    assert_eq!(export.scalar("e"), Some(Scalar::Float(1e308)));
    assert_eq!(export.scalars.len(), 2);
    assert_eq!(export.completed, Counter::Huge(format!("{}... (401 characters)", "7".repeat(32))));
    assert!(matches!(export.failed, Counter::Huge(_)));
    // Longer than what is kept: the value is given up, the file is not.
    let longer = "1".repeat(5000);
    let export = accepted(&format!(
        "{{\"completed\":{longer},\"failed\":0.{longer},\"output_lens\":[{longer}],\"x\":{longer}}}"
    ));
    assert_eq!(export.completed, Counter::Huge("a number of 5000 characters".into()));
    assert_eq!(export.failed, Counter::NotInteger("a number of 5002 characters".into()));
    assert_eq!(
        export.output_lens,
        OutputLens::Invalid("entry 0 is a number of 5000 characters, not a whole number of tokens".into())
    );
    assert!(export.scalars.is_empty());
    // The longest number that is kept.
    let zeros = "0".repeat(4093);
    let edge = accepted(&format!("{{\"a\":1.{zeros}1,\"b\":1.{zeros}01}}"));
    assert_eq!(edge.scalars, [("a".to_owned(), Scalar::Float(1.0))]);
}

#[test]
fn integers_keep_their_type_and_value() {
    let export = accepted(
        "{\"completed\":170141183460469231731687303715884105727,\"failed\":170141183460469231731687303715884105728,\
         \"total_output_tokens\":12.0,\"a\":9223372036854775807,\"b\":-9223372036854775808,\"c\":-9223372036854775809}",
    );
    assert_eq!(export.completed, Counter::Integer(i128::MAX));
    assert_eq!(export.failed, Counter::Huge("17014118346046923173168730371588... (39 characters)".into()));
    assert_eq!(export.total_output_tokens, Counter::NotInteger("12.0".into()));
    assert_eq!(export.scalar("a"), Some(Scalar::Integer(i64::MAX)));
    assert_eq!(export.scalar("b"), Some(Scalar::Integer(i64::MIN)));
    assert_eq!(export.scalar("c"), Some(Scalar::Float(-9_223_372_036_854_775_808.0)));
    assert_eq!(export.scalar("total_output_tokens"), Some(Scalar::Float(12.0)));
}

#[test]
fn judged_values_of_other_types_say_what_stands_there() {
    for (value, said) in [
        ("true", "true"),
        ("false", "false"),
        ("null", "null"),
        ("32.0", "32.0"),
        ("3.2e1", "3.2e1"),
        ("\"32\"", "the string \"32\""),
        ("\"\\u0033\\n\\ud83d\"", "the string \"3\\n\\\\ud83d\""),
        ("[1,[2]]", "an array"),
        ("{\"a\":1}", "an object"),
    ] {
        let export = accepted(&format!("{{\"completed\":{value}}}"));
        assert_eq!(export.completed, Counter::NotInteger(said.into()), "{value}");
    }
    let long = accepted(&format!("{{\"completed\":\"{}\"}}", "x".repeat(100_000)));
    assert_eq!(long.completed, Counter::NotInteger(format!("the string \"{}\"...", "x".repeat(32))));
    let cut = accepted(&format!("{{\"completed\":\"{}\u{20ac}\"}}", "x".repeat(31)));
    assert_eq!(cut.completed, Counter::NotInteger(format!("the string \"{}\u{fffd}\"...", "x".repeat(31))));
}

/// FS-61.
#[test]
fn a_judged_key_stands_once() {
    for key in JUDGED {
        refused(
            format!("{{\"{key}\":1,\"x\":2,\"{key}\":1}}"),
            &format!("a second {key:?} at byte {}", key.len() + 13),
        );
    }
    // Whatever its spelling.
    refused("{\"completed\":1,\"comple\\u0074ed\":1}", "a second \"completed\" at byte 16");
    // Elsewhere the last one wins, also over a number.
    let export = accepted("{\"a\":1,\"b\":2,\"a\":3,\"b\":\"x\",\"c\":1}");
    assert_eq!(export.scalars, [("a".to_owned(), Scalar::Integer(3)), ("c".to_owned(), Scalar::Integer(1))]);
    // Inside other values nothing is judged.
    accepted("{\"completed\":1,\"x\":{\"completed\":2,\"completed\":3},\"y\":[{\"completed\":true}]}");
}

#[test]
fn keys_are_read_as_they_mean() {
    let export = accepted(
        "{\"\\u0063ompleted\":5,\"\\ud83d\\ude00\":1,\"\\ud83d\":2,\"\\ud83dx\":3,\"\\ud83d\\ud83d\\ude00\":4,\"\\ude00\":6,\"\\ud83d\\n\":7}",
    );
    assert_eq!(export.completed, Counter::Integer(5));
    let names: Vec<_> = export.scalars.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["completed", "\u{1f600}", "\\ud83d", "\\ud83dx", "\\ud83d\u{1f600}", "\\ude00", "\\ud83d\n"]);
}

#[test]
fn lengths_of_other_types() {
    for (value, said) in [
        ("null", "null, not an array"),
        ("{}", "an object, not an array"),
        ("\"x\"", "the string \"x\", not an array"),
        ("7", "7, not an array"),
        ("NaN", "NaN, not an array"),
        ("[1,true,-1]", "entry 1 is true, not a whole number of tokens"),
        ("[-1]", "entry 0 is -1, not a whole number of tokens"),
        ("[1,2,3.5]", "entry 2 is 3.5, not a whole number of tokens"),
        ("[[1]]", "entry 0 is an array, not a whole number of tokens"),
        ("[{\"a\":[]},1]", "entry 0 is an object, not a whole number of tokens"),
        ("[\"9\"]", "entry 0 is the string \"9\", not a whole number of tokens"),
        ("[9007199254740993]", "entry 0 is 9007199254740993, not a whole number of tokens"),
        ("[1e300]", "entry 0 is 1e300, not a whole number of tokens"),
        ("[-1e-400]", ""),
        ("[9007199254740992, 9.007199254740992e15]", ""),
        ("[]", ""),
    ] {
        let export = accepted(&format!("{{\"output_lens\":{value}}}"));
        match export.output_lens {
            OutputLens::Invalid(text) => assert_eq!(text, said, "{value}"),
            OutputLens::Whole(_) => assert_eq!(said, "", "{value}"),
            OutputLens::Absent => panic!("{value}"),
        }
    }
    // Still checked to the end after the first fault.
    refused("{\"output_lens\":[true,1.]}", "expected a digit at byte 23");
}

#[test]
fn too_many_different_lengths() {
    let list: Vec<String> = (0..=1 << 18).map(|length: u32| length.to_string()).collect();
    let export = read(format!("{{\"output_lens\":[{}]}}", list.join(",")).as_bytes()).unwrap();
    assert_eq!(export.output_lens, OutputLens::Invalid("more than 262144 different lengths".into()));
}

#[test]
fn names_of_figures_have_a_budget() {
    let mut text = String::from("{");
    for index in 0..200_000 {
        let _ = write!(text, "\"k{index}\":1,");
    }
    text.push_str("\"z\":1}");
    let error = read(text.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("too many top-level figures"), "{error}");
    let error = read(format!("{{\"{}\":1}}", "k".repeat(9 << 20)).as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("a key longer than"), "{error}");
    // Keys without figures cost nothing.
    let text = text.replace(":1", ":\"\"");
    assert!(read(text.as_bytes()).unwrap().scalars.is_empty());
}

/// FS-63.
#[test]
fn invalid_utf8_anywhere() {
    let bad: [&[u8]; 7] =
        [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\xbd", b"\xc0\xaf", b"\xf4\x90\x80\x80"];
    for bytes in bad {
        for (head, tail) in
            [("{\"unused\":\"", "\"}"), ("{\"unused\":[1,{\"x\":\"abc", "\"}]}"), ("{\"", "\":1}"), ("{} ", "")]
        {
            let text = [head.as_bytes(), bytes, tail.as_bytes()].concat();
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("not UTF-8 at byte {}", head.len()), "{bytes:x?}");
        }
    }
    // The first fault is the one named, whatever comes in the same chunk.
    refused(b"{\"a\":x\xff", "expected a value at byte 5");
}

/// FS-64.
#[test]
fn ten_million_brackets() {
    for bracket in ["[", "{\"a\":"] {
        let text = format!("{{\"x\":{}", bracket.repeat(10_000_000));
        let error = read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("nested deeper than 1024 at byte"), "{error}");
    }
    let nested = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    accepted(&nested(1023));
    assert!(parse(nested(1024)).is_err());
    let mixed = format!("{{\"x\":{}1{}}}", "[{\"a\":".repeat(500), "}]".repeat(500));
    accepted(&mixed);
    refused(mixed.replacen("}]", "]}", 1), &format!("expected ',' or '}}' at byte {}", 5 + 6 * 500 + 1));
}

#[test]
fn errors_of_the_source_pass_through() {
    struct Failing(usize);
    impl Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            match self.0 {
                1 => Err(io::ErrorKind::Interrupted.into()),
                2 => {
                    buffer[0] = b'{';
                    Ok(1)
                }
                _ => Err(io::Error::other("the disk is gone")),
            }
        }
    }
    let error = read(Failing(0)).unwrap_err();
    assert!(matches!(&error, ReadError::Io(inner) if inner.to_string() == "the disk is gone"), "{error}");
}

/// FS-65.
#[test]
fn large_files_hash_on_the_side_and_never_end_early() {
    // Several times what is in flight, with texts beyond ASCII that straddle chunks.
    let mut text = String::from("{\"completed\":1,\"texts\":[");
    for index in 0..40_000 {
        let _ = write!(text, "\"\u{20ac}\u{1f600} number {index} \\u00e9 \\\" {}\",", "z".repeat(index % 97));
    }
    text.push_str("0],\"itls\":[");
    for index in 0..200_000 {
        let _ = write!(text, "0.0{index}, ");
    }
    text.push_str("1],\"failed\":0}");
    let wanted = hex(text.as_bytes());
    for size in [usize::MAX, 131_072, 65_537, 4093] {
        let export = read(Pieces(text.as_bytes(), size)).unwrap();
        assert_eq!((export.sha256.as_str(), export.bytes), (wanted.as_str(), text.len() as u64), "pieces of {size}");
        assert_eq!((export.completed, export.failed), (Counter::Integer(1), Counter::Integer(0)));
    }
    let cut = &text.as_bytes()[..text.len() - 1];
    assert!(read(cut).unwrap_err().to_string().starts_with("the file ends inside"));
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from)
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        any::<String>().prop_map(Value::from),
        "[ -~\"\\\\\n\t]{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn document() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        3 => "[a-z_]{1,12}",
        1 => any::<String>(),
        2 => prop::sample::select(JUDGED.to_vec()).prop_map(str::to_owned),
    ];
    let field = prop_oneof![value(), number(), prop::collection::vec(0u64..300, 0..30).prop_map(|list| json!(list))];
    prop::collection::vec((key, field), 0..12)
        .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()))
}

/// What the reader should have kept, from the document itself.
fn model(document: &Value) -> Vec<(String, Scalar)> {
    let Value::Object(fields) = document else { return Vec::new() };
    fields
        .iter()
        .filter(|(key, _)| *key != "output_lens")
        .filter_map(|(key, value)| {
            let Value::Number(number) = value else { return None };
            let scalar = number.as_i64().map(Scalar::Integer).or_else(|| number.as_f64().map(Scalar::Float))?;
            Some((key.clone(), scalar))
        })
        .collect()
}

proptest! {
    #[test]
    fn agrees_with_serde_json_on_valid_documents(document in document(), pretty in any::<bool>(), size in 1usize..80) {
        let text = if pretty { serde_json::to_string_pretty(&document).unwrap() } else { document.to_string() };
        let export = read(Pieces(text.as_bytes(), size)).unwrap();
        prop_assert_eq!(&export.scalars, &model(&document));
        prop_assert_eq!(&export, &read(text.as_bytes()).unwrap());
        let counter = |key: &str| match document.get(key) {
            None => None,
            Some(value) if value.is_i64() || value.is_u64() => value.as_i64().map(i128::from).or(value.as_u64().map(i128::from)),
            Some(_) => Some(-1),
        };
        for (key, seen) in [("completed", &export.completed), ("failed", &export.failed), ("total_output_tokens", &export.total_output_tokens)] {
            match seen {
                Counter::Absent => prop_assert_eq!(counter(key), None),
                Counter::Integer(value) => prop_assert_eq!(counter(key), Some(*value)),
                Counter::Huge(_) => prop_assert!(false, "no document holds one"),
                Counter::NotInteger(_) => prop_assert_eq!(counter(key), Some(-1)),
            }
        }
        match (&export.output_lens, document.get("output_lens")) {
            (OutputLens::Whole(lengths), Some(Value::Array(list))) => prop_assert_eq!(lengths.count(), list.len() as u64),
            (OutputLens::Invalid(_), Some(Value::Array(list))) => prop_assert!(!list.iter().all(|v| v.as_u64().is_some_and(|n| n <= 1 << 53))),
            (OutputLens::Absent, None) | (OutputLens::Invalid(_), Some(_)) => {}
            (seen, wanted) => prop_assert!(false, "{seen:?} for {wanted:?}"),
        }
    }

    /// Nearly valid documents: one or two bytes changed, put in or taken out. Both readers must draw the line at the same place.
    #[test]
    fn refuses_exactly_what_serde_json_refuses(document in document(), changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"{}[],:\"\\ \t\n0129.-+eEutfnrabx/\0\xff\xc3\x82'".to_vec()), 0u8..3), 1..3)) {
        let mut bytes = document.to_string().into_bytes();
        for (place, byte, kind) in changes {
            let place = place.index(bytes.len());
            match kind {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                _ if bytes.len() > 1 => { bytes.remove(place); }
                _ => {}
            }
        }
        let theirs = std::str::from_utf8(&bytes).is_ok_and(|text| {
            text.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
        });
        let ours = read(&bytes[..]);
        let repeated = matches!(&ours, Err(error) if error.to_string().starts_with("a second"));
        prop_assert!(repeated || ours.is_ok() == theirs, "{:?}: {:?}", String::from_utf8_lossy(&bytes), ours);
    }

    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes[..]);
    }
}
