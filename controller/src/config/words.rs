//! A command line as words, split as Python's `shlex.split` does, which is what the original read the same strings with.

/// Why a string is no command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadWords {
    /// A quote was opened and never closed.
    #[error("no closing quotation")]
    OpenQuote,
    /// A backslash ends the string.
    #[error("nothing after the last backslash")]
    OpenEscape,
}

/// Splits at blanks outside quotes. Single quotes keep everything; inside double quotes a backslash escapes `"` and
/// `\` only; outside quotes it escapes whatever follows. `#` is an ordinary character.
pub(super) fn split(text: &str) -> Result<Vec<String>, BadWords> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\\' => word.get_or_insert_default().push(chars.next().ok_or(BadWords::OpenEscape)?),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next().ok_or(BadWords::OpenQuote)? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => quoted(&mut chars, word.get_or_insert_default())?,
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// The rest of a double-quoted part.
fn quoted(chars: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), BadWords> {
    loop {
        match chars.next().ok_or(BadWords::OpenQuote)? {
            '"' => return Ok(()),
            '\\' => match chars.next().ok_or(BadWords::OpenEscape)? {
                c @ ('"' | '\\') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values printed by Python 3.11's `shlex.split`.
    #[test]
    fn words_are_those_of_shlex() {
        for (text, words) in [
            ("", &[][..]),
            ("  ", &[]),
            ("--x \"a b\"", &["--x", "a b"]),
            ("--extra-body '{\"a\": 1}'", &["--extra-body", "{\"a\": 1}"]),
            ("--x #1", &["--x", "#1"]),
            ("a\\ b 'c d'e\"f\"", &["a b", "c def"]),
            ("\"\\$x \\\" \\\\ \\n\"", &["\\$x \" \\ \\n"]),
            ("'' \"\"", &["", ""]),
            ("a\\\nb", &["a\nb"]),
            ("*?$(x)", &["*?$(x)"]),
        ] {
            assert_eq!(split(text).unwrap(), words, "{text:?}");
        }
        assert_eq!(split("--foo 'bar"), Err(BadWords::OpenQuote));
        assert_eq!(split("\"a"), Err(BadWords::OpenQuote));
        assert_eq!(split("a\\"), Err(BadWords::OpenEscape));
    }

    proptest::proptest! {
        #[test]
        fn quoted_words_come_back(words in proptest::collection::vec("[ -~\u{e9}]{0,8}", 0..6)) {
            let line: Vec<String> = words.iter().map(|w| format!("'{}'", w.replace('\'', "'\"'\"'"))).collect();
            proptest::prop_assert_eq!(split(&line.join(" ")).unwrap(), words);
        }
    }
}
