//! What an unquoted YAML scalar means: the implicit resolvers and constructors of PyYAML 6's safe loader, form by form.

use std::fmt::Write as _;

use super::value::Node;

/// The meaning of an unquoted scalar.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolved {
    /// A value.
    Node(Node),
    /// `<<`
    Merge,
    /// `=`, which YAML 1.1 reserves.
    Equals,
}

/// Longest integer that Python converts, in digits (`sys.int_info.default_max_str_digits`).
const MAX_DIGITS: usize = 4300;

/// Resolves an unquoted scalar; the error is for scalars that PyYAML recognises and cannot build.
pub fn resolve(text: &str) -> Result<Resolved, String> {
    let node = match text {
        "<<" => return Ok(Resolved::Merge),
        "=" => return Ok(Resolved::Equals),
        "" | "~" | "null" | "Null" | "NULL" => Node::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Node::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Node::Bool(false),
        _ => match (float(text), integer(text)) {
            (Some(value), _) => Node::Float(value),
            (None, Some(value)) => value?,
            (None, None) if is_date(text) => date(text)?,
            (None, None) => Node::Str(text.to_owned()),
        },
    };
    Ok(Resolved::Node(node))
}

/// Builds a scalar that carries an explicit `!!bool`, `!!int` or `!!float`.
pub fn tagged(name: &str, text: &str) -> Result<Node, String> {
    let fits = match (name, resolve(text)?) {
        ("bool", Resolved::Node(node @ Node::Bool(_)))
        | ("int", Resolved::Node(node @ (Node::Int(_) | Node::BigInt(_))))
        | ("float", Resolved::Node(node @ Node::Float(_))) => Some(node),
        #[expect(clippy::cast_precision_loss, reason = "Python's float() rounds the same way")]
        ("float", Resolved::Node(Node::Int(number))) => Some(Node::Float(number as f64)),
        _ => None,
    };
    fits.ok_or_else(|| format!("{text:?} is not a {name}"))
}

/// Splits off a sign.
fn signed(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Whether a text is not empty and consists of these characters.
fn only(text: &str, fine: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(fine)
}

/// `[0-9][0-9_]*`
fn digits(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && only(text, |b| b.is_ascii_digit() || b == b'_')
}

/// `[0-5]?[0-9]`
fn sixtieth(text: &str) -> bool {
    matches!(text.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9'])
}

fn integer(text: &str) -> Option<Result<Node, String>> {
    let (negative, body) = signed(text);
    let build = |radix: u32, digits: &str| {
        let digits = digits.replace('_', "");
        if digits.is_empty() {
            return Err(format!("{text:?} is no number"));
        }
        if radix == 10 && digits.len() > MAX_DIGITS {
            return Err(format!("an integer of more than {MAX_DIGITS} digits"));
        }
        Ok(signed_node(negative, from_radix(&digits, radix)?))
    };
    if let Some(bits) = body.strip_prefix("0b") {
        return only(bits, |b| b"01_".contains(&b)).then(|| build(2, bits));
    }
    if let Some(hex) = body.strip_prefix("0x") {
        return only(hex, |b| b.is_ascii_hexdigit() || b == b'_').then(|| build(16, hex));
    }
    if let Some(octal) = body.strip_prefix('0').filter(|rest| !rest.is_empty()) {
        // PyYAML drops the underscores first: `0_` is 0.
        return only(octal, |b| (b'0'..=b'7').contains(&b) || b == b'_').then(|| build(8, body));
    }
    if let Some((first, rest)) = body.split_once(':') {
        let fits = digits(first) && !first.starts_with('0') && rest.split(':').all(sixtieth);
        return fits.then(|| sexagesimal(text, negative, body));
    }
    digits(body).then(|| build(10, body))
}

fn sexagesimal(text: &str, negative: bool, body: &str) -> Result<Node, String> {
    let mut total: i128 = 0;
    for part in body.replace('_', "").split(':') {
        let part: i128 = part.parse().map_err(|_| format!("{text:?} is too large a number"))?;
        total = total
            .checked_mul(60)
            .and_then(|t| t.checked_add(part))
            .ok_or_else(|| format!("{text:?} is too large a number"))?;
    }
    Ok(Node::Int(if negative { -total } else { total }))
}

/// Nine decimal digits.
const LIMB: u64 = 1_000_000_000;

/// The magnitude in decimal digits.
fn from_radix(digits: &str, radix: u32) -> Result<String, String> {
    if let Ok(number) = u128::from_str_radix(digits, radix) {
        return Ok(number.to_string());
    }
    if radix == 10 {
        let digits = digits.trim_start_matches('0');
        return Ok(if digits.is_empty() { "0".into() } else { digits.into() });
    }
    if digits.len() > MAX_DIGITS {
        return Err(format!("an integer of more than {MAX_DIGITS} digits"));
    }
    // Schoolbook conversion, nine decimal digits to a limb, lowest first.
    let mut limbs = vec![0u64];
    for digit in digits.chars().filter_map(|c| c.to_digit(radix)) {
        let mut carry = u64::from(digit);
        for limb in &mut limbs {
            let value = *limb * u64::from(radix) + carry;
            *limb = value % LIMB;
            carry = value / LIMB;
        }
        if carry > 0 {
            limbs.push(carry);
        }
    }
    let mut text = limbs.last().map(u64::to_string).unwrap_or_default();
    for limb in limbs.iter().rev().skip(1) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{limb:09}");
    }
    Ok(text)
}

fn signed_node(negative: bool, magnitude: String) -> Node {
    let text = if negative && magnitude != "0" { format!("-{magnitude}") } else { magnitude };
    text.parse().map_or(Node::BigInt(text), Node::Int)
}

fn float(text: &str) -> Option<f64> {
    if matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(f64::NAN);
    }
    let (negative, body) = signed(text);
    let sign = if negative { -1.0 } else { 1.0 };
    if matches!(body, ".inf" | ".Inf" | ".INF") {
        return Some(sign * f64::INFINITY);
    }
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    let (whole, fraction) = mantissa.split_once('.')?;
    let exponent_fits = exponent.is_none_or(|e| e.starts_with(['+', '-']) && only(&e[1..], |b| b.is_ascii_digit()));
    let fraction_fits = fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if !exponent_fits || !fraction_fits {
        return None;
    }
    if let Some((first, rest)) = whole.split_once(':') {
        let fits = exponent.is_none() && digits(first) && rest.split(':').all(sixtieth);
        return fits.then(|| sign * base_60(&body.replace('_', "")));
    }
    // `.5` has no sign in PyYAML's form, and its first digit is a digit.
    let fits = if whole.is_empty() { text.starts_with('.') && digits(fraction) } else { digits(whole) };
    if !fits {
        return None;
    }
    body.replace('_', "").parse::<f64>().ok().map(|value| sign * value)
}

/// `SafeConstructor.construct_yaml_float`, lowest part first.
fn base_60(text: &str) -> f64 {
    let mut base = 1.0;
    let mut total = 0.0;
    for part in text.rsplit(':') {
        total += part.parse::<f64>().unwrap_or(0.0) * base;
        base *= 60.0;
    }
    total
}

/// A cheap look at the form `YYYY-M...`: everything that could be one of PyYAML's timestamps.
fn is_date(text: &str) -> bool {
    parts(text).is_some()
}

/// Year, month, day, and the rest of a timestamp, which must have one of PyYAML's two forms.
fn parts(text: &str) -> Option<(u32, u32, u32, Option<[u32; 3]>)> {
    let number = |s: &str, sizes: std::ops::RangeInclusive<usize>| {
        (sizes.contains(&s.len()) && only(s, |b| b.is_ascii_digit())).then(|| s.parse::<u32>().ok()).flatten()
    };
    let end = text.find(['T', 't', ' ', '\t']).unwrap_or(text.len());
    let mut ymd = text[..end].splitn(3, '-');
    let (year, month, day) = (ymd.next()?, ymd.next()?, ymd.next()?);
    let rest = &text[end..];
    let exact = if rest.is_empty() { 2..=2 } else { 1..=2 };
    let (year, month, day) = (number(year, 4..=4)?, number(month, exact.clone())?, number(day, exact)?);
    if rest.is_empty() {
        return Some((year, month, day, None));
    }
    let clock = if rest.starts_with(['T', 't']) { &rest[1..] } else { rest.trim_start_matches([' ', '\t']) };
    let (clock, zone) = match clock.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.')) {
        Some(at) => clock.split_at(at),
        None => (clock, ""),
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut hms = clock.split(':');
    let (hour, minute, second) = (hms.next()?, hms.next()?, hms.next()?);
    let fine = hms.next().is_none() && fraction.bytes().all(|b| b.is_ascii_digit()) && zone_fits(zone);
    fine.then_some(())?;
    let time = [number(hour, 1..=2)?, number(minute, 2..=2)?, number(second, 2..=2)?];
    Some((year, month, day, Some(time)))
}

/// Nothing, `Z`, `+1`, `-01:30`, blanks before it.
fn zone_fits(zone: &str) -> bool {
    let zone = zone.trim_start_matches([' ', '\t']);
    if zone.is_empty() || zone == "Z" {
        return true;
    }
    let Some(rest) = zone.strip_prefix(['+', '-']) else { return false };
    let (hours, minutes) = rest.split_once(':').map_or((rest, None), |(h, m)| (h, Some(m)));
    let two = |s: &str| s.len() == 2 && only(s, |b| b.is_ascii_digit());
    (two(hours) || (hours.len() == 1 && only(hours, |b| b.is_ascii_digit()))) && minutes.is_none_or(two)
}

fn date(text: &str) -> Result<Node, String> {
    let bad = || format!("{text:?} looks like a date and is none; quote it to have the text");
    let (year, month, day, clock) = parts(text).ok_or_else(bad)?;
    let month = u8::try_from(month).ok().and_then(|m| time::Month::try_from(m).ok()).ok_or_else(bad)?;
    let (year, day) = (i32::try_from(year).map_err(|_| bad())?, u8::try_from(day).map_err(|_| bad())?);
    if year == 0 || time::Date::from_calendar_date(year, month, day).is_err() {
        return Err(bad());
    }
    if clock.is_some_and(|[hour, minute, second]| hour > 23 || minute > 59 || second > 59) {
        return Err(bad());
    }
    Ok(Node::Date(text.to_owned()))
}
