//! `docs/failure-scenarios.md` is whole and true: every scenario has a row, every test that a row names exists and
//! carries the scenario's number, and no test carries a number whose row does not name it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"))
}

/// All Rust sources of the four packages.
fn sources() -> Vec<PathBuf> {
    let packages = ["proto", "agent", "controller", "tests"];
    let mut left: Vec<PathBuf> =
        packages.iter().flat_map(|name| ["src", "tests"].map(|part| root().join(name).join(part))).collect();
    let mut found = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a folder").flatten().map(|entry| entry.path());
            left.extend(entries);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Numbers of scenarios in a text: `FS-07`, `fs_07`, `fs07`, and in a name also what follows as `_fs_30_35`.
fn numbers(text: &str, name: &str) -> BTreeSet<u32> {
    let two = |text: &str| text.get(..2).filter(|t| t.bytes().all(|b| b.is_ascii_digit())).and_then(|t| t.parse().ok());
    let mut found: BTreeSet<u32> = text.match_indices("FS-").filter_map(|(at, _)| two(&text[at + 3..])).collect();
    let mut parts = name.split('_').peekable();
    while let Some(part) = parts.next() {
        if part == "fs" {
            while let Some(number) = parts.peek().and_then(|part| two(part)) {
                found.insert(number);
                parts.next();
            }
        } else if let Some(number) = part.strip_prefix("fs").and_then(two) {
            found.insert(number);
        }
    }
    found
}

/// Tests of a source and the numbers that each carries: in its name, or in the comment and attributes above it.
fn tests_of(source: &str) -> Vec<(String, BTreeSet<u32>)> {
    let (mut above, mut is_test, mut found) = (String::new(), false, Vec::new());
    for line in source.lines().map(str::trim) {
        let words = line.strip_prefix("async ").unwrap_or(line);
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let (true, Some(rest)) = (is_test, words.strip_prefix("fn ")) {
            let name = rest.split('(').next().unwrap_or_default().to_owned();
            let carried = numbers(&above, &name);
            found.push((name, carried));
            (above, is_test) = (String::new(), false);
        } else if line.starts_with("///") || line.starts_with("#[") {
            above.push_str(line);
            above.push('\n');
        } else {
            above.clear();
            is_test = false;
        }
    }
    found
}

struct Row {
    title: String,
    tests: Vec<String>,
    without: bool,
}

/// Rows of the table by number; the last cell names tests in backticks, or begins with `not here:`.
fn rows() -> BTreeMap<u32, Row> {
    let text = std::fs::read_to_string(root().join("docs/failure-scenarios.md")).expect("the table");
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| FS-")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [number, title, _place, proof] = cells[..] else { panic!("four cells: {line}") };
        let number: u32 = number.trim_start_matches("FS-").parse().expect("a number");
        let tests = proof.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let row = Row { title: title.to_owned(), tests, without: proof.contains("not here:") };
        assert!(rows.insert(number, row).is_none(), "FS-{number:02} has two rows");
    }
    rows
}

#[test]
fn every_scenario_has_a_row_with_a_test_or_a_reason() {
    let rows = rows();
    let missing: Vec<u32> = (1..=90).filter(|number| !rows.contains_key(number)).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
    assert_eq!(rows.len(), 90);
    for (number, row) in rows {
        assert!(!row.title.is_empty() && (row.without || !row.tests.is_empty()), "FS-{number:02} is not proven");
    }
}

#[test]
fn tests_and_rows_name_each_other() {
    let mut carriers: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for path in sources() {
        for (name, numbers) in tests_of(&std::fs::read_to_string(&path).expect("a source")) {
            carriers.entry(name).or_default().extend(numbers);
        }
    }
    let rows = rows();
    let mut wrong = Vec::new();
    for (number, row) in &rows {
        for test in &row.tests {
            match carriers.get(test) {
                None => wrong.push(format!("FS-{number:02} names {test}, which does not exist")),
                Some(carried) if !carried.contains(number) => {
                    wrong.push(format!("FS-{number:02} names {test}, which does not carry the number"));
                }
                Some(_) => {}
            }
        }
    }
    for (test, carried) in &carriers {
        for number in carried {
            if !rows.get(number).is_some_and(|row| row.tests.contains(test)) {
                wrong.push(format!("{test} carries FS-{number:02}, whose row does not name it"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn numbers_are_found_where_they_stand() {
    assert_eq!(numbers("/// FS-36: deaf, FS-40", "rows_82_83"), BTreeSet::from([36, 40]));
    assert_eq!(numbers("", "row_99_fs_29_the_group"), BTreeSet::from([29]));
    assert_eq!(numbers("", "fs_30_35_whoever"), BTreeSet::from([30, 35]));
    assert_eq!(numbers("", "ours_fs11_fs15"), BTreeSet::from([11, 15]));
    let source = "/// FS-02\n#[tokio::test(start_paused = true)]\nasync fn a() {\n// FS-03\n}\nfn helper() {}\n#[test]\nfn b_fs_04() {}";
    let wanted = [("a".to_owned(), BTreeSet::from([2])), ("b_fs_04".to_owned(), BTreeSet::from([4]))];
    assert_eq!(tests_of(source), wanted);
}

/// FS-80: durations come from the monotonic clock; the wall clock is read where a moment is shown. Dates
/// (`OffsetDateTime`) are written into documents and names; a number of seconds by the wall clock has few readers.
#[test]
fn the_wall_clock_is_read_in_few_places() {
    let mut readers = BTreeSet::new();
    for path in sources() {
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        let text = std::fs::read_to_string(&path).expect("a source");
        // What stands behind the tests' own marker does not ship.
        let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
        if !name.starts_with("tests/") && !name.contains("/tests") && shipped.contains("SystemTime::now(") {
            readers.insert(name);
        }
    }
    let wanted = ["agent/src/load/clock.rs", "agent/src/run/driver.rs"].map(str::to_owned);
    assert_eq!(readers, wanted.into(), "a new reader of the wall clock: for display only?");
}
