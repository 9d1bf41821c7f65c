//! A container client that does what a real one does only now and then: `FAKE_DOCKER_DIR` holds `script.json`, the
//! containers (`containers/<name>`: id, name, state and token, with tabs between) and a log of the calls.

use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};

fn main() -> ExitCode {
    let dir = PathBuf::from(std::env::var_os("FAKE_DOCKER_DIR").unwrap_or_default());
    let args: Vec<String> = std::env::args().skip(1).collect();
    let sub = args.first().map(String::as_str).unwrap_or_default();
    log(&dir, &args);
    let script: Value = fs::read_to_string(dir.join("script.json"))
        .ok()
        .and_then(|t| serde_json::from_str(&t).ok())
        .unwrap_or_default();
    let rule = &script[sub];
    if let Some(ms) = rule["delay_ms"].as_u64() {
        std::thread::sleep(Duration::from_millis(ms));
    }
    if let Some(words) = rule["stderr"].as_str() {
        eprintln!("{words}");
    }
    if rule["hang"].as_bool() == Some(true) {
        forever();
    }
    match sub {
        "run" => run(&dir, &args, rule),
        "create-late" => {
            std::thread::sleep(Duration::from_millis(args[1].parse().unwrap_or_default()));
            create(&dir, &args[2], &args[3]);
        }
        "ps" => list(&dir, &args),
        "rm" if rule["exit"].is_null() => remove(&dir, args.last().map(String::as_str).unwrap_or_default()),
        "version" => say("20.10"),
        _ => {}
    }
    ExitCode::from(rule["exit"].as_u64().and_then(|code| u8::try_from(code).ok()).unwrap_or_default())
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn forever() -> ! {
    loop {
        std::thread::sleep(Duration::from_mins(10));
    }
}

fn log(dir: &Path, args: &[String]) {
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let line = json!({ "at_ms": u64::try_from(at.as_millis()).unwrap_or(u64::MAX), "args": args });
    let file = fs::OpenOptions::new().append(true).create(true).open(dir.join("calls.jsonl"));
    // A lost line fails the test that reads it.
    let _ = file.and_then(|mut file| writeln!(file, "{line}"));
}

/// The word after an option that has this beginning.
fn value<'a>(args: &'a [String], option: &str, beginning: &str) -> &'a str {
    let mut pairs = args.windows(2).filter(|pair| pair[0] == option);
    pairs.find_map(|pair| pair[1].strip_prefix(beginning)).unwrap_or_default()
}

fn create(dir: &Path, name: &str, token: &str) {
    let _ = fs::create_dir_all(dir.join("containers"));
    let _ = fs::write(dir.join("containers").join(name), format!("id-{name}\t{name}\trunning\t{token}\n"));
}

fn run(dir: &Path, args: &[String], rule: &Value) {
    let (name, token) = (value(args, "--name", ""), value(args, "--label", "ts-bench.run-token="));
    match rule["container"].as_str() {
        // Somebody else's container bears the name.
        Some("foreign") => create(dir, name, ""),
        // The daemon goes on creating what its client had asked for.
        Some("late") => {
            let ms = rule["late_ms"].as_u64().unwrap_or_default().to_string();
            let mut command = Command::new("/proc/self/exe");
            let _ = command.args(["create-late", &ms, name, token]).process_group(0).spawn();
        }
        Some("stays") => create(dir, name, token),
        _ => {}
    }
    if rule["exit"].is_null() {
        forever();
    }
}

fn list(dir: &Path, args: &[String]) {
    // Only the query of one container is answered, not the one for all of a user.
    let (token, name) = (value(args, "--filter", "label=ts-bench.run-token="), value(args, "--filter", "name=^/?"));
    let name = name.trim_end_matches('$');
    for entry in fs::read_dir(dir.join("containers")).into_iter().flatten().flatten() {
        let line = fs::read_to_string(entry.path()).unwrap_or_default();
        let fields: Vec<&str> = line.trim_end().split('\t').collect();
        let (its_name, its_token) = (fields.get(1).copied(), fields.get(3).copied().unwrap_or_default());
        if (!token.is_empty() && its_token == token) || (!name.is_empty() && its_name == Some(name)) {
            say(line.trim_end_matches('\n'));
        }
    }
}

fn remove(dir: &Path, target: &str) {
    // As the real one: nothing there is no error.
    let _ = fs::remove_file(dir.join("containers").join(target.trim_start_matches("id-")));
}
