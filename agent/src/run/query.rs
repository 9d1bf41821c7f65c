//! What `tokenspeed` says about itself before it is started: its version, and whether it has a `bench`.

/// Whether `tokenspeed --help` lists `bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchListed {
    /// Yes.
    Yes,
    /// There is a list, and it is not in it.
    No,
    /// No list could be had.
    NoList,
}

/// Reads a help text. The list of sub-commands is the braces group that holds `serve` (argparse), or else the
/// block of indented lines one of which begins with the word `serve`.
pub(super) fn bench_listed(help: &str) -> BenchListed {
    let braces = help.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(inside, _)| inside);
    for group in braces {
        let words: Vec<&str> = group.split(',').map(str::trim).collect();
        if words.contains(&"serve") {
            return if words.contains(&"bench") { BenchListed::Yes } else { BenchListed::No };
        }
    }
    let indent = |line: &str| line.len() - line.trim_start().len();
    let first = |line: &str| line.split_whitespace().next().unwrap_or_default().trim_end_matches([':', ',']).to_owned();
    let Some(depth) = help.lines().find(|l| indent(l) > 0 && first(l) == "serve").map(indent) else {
        return BenchListed::NoList;
    };
    let listed = help.lines().any(|l| indent(l) == depth && first(l) == "bench");
    if listed { BenchListed::Yes } else { BenchListed::No }
}

/// A version text on one line, without control characters.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_in_both_styles() {
        let argparse = "usage: tokenspeed [-h] {serve,bench,env,version} ...\n";
        assert_eq!(bench_listed(argparse), BenchListed::Yes);
        assert_eq!(bench_listed("usage: ts [-h]\n  {serve,env,\n   merge-traces,version} ...\n"), BenchListed::No);
        let click = "Usage: ts COMMAND\n\nCommands:\n  serve    Serves.\n  bench    Measures.\n";
        assert_eq!(bench_listed(click), BenchListed::Yes);
        assert_eq!(bench_listed("Commands:\n  serve  Serves; see bench.\n  env    Shows.\n"), BenchListed::No);
        for none in ["", "Traceback (most recent call last):\n  File x\n", "{a,b} serve bench"] {
            assert_eq!(bench_listed(none), BenchListed::NoList, "{none}");
        }
    }

    #[test]
    fn versions_are_one_clean_line() {
        assert_eq!(one_line("TokenSpeed\n v0.1.0 \u{1b}[0m\n"), "TokenSpeed v0.1.0 [0m");
    }
}
