//! A figure against concurrency, as an SVG fragment.

use plotters::prelude::*;

use super::plots::{Drawn, WIDE, draw_axes, frame, palette, panel, range, text, tick};

/// One line of a plot over concurrency.
#[derive(Debug, Clone)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// Position in the palette.
    pub colour: usize,
    /// Concurrency, `None` where it is unbounded, and a value per trial or round.
    pub points: Vec<(Option<u64>, Vec<f64>)>,
}

/// A value against concurrency: a line per series through the means, a dot per value. `None` without any value.
#[expect(clippy::cast_precision_loss, reason = "small counts")]
pub fn draw(title: &str, unit: &str, series: &[Series]) -> Option<Drawn> {
    // Unbounded comes last; steps of a ladder double as a rule, so even distances read better than a linear axis.
    let key = |concurrency: Option<u64>| concurrency.unwrap_or(u64::MAX);
    let mut rungs: Vec<u64> = series.iter().flat_map(|s| s.points.iter().map(|(at, _)| key(*at))).collect();
    rungs.sort_unstable();
    rungs.dedup();
    let position = |concurrency: Option<u64>| rungs.binary_search(&key(concurrency)).unwrap_or(0) as f64;
    let (_, high) = range(series.iter().flat_map(|s| s.points.iter().flat_map(|(_, values)| values.iter().copied())))?;
    let last = (rungs.len().max(1) - 1) as f64;
    Some(panel(title, WIDE, |root| {
        let mut chart = frame(root, title, 62)
            .build_cartesian_2d(-0.35..last + 0.35, 0.0..(high * 1.08).max(1e-6))
            .map_err(|e| e.to_string())?;
        draw_axes(
            chart
                .configure_mesh()
                .disable_x_mesh()
                .disable_x_axis()
                .y_labels(6)
                .y_label_formatter(&|value| tick(*value))
                .y_desc(unit),
        )?;
        for series in series {
            let colour = palette(series.colour);
            let mut line: Vec<(f64, f64)> = series
                .points
                .iter()
                .filter_map(|(at, values)| Some((position(*at), proto::stats::mean(values)?)))
                .collect();
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
            chart.draw_series(LineSeries::new(line, colour.stroke_width(2))).map_err(|e| e.to_string())?;
            let dots = series.points.iter().flat_map(|(at, values)| {
                values.iter().map(|value| Circle::new((position(*at), *value), 4, ShapeStyle::from(&colour).filled()))
            });
            chart.draw_series(dots.collect::<Vec<_>>()).map_err(|e| e.to_string())?;
        }
        for rung in &rungs {
            let name = if *rung == u64::MAX { "unbounded".to_owned() } else { format!("c={rung}") };
            let at = chart.backend_coord(&(position((*rung != u64::MAX).then_some(*rung)), 0.0));
            let shift = i32::try_from(name.len()).unwrap_or(0) * 3;
            root.draw(&Text::new(name, (at.0 - shift, at.1 + 8), text(11))).map_err(|e| e.to_string())?;
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unbounded_comes_last_and_nothing_is_drawn_of_nothing() {
        let series =
            Series { name: "a".to_owned(), colour: 0, points: vec![(None, vec![3.0]), (Some(8), vec![1.0, 2.0])] };
        let svg = draw("title", "tok/s", &[series]).unwrap().unwrap();
        assert!(svg.contains("c=8") && svg.contains("unbounded"), "{svg}");
        assert!(svg.find("c=8") < svg.find("unbounded"));
        assert!(draw("t", "tok/s", &[]).is_none());
    }
}
