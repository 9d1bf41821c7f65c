//! Figures of pools with hardly an entry: absent, never zero and never a quotient of nothing (design section 8).

use proto::export::Lengths;

fn pool(entries: &[u64]) -> Lengths {
    let mut pool = Lengths::default();
    for entry in entries {
        assert!(pool.push(*entry));
    }
    pool
}

#[test]
fn nothing_has_no_figures() {
    let empty = pool(&[]);
    assert_eq!((empty.count(), empty.sum(), empty.max()), (0, 0, None));
    assert_eq!((empty.mean(), empty.percentile(50.0), empty.distribution()), (None, None, None));
}

#[test]
fn one_entry_has_no_deviation() {
    let figures = pool(&[7]).distribution().unwrap();
    assert_eq!((figures.count, figures.min, figures.max, figures.std), (1, 7, 7, None));
    assert_eq!([figures.mean, figures.p50, figures.p90, figures.p99].map(f64::to_bits), [7f64.to_bits(); 4]);
    let pair = pool(&[7, 9]).distribution().unwrap();
    assert!((pair.std.unwrap() - 2f64.sqrt()).abs() < 1e-12);
}

#[test]
fn lengths_beyond_a_double_are_no_lengths() {
    let mut pool = pool(&[Lengths::MAX]);
    assert!(!pool.push(Lengths::MAX + 1));
    assert_eq!((pool.count(), pool.max()), (1, Some(Lengths::MAX)));
}
