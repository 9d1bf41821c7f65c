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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(sample_std(&[1.0]), None);
        assert_eq!(sample_std(&[1.0, 3.0]), Some(2.0_f64.sqrt()));
        assert_eq!(mean(&[]), None);
    }
}
