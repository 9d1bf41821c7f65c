//! `controller corpus build` against the published builder's bytes, refusals and generator vectors.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use controller::corpus::bands::{Band, DEFAULT_WEIGHTS, Weights};
use controller::corpus::plan::{L_INSTRUCTION, Plan, XL_INSTRUCTION};
use controller::corpus::rng::{Rng, Sampler, Seed};
use controller::corpus::source::{Sources, hex};
use controller::corpus::{Request, build};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/variadic")
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// Runs the builder where the goldens were made, because manifests record source paths as typed.
fn controller(argv: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_controller"))
        .args(["corpus", "build"])
        .args(argv)
        .current_dir(golden())
        .output()
        .unwrap()
}

fn source_args(set: &str) -> Vec<String> {
    [("--gsm8k", "gsm8k.jsonl"), ("--humaneval", "humaneval.jsonl"), ("--sonnet", "sonnet.txt")]
        .iter()
        .flat_map(|(option, file)| [(*option).to_owned(), format!("sources/{set}/{file}")])
        .collect()
}

#[test]
fn corpora_and_manifests_are_byte_identical() {
    let cases = json(&golden().join("corpus/cases.json"));
    assert_eq!(cases.as_array().unwrap().len(), 11);
    for case in cases.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut argv = strings(&case["argv"]);
        for option in ["--out", "--manifest"] {
            let at = argv.iter().position(|arg| arg == option).unwrap();
            let file = Path::new(&argv[at + 1]).file_name().unwrap().to_owned();
            argv[at + 1] = dir.path().join(file).to_str().unwrap().to_owned();
        }
        let output = controller(&argv);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{name}: {stderr}");
        let (corpus, manifest) =
            (fs::read(dir.path().join("corpus.json")).unwrap(), fs::read(dir.path().join("manifest.json")).unwrap());
        let expected = golden().join("corpus").join(name);
        assert!(corpus == fs::read(expected.join("corpus.json")).unwrap(), "{name}: corpus");
        assert!(manifest == fs::read(expected.join("manifest.json")).unwrap(), "{name}: manifest");
        assert_eq!(sha256(&corpus), case["corpus_sha256"].as_str().unwrap(), "{name}");
        assert_eq!(sha256(&manifest), case["manifest_sha256"].as_str().unwrap(), "{name}");
        assert_eq!(corpus.len() as u64, case["corpus_bytes"].as_u64().unwrap(), "{name}");
        assert!(output.stdout.strip_suffix(b"\n").unwrap() == manifest, "{name}: stdout");
    }
}

#[test]
fn refusals() {
    let cases = json(&golden().join("corpus/refusals.json"));
    assert_eq!(cases.as_array().unwrap().len(), 8);
    for case in cases.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut argv = source_args(case["sources"].as_str().unwrap());
        for file in ["out", "manifest"] {
            argv.extend([format!("--{file}"), dir.path().join(file).to_str().unwrap().to_owned()]);
        }
        argv.extend(strings(&case["extra_argv"]));
        let output = controller(&argv);
        assert_eq!(i64::from(output.status.code().unwrap()), case["exit_code"].as_i64().unwrap(), "{name}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        for fragment in strings(&case["stderr_must_contain"]) {
            assert!(stderr.contains(&fragment), "{name}: {stderr}");
        }
        assert!(output.stdout.is_empty(), "{name}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{name}: nothing is written");
    }
}

#[test]
fn refusals_of_our_own_name_field_value_and_fix() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (out, manifest) = (dir.path().join("c.json"), dir.path().join("m.json"));
    let (empty, bad_row) = (file("empty", ""), file("bad", "{\"prompt\": \"a\"}\n{\"prompt\": 1}\n"));
    let latin = dir.path().join("latin");
    fs::write(&latin, b"caf\xe9\n").unwrap();
    let latin = latin.to_str().unwrap().to_owned();
    let same = out.to_str().unwrap().to_owned();
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["--count", "200", "--weights", "M=1"], 1, &["band M", "200", "10", "sources/A/humaneval.jsonl", "--count"]),
        (&["--count=-5"], 1, &["--count -5", "negative"]),
        (&["--count", "100000001"], 1, &["100000001", "100000000"]),
        (&["--seed", "1.5"], 2, &["--seed", "1.5"]),
        (&["--count", "many"], 2, &["--count", "many"]),
        (&["--sonnet", &empty, "--count", "0"], 1, &[&empty, "no lines"]),
        (&["--humaneval", &empty, "--count", "0"], 1, &[&empty, "no rows"]),
        (&["--gsm8k", &empty, "--count", "10"], 1, &["band S", "there are 0"]),
        (&["--humaneval", &bad_row], 1, &[&bad_row, "line 2", "not a string"]),
        (&["--sonnet", &latin], 1, &["not UTF-8", "byte 3"]),
        (&["--sonnet", "no/such"], 1, &["no/such"]),
        (&["--manifest", &same], 2, &["--out and --manifest"]),
        (&["--out", "sources/A/sonnet.txt"], 2, &["--sonnet", "replace"]),
    ];
    for (extra, status, fragments) in cases {
        let mut argv = source_args("A");
        argv.extend(["--out".into(), same.clone(), "--manifest".into(), manifest.to_str().unwrap().into()]);
        for pair in extra.chunks(2) {
            let option = pair[0].split('=').next().unwrap();
            if let Some(at) = argv.iter().position(|arg| arg == option) {
                argv.drain(at..at + 2);
            }
        }
        argv.extend(extra.iter().map(|arg| (*arg).to_owned()));
        let output = controller(&argv);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(*status), "{extra:?}: {stderr}");
        for fragment in *fragments {
            assert!(stderr.contains(fragment), "{extra:?} should say {fragment:?}: {stderr}");
        }
        assert!(!out.exists() && !manifest.exists(), "{extra:?}");
    }
    // An empty GSM8K matters only to a corpus with an S band.
    let mut argv = source_args("A");
    argv[1] = empty;
    argv.extend(["--out".into(), same, "--manifest".into(), manifest.to_str().unwrap().into()]);
    argv.extend(["--weights=M=1".into(), "--count=3".into(), "--seed=-0".into()]);
    assert_eq!(controller(&argv).status.code(), Some(0));
}

#[test]
fn band_counts() {
    let cases = json(&golden().join("corpus/band_counts.json"));
    for case in cases.as_array().unwrap() {
        let weights: Weights = case["weights"].as_str().unwrap().parse().unwrap();
        let parsed: Vec<(String, f64)> = weights.iter().map(|(band, share)| (band.to_string(), share)).collect();
        let expected: Vec<(String, f64)> =
            case["parsed"].as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.as_f64().unwrap())).collect();
        assert_eq!(parsed, expected);
        let counts = weights.allocate(case["count"].as_i64().unwrap()).unwrap();
        let counts: Vec<(String, u64)> = counts.iter().map(|(band, n)| (band.to_string(), n.into())).collect();
        let expected: Vec<(String, u64)> =
            case["band_counts"].as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.as_u64().unwrap())).collect();
        assert_eq!(counts, expected, "{case}");
    }
}

#[test]
fn generator_vectors() {
    fn numbers(list: &Value) -> Vec<u32> {
        list.as_array().unwrap().iter().map(|n| u32::try_from(n.as_u64().unwrap()).unwrap()).collect()
    }
    let vectors = json(&golden().join("rng/vectors.json"));
    for case in vectors["seeds"].as_array().unwrap() {
        let seed: Seed = case["seed"].as_str().unwrap().parse().unwrap();
        let fresh = || Rng::new(&seed);
        let next = |rng: &mut Rng, expected: &Value| {
            assert_eq!(u64::from(rng.getrandbits(32)), expected.as_u64().unwrap(), "{seed}: the draw that follows");
        };
        for (key, value) in case.as_object().unwrap() {
            let mut rng = fresh();
            match key.split_once('_').map_or(key.as_str(), |(head, _)| head) {
                "seed" => {}
                "u32" => {
                    if key == "u32_1300_to_1303" {
                        for _ in 0..1300 {
                            rng.getrandbits(32);
                        }
                    } else {
                        assert_eq!(key, "u32_first_8");
                    }
                    let expected = numbers(value);
                    let got: Vec<u32> = expected.iter().map(|_| rng.getrandbits(32)).collect();
                    assert_eq!(got, expected, "{seed} {key}");
                }
                "getrandbits" => {
                    let bits = key.split('_').skip(1).map(|bits| bits.parse().unwrap());
                    let got: Vec<u32> = bits.map(|bits| rng.getrandbits(bits)).collect();
                    assert_eq!(got, numbers(value), "{seed} {key}");
                }
                "randbelow" => {
                    for row in value.as_array().unwrap() {
                        let n = u32::try_from(row["n"].as_u64().unwrap()).unwrap();
                        let (mut rng, expected) = (fresh(), numbers(&row["values"]));
                        let got: Vec<u32> = expected.iter().map(|_| rng.below(n)).collect();
                        assert_eq!(got, expected, "{seed} below {n}");
                        next(&mut rng, &row["next_u32"]);
                    }
                }
                "randint" => {
                    let expected = numbers(value);
                    let got: Vec<u32> = expected.iter().map(|_| rng.between(18, 22)).collect();
                    assert_eq!(got, expected, "{seed}");
                }
                "shuffle" => {
                    let expected = numbers(&value["order"]);
                    let mut order: Vec<u32> = (0..).take(expected.len()).collect();
                    rng.shuffle(&mut order);
                    assert_eq!(order, expected, "{seed} {key}");
                    next(&mut rng, &value["next_u32"]);
                }
                "sample" => {
                    let sizes: Vec<u32> = key.split('_').skip(1).map(|n| n.parse().unwrap()).collect();
                    let mut picks = Vec::new();
                    Sampler::default().sample(&mut rng, sizes[0], sizes[1], &mut picks);
                    assert_eq!(picks, numbers(&value["indices"]), "{seed} {key}");
                    next(&mut rng, &value["next_u32"]);
                }
                other => panic!("a vector that nobody checks: {other}"),
            }
        }
    }
    assert!(vectors["seeds"].as_array().unwrap().len() >= 5);
}

/// The upstream test fixture, built from its recipe.
struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let lines = |n: usize, line: &dyn Fn(usize) -> String| (0..n).map(line).collect::<String>();
        let row = |key: &str, text: &str| format!("{{\"{key}\": {}}}\n", serde_json::to_string(text).unwrap());
        let gsm8k = lines(200, &|i| row("question", &"q ".repeat(5 + i % 20)));
        let humaneval = lines(164, &|i| row("prompt", &format!("def f{i}():\n    pass\n{}", "x ".repeat(10 + i))));
        let sonnet = lines(517, &|i| format!("line {i} of the verse here\n"));
        for (name, text) in [("gsm8k", gsm8k), ("humaneval", humaneval), ("sonnet", sonnet)] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        Self(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn build(&self, seed: i64, count: i64, weights: &str) -> (Vec<u8>, Value) {
        let request = Request {
            gsm8k: self.path("gsm8k"),
            humaneval: self.path("humaneval"),
            sonnet: self.path("sonnet"),
            count,
            seed: seed.to_string().parse().unwrap(),
            weights: weights.parse().unwrap(),
            generator: "test".to_owned(),
        };
        let (out, manifest) = (self.0.path().join("out"), self.0.path().join("manifest"));
        build(&request, &out, &manifest).unwrap();
        (fs::read(out).unwrap(), json(&manifest))
    }
}

#[test]
fn upstream_fixture() {
    let fixture = Fixture::new();
    let golden = json(&golden().join("corpus/fixture_hashes.json"));
    for (name, expected) in golden["recipe"]["sha256"].as_object().unwrap() {
        assert_eq!(sha256(&fs::read(fixture.path(name)).unwrap()), expected.as_str().unwrap(), "{name}");
    }
    for case in golden["cases"].as_array().unwrap() {
        let weights = case["weights"].as_str().unwrap_or(DEFAULT_WEIGHTS);
        let (corpus, manifest) =
            fixture.build(case["seed"].as_i64().unwrap(), case["count"].as_i64().unwrap(), weights);
        assert_eq!(sha256(&corpus), case["corpus_sha256"].as_str().unwrap(), "{case}");
        for key in ["corpus_sha256", "band_counts", "rules", "realised_chars"] {
            assert_eq!(manifest[key], case[key], "{key}");
        }
    }
}

#[test]
fn bands_differ_in_length_only_where_they_should() {
    let fixture = Fixture::new();
    let (_, manifest) = fixture.build(0, 200, DEFAULT_WEIGHTS);
    let median = |band: &str| manifest["realised_chars"][band]["median"].as_u64().unwrap();
    assert!(median("S") < median("M") && median("M") < median("L") && median("L") < median("XL"));

    let (corpus, manifest) = fixture.build(0, 200, "S=0.2,M=0.2,L=0.2,XL=0.2,XXL=0.2");
    let chars = &manifest["realised_chars"];
    assert_eq!(chars["XXL"]["n"], 40);
    assert!(chars["XXL"]["min"].as_u64() > chars["XL"]["max"].as_u64());
    assert!((15750..26250).contains(&chars["XXL"]["median"].as_u64().unwrap()));
    assert!(chars["XXL"]["max"].as_f64().unwrap() / 3.11 < 7943.0, "fits the served context");
    let items: Vec<Value> = serde_json::from_slice(&corpus).unwrap();
    let mut heads: HashMap<String, usize> = HashMap::new();
    for item in &items {
        let (band, text) = (item["band"].as_str().unwrap(), item["conversations"][0]["value"].as_str().unwrap());
        let instruction = match band {
            "L" => L_INSTRUCTION,
            "XL" | "XXL" => XL_INSTRUCTION,
            _ => continue,
        };
        assert!(text.starts_with(instruction));
        assert_eq!(text.matches(instruction).count(), 1);
        *heads.entry(band.to_owned()).or_default() += 1;
    }
    assert_eq!(heads.len(), 3);
}

#[test]
fn the_seed_decides_and_nothing_else() {
    let fixture = Fixture::new();
    let (first, _) = fixture.build(0, 137, DEFAULT_WEIGHTS);
    assert!(first == fixture.build(0, 137, DEFAULT_WEIGHTS).0);
    assert!(first != fixture.build(1, 137, DEFAULT_WEIGHTS).0);
    // The sign is shown and not drawn from.
    let (positive, negative) = (fixture.build(5, 137, DEFAULT_WEIGHTS), fixture.build(-5, 137, DEFAULT_WEIGHTS));
    assert!(positive.0 == negative.0);
    assert_eq!((&positive.1["seed"], &negative.1["seed"]), (&5.into(), &(-5).into()));
}

/// Long corpora hold most of their picks as stored generators: across many of those, text must agree with length.
#[test]
fn items_written_later_are_those_that_were_drawn() {
    let fixture = Fixture::new();
    let (corpus, manifest) = fixture.build(3, 700, "XXL=0.4,XL=0.5,L=0.1");
    let items: Vec<Value> = serde_json::from_slice(&corpus).unwrap();
    assert_eq!(items.len(), 700);
    for band in [Band::L, Band::Xl, Band::Xxl] {
        let mut lengths: Vec<u64> = items
            .iter()
            .filter(|item| item["band"] == band.name())
            .map(|item| item["conversations"][0]["value"].as_str().unwrap().chars().count() as u64)
            .collect();
        lengths.sort_unstable();
        let chars = &manifest["realised_chars"][band.name()];
        assert_eq!(chars["n"].as_u64().unwrap(), lengths.len() as u64);
        assert_eq!(chars["min"].as_u64().unwrap(), lengths[0]);
        assert_eq!(chars["max"].as_u64().unwrap(), *lengths.last().unwrap());
        assert_eq!(chars["median"].as_u64().unwrap(), lengths[lengths.len() / 2]);
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let mean = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
        assert_eq!(chars["mean"].as_f64().unwrap().to_bits(), mean.to_bits());
    }
}

/// A prompt may cost 64 bytes beyond the sources; 4 of them are its length, held while a band is drawn.
#[test]
fn a_large_corpus_is_small_until_it_is_written() {
    let fixture = Fixture::new();
    let sources = Sources::read(&fixture.path("gsm8k"), &fixture.path("humaneval"), &fixture.path("sonnet")).unwrap();
    let seed: Seed = "0".parse().unwrap();
    for weights in ["XXL=1", "L=1", "XL=0.5,L=0.5"] {
        let bytes = |count| {
            let counts = weights.parse::<Weights>().unwrap().allocate(count).unwrap();
            Plan::draw(&sources, &counts, &seed).unwrap().heap_bytes()
        };
        let per_prompt = (bytes(20_480) - bytes(10_240)) / 10_240;
        assert!(per_prompt <= 60, "{weights}: {per_prompt} bytes");
    }
}
