//! The original and we judge the same thousands of configurations, environments and exports. Every difference is a
//! fault of ours, or stands in [`intended`] with the sentence that demands it.
//!
//! The original is `amd-aorta` 0.3.0 in an environment of its own (`tests/python/differential.py`): its class for
//! configurations and exports, its real script, driven up to the first bench step, for environments. It predates
//! rollout mode, which `tests/python/rollout_model.py` judges in its place: the seed's rules written a second time.
//!
//! `TS_TEST_DIFFER_CASES` and `TS_TEST_DIFFER_SEED` give other numbers of cases and another seed; `TS_TEST_LONG` runs
//! twenty times as many.

mod compare;
mod configs;
mod dice;
mod envs;
mod exports;
mod intended;
mod ours;
mod worker;

use std::path::{Path, PathBuf};

use compare::{Case, Kind, What, fields};
use dice::{Dice, Mood};
use intended::Intended;
use serde_json::{Value, json};
use tests::needs;
use worker::{Answer, Worker};

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

fn cases(in_ci: usize) -> usize {
    number("TS_TEST_DIFFER_CASES", if needs::long() { 20 * in_ci } else { in_ci })
}

/// Judges `count` cases of one kind and fails with the differences that nobody demanded.
fn run<C>(
    test: &str,
    kind: Kind,
    mut given: Vec<C>,
    count: usize,
    make: impl Fn(&mut Dice, Mood) -> C,
    mut judge: impl FnMut(&mut Worker, C) -> Outcome,
) {
    let Some(mut worker) = Worker::start(test) else { return };
    let seed = number("TS_TEST_DIFFER_SEED", 20_261_130) as u64;
    let mut intended = Intended::of(kind);
    let (mut accepted, mut unexplained) = (0, Vec::new());
    // Each case has a seed of its own, so that one can be had again without the others.
    let dice = |case: usize| Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(case as u64));
    given.extend((0..count).map(|case| make(&mut dice(case), Mood::of(case))));
    let count = given.len();
    for (case, question) in given.into_iter().enumerate() {
        let outcome = judge(&mut worker, question);
        accepted += usize::from(outcome.accepted);
        for what in outcome.differences {
            if !intended.explains(&what, &outcome.case) {
                unexplained.push((case, what, outcome.case.text.clone()));
            }
        }
    }
    eprintln!("{test}: {count} cases with seed {seed}, {accepted} accepted by both");
    intended.report();
    // A generator that makes nothing sound, or nothing but, proves nothing.
    assert!(accepted * 10 > count && accepted * 20 < count * 19, "{accepted} of {count} are accepted by both");
    if !unexplained.is_empty() {
        for (case, what, text) in unexplained.iter().take(number("TS_TEST_DIFFER_SHOWN", 40)) {
            eprintln!("case {case}: {what:?}\n    {text}");
        }
        panic!("{} differences that nobody demands", unexplained.len());
    }
}

struct Outcome {
    case: Case,
    accepted: bool,
    differences: Vec<What>,
}

fn sharegpt(home: &Path) -> PathBuf {
    let path = home.canonicalize().expect("a folder").join("conversations.json");
    std::fs::write(&path, "[]").expect("a folder that can be written");
    path
}

/// Compares two answers to a question of acceptance.
fn outcome(text: String, ours: Result<Value, Vec<String>>, theirs: Answer) -> Outcome {
    let mut differences = Vec::new();
    let accepted = ours.is_ok() && matches!(theirs, Answer::Accepted(_));
    let answer = |answer: &Answer| if let Answer::Accepted(value) = answer { value.clone() } else { Value::Null };
    let case = Case { text, ours: ours.clone().unwrap_or_default(), theirs: answer(&theirs) };
    match (ours, theirs) {
        (Ok(ours), Answer::Accepted(theirs)) => fields("", &ours, &theirs, &mut differences),
        (Ok(_), Answer::Refused(error)) => differences.push(What::TheyRefuse(error)),
        (Err(errors), Answer::Accepted(_)) => differences.extend(errors.into_iter().map(What::WeRefuse)),
        (Err(_), Answer::Refused(_)) => {}
    }
    Outcome { case, accepted, differences }
}

#[test]
fn configurations_are_judged_as_by_the_original() {
    let home = tempfile::tempdir().expect("a folder");
    let path = sharegpt(home.path());
    let test = "configurations_are_judged_as_by_the_original";
    let make = |dice: &mut Dice, mood| configs::config(dice, mood, &path);
    run(test, Kind::Config, configs::each_alone(), cases(800), make, |worker, text| {
        let theirs = worker.ask(&json!({"op": "config", "yaml": text}));
        let trial = ours::trial(&text);
        // What the host accepts never exits 64 in the container (seed, "the same values").
        let refused = trial.as_ref().ok().and_then(|trial| {
            let mut env = ours::environment_of(trial);
            env.entry("TS_DATASET_PATH".into()).and_modify(|inside| *inside = path.display().to_string());
            ours::launch(env).err()
        });
        let mut outcome = outcome(text, trial.map(|trial| ours::resolved(&trial)), spelled_out(theirs));
        outcome.differences.extend(refused.map(|error| What::WeRefuse(format!("our own container: {error}"))));
        outcome
    });
}

/// Argument lists are compared as lists, not as the text that carries them.
fn spelled_out(answer: Answer) -> Answer {
    let Answer::Accepted(mut value) = answer else { return answer };
    for key in ["env.TS_SERVE_ARGS", "env.TS_BENCH_ARGS"] {
        if let Some(text) = value.get(key).and_then(Value::as_str) {
            let list: Value = serde_json::from_str(text).expect("the original sends JSON");
            value[key] = Value::String(list.to_string());
        }
    }
    Answer::Accepted(value)
}

#[test]
fn environments_are_judged_as_by_the_original_script() {
    let home = tempfile::tempdir().expect("a folder");
    let path = sharegpt(home.path());
    let test = "environments_are_judged_as_by_the_original_script";
    let make = |dice: &mut Dice, mood| envs::environment(dice, mood, &path);
    run(test, Kind::Environment, envs::each_alone(), cases(150), make, |worker, environment| {
        let map: serde_json::Map<_, _> = environment.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let theirs = worker.ask(&json!({"op": "env", "env": map}));
        let mut ours = ours::launch(environment).map_err(|error| vec![error]);
        if let Ok(ours) = &mut ours {
            intended::without_rollout(ours);
        }
        outcome(Value::Object(map).to_string(), ours, theirs)
    });
}

#[test]
fn exports_are_judged_as_by_the_original() {
    let home = tempfile::tempdir().expect("a folder");
    let path = sharegpt(home.path());
    let make = |dice: &mut Dice, mood| exports::trial(dice, mood, &path);
    run("exports_are_judged_as_by_the_original", Kind::Export, Vec::new(), cases(1000), make, |worker, mut case| {
        let shown = case.shown();
        let unread = only_we_refuse(worker, &mut case);
        let theirs = worker.ask(&case.question());
        let trial = ours::trial(&case.config).unwrap_or_else(|errors| panic!("{}: {errors:?}", case.config));
        let ours = ours::result(&case, &trial);
        let passed = ours["passed"] == true;
        let mut outcome = outcome(shown, Ok(ours), theirs);
        outcome.accepted &= passed;
        outcome.differences.extend(unread);
        outcome
    });
}

/// Takes out the exports that one side reads and the other does not, so that the rest is compared all the same.
fn only_we_refuse(worker: &mut Worker, case: &mut exports::Trial) -> Vec<What> {
    let Answer::Accepted(theirs) = worker.ask(&case.reading()) else { panic!("reading is answered") };
    let mut theirs = theirs.as_array().expect("a list").clone().into_iter();
    let mut differences = Vec::new();
    case.exports.retain(|(_, bytes)| {
        let theirs = theirs.next().unwrap_or_default();
        match (proto::export::read(bytes.as_slice()), theirs.as_str()) {
            (Err(error), None) => differences.push(What::WeRefuse(error.to_string())),
            (Ok(_), Some(error)) => differences.push(What::TheyRefuse(error.to_owned())),
            (Ok(_), None) | (Err(_), Some(_)) => return true,
        }
        false
    });
    differences
}
