//! As much of Python's `argparse` as the real tool's users can notice: unambiguous prefixes, `--name=value`, last
//! occurrence wins, exit status 2 with a usage line, and its words for each mistake.

use std::collections::BTreeMap;

/// How many words an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// None: a flag.
    Nothing,
    /// Exactly one.
    One,
    /// Any number, up to the next option.
    Many,
}

/// Options: name with its dashes, and what it takes.
pub type Options = &'static [(&'static str, Takes)];

/// What was given.
#[derive(Debug, Default, Clone)]
pub struct Given {
    /// Words of each option, of its last occurrence.
    pub options: BTreeMap<&'static str, Vec<String>>,
    /// Words that belong to no option.
    pub positionals: Vec<String>,
    /// Options that are not ours, as given.
    pub unknown: Vec<String>,
}

impl Given {
    /// The option's single value.
    pub fn one(&self, name: &str) -> Option<&str> {
        self.options.get(name).and_then(|words| words.first()).map(String::as_str)
    }

    /// Whether the flag was given.
    pub fn flag(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }
}

/// Splits an argument list; the error is argparse's sentence after `error: `.
pub fn parse(options: Options, line: &[String]) -> Result<Given, String> {
    let mut given = Given::default();
    let mut words = line.iter().peekable();
    while let Some(word) = words.next() {
        if word == "--" {
            given.positionals.extend(words.by_ref().cloned());
            break;
        }
        if !is_option(word) {
            given.positionals.push(word.clone());
            continue;
        }
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let Some((name, takes)) = find(options, name)? else {
            given.unknown.push(word.clone());
            continue;
        };
        let values = match (takes, attached) {
            (Takes::Nothing, None) => Vec::new(),
            (Takes::Nothing, Some(value)) => {
                return Err(format!("argument {name}: ignored explicit argument '{value}'"));
            }
            (Takes::One | Takes::Many, Some(value)) => vec![value],
            (Takes::One, None) => match words.next_if(|next| !is_option(next)) {
                Some(value) => vec![value.clone()],
                None => return Err(format!("argument {name}: expected one argument")),
            },
            (Takes::Many, None) => std::iter::from_fn(|| words.next_if(|next| !is_option(next))).cloned().collect(),
        };
        given.options.insert(name, values);
    }
    Ok(given)
}

/// argparse's rule for what cannot be a value: a leading dash, unless it is a negative number or holds a blank.
fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && !word.contains(' ') && !is_negative_number(word)
}

fn is_negative_number(word: &str) -> bool {
    let Some(rest) = word.strip_prefix('-') else { return false };
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    digits(whole) && digits(fraction) && !fraction.is_empty() && !rest.is_empty()
}

fn find(options: Options, name: &str) -> Result<Option<(&'static str, Takes)>, String> {
    if let Some(exact) = options.iter().find(|(option, _)| *option == name) {
        return Ok(Some(*exact));
    }
    if !name.starts_with("--") {
        return Ok(None);
    }
    let near: Vec<_> = options.iter().filter(|(option, _)| option.starts_with(name)).collect();
    match near.as_slice() {
        [] => Ok(None),
        [single] => Ok(Some(**single)),
        several => {
            let names: Vec<&str> = several.iter().map(|(option, _)| *option).collect();
            Err(format!("ambiguous option: {name} could match {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options = &[
        ("--max-concurrency", Takes::One),
        ("--max-model-len", Takes::One),
        ("--seed", Takes::One),
        ("--header", Takes::Many),
        ("--save-detailed", Takes::Nothing),
    ];

    fn run(line: &str) -> Result<Given, String> {
        parse(OPTIONS, &line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn prefixes_equals_and_last_wins() {
        let given = run("--max-c 2 --max-concurrency=3 --seed -1 --header a=b c=d --save-d pos").expect("parses");
        assert_eq!(given.one("--max-concurrency"), Some("3"));
        assert_eq!(given.one("--seed"), Some("-1"));
        assert_eq!(given.options["--header"], ["a=b", "c=d"]);
        assert!(given.flag("--save-detailed"));
        assert_eq!(given.positionals, ["pos"]);
    }

    #[test]
    fn mistakes() {
        assert!(run("--max 1").expect_err("ambiguous").starts_with("ambiguous option: --max could match --max-c"));
        assert!(run("--seed --header").expect_err("value").contains("--seed: expected one argument"));
        assert!(run("--save-detailed=1").expect_err("flag").contains("ignored explicit argument '1'"));
        assert_eq!(run("--nope 1").expect("collected").unknown, ["--nope"]);
    }
}
