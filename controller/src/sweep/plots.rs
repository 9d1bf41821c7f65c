//! Plots across cells as SVG fragments: a lane per cell, and throughput against concurrency.

use plotters::prelude::*;

use crate::report::plots::{COLOURS, Drawn, GRID, INK, WIDE, padded, panel, range, text, tick};

/// A value in a lane.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// In the unit of the plot.
    pub value: f64,
    /// Position in the palette.
    pub colour: usize,
    /// Hollow marks stand for what is looked at second.
    pub hollow: bool,
}

/// One cell of a plot.
#[derive(Debug, Clone)]
pub struct Lane {
    /// Name on the left.
    pub name: String,
    /// Values.
    pub marks: Vec<Mark>,
    /// Whether a line joins the outermost marks.
    pub joined: bool,
}

/// Where the axis begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// At zero: lengths are compared.
    Zero,
    /// Just below the smallest value: differences are compared.
    Smallest,
}

/// Colour of the palette.
pub fn colour(position: usize) -> RGBColor {
    COLOURS[position % COLOURS.len()]
}

/// A lane per cell, values from left to right; `None` without any value.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "lanes")]
pub fn lanes(title: &str, unit: &str, from: From, lanes: &[Lane]) -> Option<Drawn> {
    let (low, high) = range(lanes.iter().flat_map(|lane| lane.marks.iter().map(|mark| mark.value)))?;
    let (low, high) = match from {
        From::Zero => (0.0, (high * 1.05).max(1e-6)),
        From::Smallest => padded(low, high, false),
    };
    let count = lanes.len() as f64;
    let size = (WIDE.0, 74 + 26 * lanes.len() as u32);
    let longest = lanes.iter().map(|lane| lane.name.chars().count()).max().unwrap_or(0) as u32;
    let left = (longest * 7 + 16).clamp(60, 260);
    Some(panel(title, size, |root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, text(14))
            .margin(8)
            .margin_right(24)
            .x_label_area_size(34)
            .y_label_area_size(left)
            .build_cartesian_2d(low..high, 0.0..count)
            .map_err(|e| e.to_string())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .x_labels(8)
            .x_label_formatter(&|value| tick(*value))
            .x_desc(unit)
            .label_style(text(11))
            .axis_desc_style(text(11))
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(|e| e.to_string())?;
        for (at, lane) in lanes.iter().enumerate() {
            // The first cell is on top.
            let y = count - at as f64 - 0.5;
            if let Some((first, last)) = range(lane.marks.iter().map(|mark| mark.value)).filter(|_| lane.joined) {
                let line = LineSeries::new([(first, y), (last, y)], INK.mix(0.45).stroke_width(1));
                chart.draw_series(line).map_err(|e| e.to_string())?;
            }
            let dots = lane.marks.iter().map(|mark| {
                let colour = colour(mark.colour);
                let style = if mark.hollow { colour.stroke_width(1) } else { colour.mix(0.75).filled() };
                Circle::new((mark.value, y), 4, style)
            });
            chart.draw_series(dots.collect::<Vec<_>>()).map_err(|e| e.to_string())?;
            let (_, middle) = chart.backend_coord(&(low, y));
            let name: String = lane.name.chars().take(36).collect();
            root.draw(&Text::new(name, (12, middle - 6), text(11))).map_err(|e| e.to_string())?;
        }
        Ok(())
    }))
}

/// One line of a plot over concurrency.
#[derive(Debug, Clone)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// Concurrency, `None` where it is unbounded, and a value per trial.
    pub points: Vec<(Option<u64>, Vec<f64>)>,
}

/// A value against concurrency: a line per series through the means, a dot per trial. `None` without any value.
#[expect(clippy::cast_precision_loss, reason = "small counts")]
pub fn against_concurrency(title: &str, unit: &str, series: &[Series]) -> Option<Drawn> {
    // Unbounded comes last; steps of a ladder double as a rule, so even distances read better than a linear axis.
    let key = |concurrency: Option<u64>| concurrency.unwrap_or(u64::MAX);
    let mut rungs: Vec<u64> = series.iter().flat_map(|s| s.points.iter().map(|(at, _)| key(*at))).collect();
    rungs.sort_unstable();
    rungs.dedup();
    let position = |concurrency: Option<u64>| rungs.binary_search(&key(concurrency)).unwrap_or(0) as f64;
    let (_, high) = range(series.iter().flat_map(|s| s.points.iter().flat_map(|(_, values)| values.iter().copied())))?;
    let last = (rungs.len().max(1) - 1) as f64;
    Some(panel(title, WIDE, |root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, text(14))
            .margin(8)
            .margin_right(16)
            .x_label_area_size(34)
            .y_label_area_size(62)
            .build_cartesian_2d(-0.35..last + 0.35, 0.0..(high * 1.08).max(1e-6))
            .map_err(|e| e.to_string())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_labels(6)
            .y_label_formatter(&|value| tick(*value))
            .y_desc(unit)
            .label_style(text(11))
            .axis_desc_style(text(11))
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(|e| e.to_string())?;
        for (at, series) in series.iter().enumerate() {
            let colour = colour(at);
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
    fn nothing_is_drawn_of_nothing() {
        assert!(lanes("t", "ms", From::Zero, &[]).is_none());
        let empty = Lane { name: "a".to_owned(), marks: Vec::new(), joined: true };
        assert!(lanes("t", "ms", From::Smallest, &[empty]).is_none());
        assert!(against_concurrency("t", "tok/s", &[]).is_none());
    }

    #[test]
    fn one_value_is_enough() {
        let mark = Mark { value: 12.5, colour: 0, hollow: false };
        let lane = Lane { name: "<a>".to_owned(), marks: vec![mark], joined: true };
        for from in [From::Zero, From::Smallest] {
            let svg = lanes("title", "ms", from, std::slice::from_ref(&lane)).unwrap().unwrap();
            assert!(svg.contains("<circle") && svg.contains("&lt;a&gt;"), "{svg}");
        }
        let series = Series { name: "a".to_owned(), points: vec![(None, vec![3.0]), (Some(8), vec![1.0, 2.0])] };
        let svg = against_concurrency("title", "tok/s", &[series]).unwrap().unwrap();
        assert!(svg.contains("c=8") && svg.contains("unbounded"), "{svg}");
        assert!(svg.find("c=8") < svg.find("unbounded"));
    }
}
