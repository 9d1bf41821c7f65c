//! How many figures an export may hold: far more than any bench writes, and not without end.

use std::fmt::Write as _;

use proto::export::{ReadError, Scalar, read};

/// An export of so many figures, each named by seven characters.
fn figures(count: usize) -> Result<Vec<(String, Scalar)>, ReadError> {
    let mut text = String::from("{\"k000000\": 0");
    for index in 1..count {
        // Writing to a text cannot fail.
        let _ = write!(text, ",\"k{index:06}\":{index}");
    }
    text.push('}');
    read(text.as_bytes()).map(|export| export.scalars)
}

#[test]
fn a_hundred_thousand_figures_are_read_in_their_order() {
    let scalars = figures(100_000).expect("within 8 MiB of names");
    assert_eq!(scalars.len(), 100_000);
    assert_eq!(scalars[99_999], ("k099999".to_owned(), Scalar::Integer(99_999)));
}

#[test]
fn figures_have_an_end() {
    let error = figures(150_000).expect_err("more than 8 MiB of names").to_string();
    assert!(error.starts_with("too many top-level figures"), "{error}");
}
