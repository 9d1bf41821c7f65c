//! Plots across cells as SVG fragments: a lane per cell.

use plotters::prelude::*;

use crate::report::plots::{Drawn, INK, WIDE, draw_axes, frame, padded, palette, panel, range, text, tick};

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
        let mut chart = frame(root, title, left)
            .margin_right(24)
            .build_cartesian_2d(low..high, 0.0..count)
            .map_err(|e| e.to_string())?;
        draw_axes(
            chart
                .configure_mesh()
                .disable_y_mesh()
                .disable_y_axis()
                .x_labels(8)
                .x_label_formatter(&|value| tick(*value))
                .x_desc(unit),
        )?;
        for (at, lane) in lanes.iter().enumerate() {
            // The first cell is on top.
            let y = count - at as f64 - 0.5;
            if let Some((first, last)) = range(lane.marks.iter().map(|mark| mark.value)).filter(|_| lane.joined) {
                let line = LineSeries::new([(first, y), (last, y)], INK.mix(0.45).stroke_width(1));
                chart.draw_series(line).map_err(|e| e.to_string())?;
            }
            let dots = lane.marks.iter().map(|mark| {
                let colour = palette(mark.colour);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert!(lanes("t", "ms", From::Zero, &[]).is_none());
        let empty = Lane { name: "a".to_owned(), marks: Vec::new(), joined: true };
        assert!(lanes("t", "ms", From::Smallest, &[empty]).is_none());
    }

    #[test]
    fn one_value_is_enough() {
        let mark = Mark { value: 12.5, colour: 0, hollow: false };
        let lane = Lane { name: "<a>".to_owned(), marks: vec![mark], joined: true };
        for from in [From::Zero, From::Smallest] {
            let svg = lanes("title", "ms", from, std::slice::from_ref(&lane)).unwrap().unwrap();
            assert!(svg.contains("<circle") && svg.contains("&lt;a&gt;"), "{svg}");
        }
    }
}
