//! The differences that are meant, each with the sentence that demands it.

use serde_json::Value;

use crate::compare::{Case, Kind, What};

/// One kind of difference.
struct Entry {
    kind: Kind,
    name: &'static str,
    /// Which text demands it.
    because: &'static str,
    applies: fn(&What, &Case) -> bool,
}

/// One of our refusals begins so: `<key> <rule>`.
fn refuse(what: &What, test: impl Fn(&str) -> bool) -> bool {
    let What::WeRefuse(error) = what else { return false };
    test(error.strip_prefix("tokenspeed_serve: ").unwrap_or(error))
}

/// A field by name.
fn field(what: &What, test: impl Fn(&str, &Value, &Value) -> bool) -> bool {
    let What::Field { name, ours, theirs } = what else { return false };
    test(name, ours, theirs)
}

const CONFIG: Kind = Kind::Config;
const ENVIRONMENT: Kind = Kind::Environment;
const EXPORT: Kind = Kind::Export;

#[rustfmt::skip]
const ENTRIES: &[Entry] = &[
    Entry {
        kind: CONFIG,
        name: "variables of our own",
        because: "design 2: the controller sets TS_LEASE_SEC always, TS_GENERATE_PROBE where asked; design 4: loopback is never proxied",
        applies: |what, _| field(what, |name, _, theirs| {
            ["env.TS_LEASE_SEC", "env.TS_GENERATE_PROBE", "env.NO_PROXY", "env.no_proxy"].contains(&name) && theirs == "(absent)"
        }),
    },
    Entry {
        kind: CONFIG,
        name: "120 s for the generate probe",
        because: "design 3a: its window is part of the derived timeout_sec",
        applies: |what, _| field(what, |name, ours, theirs| {
            name == "timeout_sec" && ours.as_u64().zip(theirs.as_u64()).is_some_and(|(a, b)| a == b + 120)
        }),
    },
    Entry {
        kind: CONFIG,
        name: "spellings of whole numbers",
        because: "seed: int() reads \"+5\", \" 5 \", \"3_0\" and the zero-padded \"08\" ... the host now requires the same plain unsigned decimal, and rejects rather than normalises it",
        applies: |what, _| refuse(what, |error| error.contains("must be an integer written in plain digits")),
    },
    Entry {
        kind: CONFIG,
        name: "lists and mappings where a text is wanted",
        because: "contract E.1 and E.2: any scalar is stringified; the original prints a list as Python does",
        applies: |what, _| refuse(what, |error| {
            error.contains("must be a text, not a list") || error.contains("must be a text, not a mapping") || error.contains("must hold strings only")
        }),
    },
    Entry {
        kind: CONFIG,
        name: "zero and false where percentiles are wanted",
        because: "contract E.1: any scalar is stringified; empty and null fall back to the default, and nothing else does",
        applies: |what, case| refuse(what, |error| error.starts_with("metric_percentiles entry "))
            && ["0", "0.0", "-0.0", "false"].iter().any(|value| case.text.contains(&format!("metric_percentiles: {value}"))),
    },
    Entry {
        kind: CONFIG,
        name: "digits of other scripts",
        because: "seed: a recipe that cannot be read the way it was written must not be run the way it was not",
        applies: |what, case| refuse(what, |error| error.starts_with("request_rate ") || error.starts_with("metric_percentiles ")) && case.text.contains(['５', '１']),
    },
    Entry {
        kind: CONFIG,
        name: "a NUL byte in any text",
        because: "contract F.6: values without NUL; no argument of the client can hold one",
        applies: |what, _| refuse(what, |error| error.contains("contains a NUL byte")),
    },
    Entry {
        kind: CONFIG,
        name: "variables of our own, and of rollout mode, are protected",
        because: "design 2: environment of our own, protected like the rest; contract F.7: plus with rollout TS_ROLLOUT, ...",
        applies: |what, _| refuse(what, |error| {
            ["TS_LEASE_SEC", "NO_PROXY", "TS_ROLLOUT", "TS_SAVE_DETAILED"].iter().any(|name| {
                error.ends_with(&format!("sets itself: {name}")) || error.contains(&format!("protocol variable {name}"))
            })
        }),
    },
    Entry {
        kind: CONFIG,
        name: "an empty list of variables",
        because: "contract F.7: the resolved mitigations are a mapping of names to values",
        applies: |what, _| refuse(what, |error| error.starts_with("_aorta_trial_env must be a mapping")),
    },
    Entry {
        kind: CONFIG,
        name: "zero and false where a text is wanted",
        because: "contract E.1: any scalar is stringified; empty and null fall back to the default, and nothing else does",
        applies: |what, _| field(what, |_, ours, _| {
            ours.as_str().is_some_and(|text| ["0", "0.0", "-0.0", "False"].iter().any(|word| text == *word || text.ends_with(&format!("/{word}"))))
        }),
    },
    Entry {
        kind: CONFIG,
        name: "numbers that no timer and no counter holds",
        because: "contract A.1: numbers too large for the platform integer must also be a 64; seed: \"the same values\" has to include the ranges, in both directions",
        applies: |what, case| refuse(what, |error| {
            let large = ["99999999999999999999", "e+25", "31536001"].iter().any(|number| case.text.contains(number));
            large && (error.contains("must be between") || error.contains("must be >=") || error.contains("is too large"))
        }),
    },
    Entry {
        kind: CONFIG,
        name: "flags that the container would refuse",
        because: "contract D.5: repeating the owned-flag rejection in the controller, so that the recipe fails before a node is taken, is in the seed's spirit",
        applies: |what, _| refuse(what, |error| {
            (error.starts_with("serve_args ") || error.starts_with("bench_args ")) && (error.contains("may not set --") || error.contains("--prometheus-port"))
        }),
    },
    Entry {
        kind: CONFIG,
        name: "a token where the name of a variable is wanted",
        because: "contract E.2: hf_token_env is the name of the host variable to read; F.6: names match [A-Za-z_][A-Za-z0-9_]*",
        applies: |what, _| refuse(what, |error| error.starts_with("hf_token_env is not the name of a variable")),
    },
    Entry {
        kind: CONFIG,
        name: "further options of the client that would take the container out of our hands",
        because: "contract F.9, gaps worth deciding on; design 4, longer list of owned options",
        applies: |what, _| refuse(what, |error| {
            error.starts_with("docker_args ")
                && (error.contains("would take for the image")
                    || ["--restart", "--volumes-from", "--log-driver"].iter().any(|option| error.contains(&format!("may not set {option}"))))
        }),
    },
    Entry {
        kind: ENVIRONMENT,
        name: "numbers beyond the shell's",
        because: "contract A.1 and K 11: must be 64 (the shell script lets it through: do not copy)",
        applies: |what, case| refuse(what, |error| error.contains("must be between") && (case.text.contains("99999999999999999999") || case.text.contains("31536001"))),
    },
    Entry {
        kind: ENVIRONMENT,
        name: "zero-padded counts",
        because: "contract A.2: they accept zero-padded digits; an agent may tighten this to the strict reader",
        applies: |what, _| refuse(what, |error| {
            error.contains("must not be zero-padded")
                && ["TS_BENCH_STEPS", "TS_BENCH_WARMUP_STEPS", "TS_NUM_PROMPTS", "TS_INPUT_LEN", "TS_OUTPUT_LEN", "TS_NUM_WARMUPS", "TS_BENCH_TIMEOUT", "TS_MIN_MEAN_OUTPUT_TOKENS"]
                    .iter()
                    .any(|name| error.contains(name))
        }),
    },
    Entry {
        kind: ENVIRONMENT,
        name: "words behind a literal --",
        because: "contract D.4, edge 2, and K 46: must be 64 (the script passes it: do not copy)",
        applies: |what, case| refuse(what, |error| error.contains("may not set") && case.text.contains(r#"[\"--\","#)),
    },
    Entry {
        kind: ENVIRONMENT,
        name: "run tokens that make no file name",
        because: "contract B.7 and F.5: the token is part of file names and of the container's name",
        applies: |what, _| refuse(what, |error| error.starts_with("usage TS_RUN_TOKEN")),
    },
    Entry {
        kind: ENVIRONMENT,
        name: "a folder for a dataset",
        because: "contract A.2: TS_DATASET_PATH is a readable file",
        applies: |what, _| refuse(what, |error| error.contains("not a regular file")),
    },
    Entry {
        kind: ENVIRONMENT,
        name: "the engine's own start-up limit",
        because: "contract L.1, 7: for ready_timeout_sec above 1800 the orchestrator can give up first",
        applies: |what, _| field(what, |name, ours, _| name == "serve" && ours.to_string().contains("--engine-startup-timeout")),
    },
    Entry {
        kind: ENVIRONMENT,
        name: "texts that are no arguments",
        because: "contract A.3, 6: elements become argv entries one for one; an unpaired surrogate cannot, and the script loses it without a word",
        applies: |what, case| refuse(what, |error| error.contains("is not valid JSON") && case.text.contains(r"\\ud800")),
    },
    Entry {
        kind: ENVIRONMENT,
        name: "the gateway's metrics port",
        because: "review finding C-02: --prometheus-port must differ from both our ports (64)",
        applies: |what, _| refuse(what, |error| error.contains("--prometheus-port must differ")),
    },
    Entry {
        kind: EXPORT,
        name: "a judged key that stands twice",
        because: "design 8: a duplicate of a judged key is 54 (two readers must not see two numbers)",
        applies: |what, _| refuse(what, |error| error.starts_with("a second \"")),
    },
    Entry {
        kind: EXPORT,
        name: "integers beyond a double",
        because: "review finding B-02: unusable values, not parse failures; the original ends in a traceback",
        applies: |what, case| matches!(what, What::TheyRefuse(error) if error.starts_with("crash: OverflowError")) && case.text.contains(&"0".repeat(400)),
    },
    Entry {
        kind: EXPORT,
        name: "a shortfall is reported alone",
        because: "seed: a shortfall step is reported as served_request_shortfall alone, in both layers",
        applies: |what, case| field(what, |name, _, _| {
            ["details", "first_failure_iteration"].iter().any(|part| name.starts_with(part)) && without_followers(&case.theirs) == case.ours["details"]
        }),
    },
    Entry {
        kind: EXPORT,
        name: "the witnesses contradict each other",
        because: "design 3: exit 0 and other markers than steps is witness_disagreement",
        applies: |what, case| field(what, |name, _, theirs| {
            let alone = case.ours["details"] == serde_json::json!([{"reason": "witness_disagreement"}]);
            alone && match name {
                "passed" => theirs == true,
                "first_failure_iteration" => theirs.is_null(),
                "details" => *theirs == serde_json::json!([]),
                _ => false,
            }
        }),
    },
    Entry {
        kind: EXPORT,
        name: "integers beyond 64 bits in a step's figures",
        because: "design 3: the document is strict JSON for every reader; the value stays, as a number that readers have",
        applies: |what, _| field(what, |name, _, theirs| {
            name.starts_with("metrics.steps[") && theirs.as_str().is_some_and(|text| text.starts_with("integer of "))
        }),
    },
    Entry {
        kind: EXPORT,
        name: "what was asked for is not the export's to say",
        because: "seed: published as null rather than as the recipe's defaults; contract I.2: always present, as asked",
        applies: |what, _| field(what, |name, _, _| name == "metrics.input_len"),
    },
    Entry {
        kind: EXPORT,
        name: "sums that no JSON integer of 64 bits holds",
        because: "design 8: a figure that the data cannot support is absent; completed_total and failed_total are JSON integers",
        applies: |what, _| field(what, |name, ours, theirs| {
            ["metrics.completed_total", "metrics.failed_total"].contains(&name)
                && ours == "(absent)"
                && theirs.as_str().is_some_and(|text| text.starts_with("integer of "))
        }),
    },
    Entry {
        kind: EXPORT,
        name: "a number under the name of the array",
        because: "contract H.4: output_lens is an array or unusable, never a figure of its own",
        applies: |what, _| field(what, |name, ours, theirs| match name {
            "metrics.partial_metrics" => theirs.to_string().contains("\"output_lens\"") && !ours.to_string().contains("\"output_lens\""),
            _ => ours == "(absent)" && (name == "metrics.output_lens" || name.starts_with("metrics.steps[") && name.ends_with("].output_lens")),
        }),
    },
    Entry {
        kind: EXPORT,
        name: "a fraction of a token",
        because: "review finding B-01: a total of 0 or 12.5 is exactly one result_json_unusable",
        applies: |what, case| {
            let fraction = ["5e-324", "1.5", "12.5"].iter().any(|total| case.text.contains(&format!("\"total_output_tokens\": {total}")));
            fraction && field(what, |name, _, _| of_the_verdict(name)) && unusable(case)
        },
    },
    Entry {
        kind: EXPORT,
        name: "a length that no double counts exactly",
        because: "design 8: a figure that the data cannot support is absent; above 2^53 a double skips whole numbers",
        applies: |what, case| {
            let named = |name: &str| of_the_verdict(name) || name.starts_with("agent[") || name.starts_with("metrics.generated_tokens_");
            case.text.contains("99999999999999999999") && field(what, |name, _, _| named(name)) && unusable(case)
        },
    },
    Entry {
        kind: EXPORT,
        name: "who makes the load",
        because: "design 2: bench_tool is a key of our own",
        applies: |what, _| field(what, |name, _, _| name == "metrics.bench_tool"),
    },
    Entry {
        kind: EXPORT,
        name: "the shape of output_lens",
        because: "review finding B-04: the metrics name the shape found",
        applies: |what, _| field(what, |name, _, theirs| name == "metrics.output_lens_shape" && theirs == "(absent)"),
    },
];

/// Fields that say whether a trial passed and why not.
fn of_the_verdict(name: &str) -> bool {
    name == "passed" || name == "first_failure_iteration" || name.starts_with("details")
}

/// Whether we call an export of the case unusable.
fn unusable(case: &Case) -> bool {
    case.ours["details"].to_string().contains("result_json_unusable")
}

/// The original's details without those that follow a shortfall of the same step.
fn without_followers(theirs: &Value) -> Value {
    let mut kept: Vec<Value> = Vec::new();
    for detail in theirs["details"].as_array().into_iter().flatten() {
        let follows = detail["reason"] == "result_json_unusable"
            && kept.last().is_some_and(|d| d["reason"] == "served_request_shortfall" && d["step"] == detail["step"]);
        if !follows {
            kept.push(detail.clone());
        }
    }
    kept.into()
}

/// The entries of one kind, and how often each was needed.
pub(crate) struct Intended {
    entries: Vec<(&'static Entry, usize)>,
}

impl Intended {
    pub(crate) fn of(kind: Kind) -> Self {
        Self { entries: ENTRIES.iter().filter(|entry| entry.kind == kind).map(|entry| (entry, 0)).collect() }
    }

    /// Whether an entry demands this difference.
    pub(crate) fn explains(&mut self, what: &What, case: &Case) -> bool {
        match self.entries.iter_mut().find(|(entry, _)| (entry.applies)(what, case)) {
            Some((_, needed)) => {
                *needed += 1;
                true
            }
            None => false,
        }
    }

    /// Says what was needed, and what was not.
    pub(crate) fn report(&self) {
        for (entry, needed) in &self.entries {
            let never = if *needed == 0 { "  <- never needed" } else { "" };
            eprintln!("  {needed:5}  {} ({}){never}", entry.name, entry.because);
        }
    }
}

/// Takes the words of rollout mode out of our command lines: the script does not know them, the model tells them apart.
pub(crate) fn without_rollout(ours: &mut Value) {
    let rollout = ours["rollout"]["rollout"] == true;
    let words = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap_or_default() };
    let (mut serve, mut bench) = (words(&ours["serve"]), words(&ours["bench"]));
    if rollout {
        take(&mut serve, "--sampling-backend", 2);
        take(&mut bench, "--extra-body", 2);
        // The script was told to ignore EOS, because it knows no other load on random.
        if let Some(at) = bench.iter().position(|word| word == "--label") {
            bench.insert(at, "--ignore-eos".to_owned());
        }
    }
    if ours["rollout"]["save_detailed"] == true {
        take(&mut bench, "--save-detailed", 1);
    }
    ours["serve"] = serve.into();
    ours["bench"] = bench.into();
}

fn take(words: &mut Vec<String>, flag: &str, count: usize) {
    if let Some(at) = words.iter().position(|word| word == flag) {
        words.drain(at..at + count);
    }
}
