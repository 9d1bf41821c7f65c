//! Strict spellings of numbers: what both sides read alike or refuse alike (contract A.1, A.4).

use std::ops::RangeInclusive;

/// Why a strict unsigned integer was refused; the phrases are the contract's (A.1).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUint {
    /// Empty, or any character outside 0-9.
    #[error("must be a positive integer, got '{0}'")]
    NotDigits(String),
    /// More than one digit and the first is 0.
    #[error("must not be zero-padded, got '{0}'")]
    ZeroPadded(String),
    /// Outside the range, numbers beyond any machine integer included.
    #[error("must be between {min} and {max}, got '{value}'")]
    OutOfRange {
        /// Smallest accepted.
        min: u64,
        /// Largest accepted.
        max: u64,
        /// As it was written.
        value: String,
    },
}

/// Reads a plain unsigned decimal in a range: no sign, blank, underscore, point or zero padding.
pub fn strict_uint(value: &str, range: RangeInclusive<u64>) -> Result<u64, BadUint> {
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BadUint::NotDigits(value.to_owned()));
    }
    if value.len() > 1 && value.starts_with('0') {
        return Err(BadUint::ZeroPadded(value.to_owned()));
    }
    match value.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(BadUint::OutOfRange { min: *range.start(), max: *range.end(), value: value.to_owned() }),
    }
}

/// Reads a plain decimal: digits with at most one dot, a digit on both sides of it. `None` for any other spelling.
pub fn plain_decimal(value: &str) -> Option<f64> {
    let (whole, fraction) = value.split_once('.').map_or((value, None), |(w, f)| (w, Some(f)));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if digits(whole) && fraction.is_none_or(digits) { value.parse().ok() } else { None }
}

/// Prints a positive number as a plain decimal that reads back as the same number: never an exponent, always a
/// point, so that a tiny value does not become `0.000000` on the way into the container.
pub fn print_decimal(value: f64) -> String {
    // `Display` of f64 never uses an exponent and is the shortest text that reads back.
    let text = value.to_string();
    if text.contains('.') { text } else { format!("{text}.0") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_uint_table() {
        let port = 1024..=65535;
        for bad in ["", "abc", "-5", "+5", "5.0", "3_0", " 5 ", "５"] {
            assert!(matches!(strict_uint(bad, port.clone()), Err(BadUint::NotDigits(_))), "{bad:?}");
        }
        for bad in ["08000", "00", "045"] {
            assert!(matches!(strict_uint(bad, port.clone()), Err(BadUint::ZeroPadded(_))), "{bad:?}");
        }
        for bad in ["0", "1023", "65536", "99999999999999999999"] {
            assert!(matches!(strict_uint(bad, port.clone()), Err(BadUint::OutOfRange { .. })), "{bad:?}");
        }
        assert_eq!(strict_uint("1024", port.clone()), Ok(1024));
        assert_eq!(strict_uint("65535", port), Ok(65535));
        assert_eq!(strict_uint("0", 0..=0), Ok(0));
    }

    #[test]
    fn plain_decimal_table() {
        for bad in ["", "+1", "-1", "1e0", "1.2.3", ".", ".5", "1.", "x", " 1", "1 ", "inf", "nan", "1_0"] {
            assert_eq!(plain_decimal(bad), None, "{bad:?}");
        }
        assert_eq!(plain_decimal("0.5"), Some(0.5));
        assert_eq!(plain_decimal("1"), Some(1.0));
        assert_eq!(plain_decimal("0.000000"), Some(0.0));
    }

    #[test]
    fn printed_decimals_read_back() {
        for value in [1.0, 0.95, 2.0, 1e-7, 5e-324, 0.1 + 0.2] {
            assert_eq!(plain_decimal(&print_decimal(value)), Some(value));
        }
        assert_eq!(print_decimal(1.0), "1.0");
    }
}
