//! Figures over samples (design section 8): one definition for both binaries.

/// Arithmetic mean; `None` without samples.
#[expect(clippy::cast_precision_loss, reason = "sample counts stay far below 2^52")]
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() { None } else { Some(values.iter().sum::<f64>() / values.len() as f64) }
}

/// Sample standard deviation (n - 1); `None` below two samples.
#[expect(clippy::cast_precision_loss, reason = "sample counts stay far below 2^52")]
pub fn sample_std(values: &[f64]) -> Option<f64> {
    let centre = mean(values)?;
    if values.len() < 2 {
        return None;
    }
    let squares: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// Population standard deviation (n), as the engine's bench tool exports it; `None` without samples.
#[expect(clippy::cast_precision_loss, reason = "sample counts stay far below 2^52")]
pub fn population_std(values: &[f64]) -> Option<f64> {
    let centre = mean(values)?;
    let squares: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    Some((squares / values.len() as f64).sqrt())
}

/// Percentile of sorted samples by linear interpolation between order statistics at `(n - 1) * p / 100`
/// (numpy's default; the variadic seed's formula). `p` in percent; `None` without samples.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "index within the slice"
)]
pub fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let index = (last as f64 * p / 100.0).clamp(0.0, last as f64);
    let (low, high) = (index.floor() as usize, index.ceil() as usize);
    Some(sorted[low] + (sorted[high] - sorted[low]) * (index - low as f64))
}

/// Sorts samples for [`percentile`].
pub fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The exact rational mean of the doubles, rounded once to the nearest double, ties to even (spec
/// `variadic-harness` C.3); `None` without samples or with one that is not finite.
pub fn exact_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let (mut above, mut below) = (vec![0_u64; LIMBS], vec![0_u64; LIMBS]);
    for value in values {
        let bits = value.to_bits();
        let (biased, fraction) = ((bits >> 52) & 0x7FF, bits & ((1 << 52) - 1));
        let (mantissa, shift) = if biased == 0 { (fraction, 0) } else { (fraction | 1 << 52, biased - 1) };
        add_shifted(if value.is_sign_negative() { &mut below } else { &mut above }, mantissa, shift);
    }
    let negative = above.iter().rev().lt(below.iter().rev());
    let (mut sum, less) = if negative { (below, above) } else { (above, below) };
    subtract(&mut sum, &less);
    let magnitude = divide_rounded(&sum, values.len() as u64);
    Some(if negative { -magnitude } else { magnitude })
}

/// 64-bit digits of a sum, counted in units of 2^-1074: the range of a double and 2^64 of them.
const LIMBS: usize = 35;

/// Adds `mantissa << shift`.
#[expect(clippy::cast_possible_truncation, reason = "splits a 128-bit word on purpose")]
fn add_shifted(sum: &mut [u64], mantissa: u64, shift: u64) {
    let wide = u128::from(mantissa) << (shift % 64);
    let mut carry = 0_u128;
    for (offset, limb) in sum.iter_mut().skip((shift / 64) as usize).enumerate() {
        let part = match offset {
            0 => wide & u128::from(u64::MAX),
            1 => wide >> 64,
            _ if carry == 0 => break,
            _ => 0,
        };
        let total = u128::from(*limb) + part + carry;
        *limb = total as u64;
        carry = total >> 64;
    }
}

/// `sum -= less`, which is not larger.
fn subtract(sum: &mut [u64], less: &[u64]) {
    let mut borrow = false;
    for (limb, less) in sum.iter_mut().zip(less) {
        let (first, one) = limb.overflowing_sub(*less);
        let (second, two) = first.overflowing_sub(u64::from(borrow));
        (*limb, borrow) = (second, one || two);
    }
}

/// `sum * 2^-1074 / count` as the nearest double.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    reason = "bounded by construction"
)]
fn divide_rounded(sum: &[u64], count: u64) -> f64 {
    // Two more digits below the point leave at least 64 significant bits in every quotient.
    const EXTRA: usize = 2;
    let mut quotient = vec![0_u64; sum.len() + EXTRA];
    let mut rest = 0_u128;
    for at in (0..quotient.len()).rev() {
        let digit = if at < EXTRA { 0 } else { sum[at - EXTRA] };
        let step = rest << 64 | u128::from(digit);
        quotient[at] = (step / u128::from(count)) as u64;
        rest = step % u128::from(count);
    }
    let Some(top) = quotient.iter().rposition(|limb| *limb != 0) else { return 0.0 };
    let lead = quotient[top].leading_zeros() as usize;
    let next = top.checked_sub(1).map_or(0, |at| quotient[at]);
    let head = if lead == 0 { quotient[top] } else { quotient[top] << lead | next >> (64 - lead) };
    let lost = (lead == 0 && next != 0) || (lead != 0 && next << lead != 0);
    let sticky = lost || rest != 0 || quotient[..top.saturating_sub(1)].iter().any(|limb| *limb != 0);
    // A u64 with the sticky bit in its last place converts with the one rounding that is wanted.
    let exponent = 64 * (top as i32 - EXTRA as i32) - lead as i32 - 1074;
    let near = (head | u64::from(sticky)) as f64;
    near * 2_f64.powi(exponent / 2) * 2_f64.powi(exponent - exponent / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_mean_rounds_once() {
        assert_eq!(exact_mean(&[]), None);
        assert_eq!(exact_mean(&[1.0, f64::NAN]), None);
        assert_eq!(exact_mean(&[0.0, -0.0]), Some(0.0));
        assert_eq!(exact_mean(&[0.1; 10]), Some(0.1)); // the plain sum gives 0.09999999999999999
        assert_eq!(exact_mean(&[1e16, 1.0, -1e16]), Some(1.0 / 3.0)); // the plain sum loses the 1
        assert_eq!(exact_mean(&[-3.0, 1.0]), Some(-1.0));
        assert_eq!(exact_mean(&[f64::MAX, f64::MAX]), Some(f64::MAX));
        assert_eq!(exact_mean(&[5e-324, 5e-324, 5e-324]), Some(5e-324));
        // 2^53 and 2^53 + 2: the mean 2^53 + 1 is a tie and goes to the even neighbour.
        assert_eq!(exact_mean(&[9_007_199_254_740_992.0, 9_007_199_254_740_994.0]), Some(9_007_199_254_740_992.0));
    }

    #[test]
    fn exact_mean_agrees_with_integers() {
        let values: Vec<f64> = (1..=1000).map(|i| f64::from(i) / 1024.0).collect();
        assert_eq!(exact_mean(&values), Some(500.5 / 1024.0));
    }

    #[test]
    fn contract_row_241() {
        let pool = sorted(vec![10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 4000.0]);
        assert_eq!(percentile(&pool, 50.0), Some(10.0));
        let p99 = percentile(&pool, 99.0).unwrap();
        assert!((p99 - (10.0 + 3990.0 * 0.93)).abs() < 1e-9, "{p99}");
        assert_eq!(percentile(&pool, 100.0), Some(4000.0));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn deviation_is_of_the_sample() {
        assert_eq!(population_std(&[]), None);
        assert_eq!(population_std(&[4.0]), Some(0.0));
        assert_eq!(population_std(&[1.0, 3.0]), Some(1.0));
        assert_eq!(sample_std(&[1.0]), None);
        assert_eq!(sample_std(&[1.0, 3.0]), Some(2.0_f64.sqrt()));
        assert_eq!(mean(&[]), None);
    }
}
