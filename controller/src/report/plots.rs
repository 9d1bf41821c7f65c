//! Plots of a report as SVG fragments: distributions, throughput, requests over time, prompt lengths.

use plotters::chart::MeshStyle;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;

use super::axes::Axis;
use super::concurrency::{self, Series};
use super::figures::{Cell, Report};
use super::markdown::{BIN_EDGES, bin_name, prompt_bins};

/// Colours of the arms: told apart by people who see colours differently, on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 90, 181),
    RGBColor(213, 94, 0),
    RGBColor(0, 135, 95),
    RGBColor(150, 60, 150),
    RGBColor(120, 120, 120),
    RGBColor(190, 145, 0),
    RGBColor(60, 160, 210),
];
pub(crate) const INK: RGBColor = RGBColor(60, 64, 67);
pub(crate) const GRID: RGBColor = RGBColor(225, 228, 232);
pub(crate) const PANEL: (u32, u32) = (460, 300);
pub(crate) const WIDE: (u32, u32) = (940, 300);
/// Points of one curve or cloud; more only make the file larger.
const MOST_POINTS: usize = 1500;

/// A plot that could not be drawn; a fault of this program.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw {0}")]
pub struct PlotError(String);

pub(crate) type Drawn = Result<String, PlotError>;

fn fault(what: &str) -> impl Fn(&dyn std::fmt::Display) -> PlotError + '_ {
    move |error| PlotError(format!("{what}: {error}"))
}

/// A colour by its position.
pub fn palette(position: usize) -> RGBColor {
    COLOURS[position % COLOURS.len()]
}

/// Colour of an arm, the same in every plot.
pub fn colour(report: &Report, arm: &str) -> RGBColor {
    palette(report.arms().iter().position(|known| *known == arm).unwrap_or(0))
}

/// As CSS writes it.
pub fn css(colour: RGBColor) -> String {
    format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
}

/// Loads in the report: concurrency and method, in order.
pub fn rungs(report: &Report) -> Vec<(i64, String)> {
    let several = {
        let mut methods: Vec<&super::leg::Method> = report.cells.iter().map(|cell| &cell.key.method).collect();
        methods.sort();
        methods.dedup();
        methods.len() > 1
    };
    let mut rungs: Vec<(i64, String)> = report
        .cells
        .iter()
        .map(|cell| (cell.key.concurrency, if several { cell.key.method.words() } else { String::new() }))
        .collect();
    rungs.sort();
    rungs.dedup();
    rungs
}

fn on_rung<'a>(report: &'a Report, rung: &'a (i64, String)) -> impl Iterator<Item = &'a Cell> {
    report
        .cells
        .iter()
        .filter(move |cell| cell.key.concurrency == rung.0 && (rung.1.is_empty() || cell.key.method.words() == rung.1))
}

/// Values that a curve is drawn through: all, or evenly many of them with both ends.
fn thinned<T: Copy>(values: &[T]) -> Vec<T> {
    if values.len() <= MOST_POINTS {
        return values.to_vec();
    }
    (0..MOST_POINTS).map(|at| values[at * (values.len() - 1) / (MOST_POINTS - 1)]).collect()
}

/// Share of measured requests at or below a time, a curve per arm; one rung.
#[expect(clippy::cast_precision_loss, reason = "counts of requests")]
pub fn distribution(report: &Report, rung: &(i64, String), axis: Axis) -> Option<Drawn> {
    let mut curves: Vec<(RGBColor, Vec<(f64, f64)>)> = Vec::new();
    for cell in on_rung(report, rung) {
        let pools = cell.legs.iter().map(|at| &report.legs[*at].records.measured);
        let mut values = super::figures::pooled(pools, axis);
        values.sort_unstable_by(f64::total_cmp);
        let n = values.len() as f64;
        let steps: Vec<(f64, f64)> =
            values.iter().enumerate().map(|(at, value)| (*value, (at + 1) as f64 / n * 100.0)).collect();
        if !steps.is_empty() {
            curves.push((colour(report, &cell.label), thinned(&steps)));
        }
    }
    let (low, high) = range(curves.iter().flat_map(|(_, curve)| curve.iter().map(|point| point.0)))?;
    // A tail far from the crowd leaves no room for the crowd on a linear axis.
    let skewed = low > 0.0 && high / low > 20.0;
    let title = format!("{}, c={}{}", axis.heading(), rung.0, suffix(&rung.1));
    let (low, high) = padded(low, high, skewed);
    Some(if skewed {
        curve_panel(&title, (low..high).log_scale(), &curves)
    } else {
        curve_panel(&title, low..high, &curves)
    })
}

fn suffix(method: &str) -> String {
    if method.is_empty() { String::new() } else { format!(" ({method})") }
}

pub(crate) fn padded(low: f64, high: f64, log: bool) -> (f64, f64) {
    if log {
        return (low / 1.1, high * 1.1);
    }
    let pad = ((high - low) * 0.04).max(high.abs() * 0.002).max(1e-6);
    (if low >= 0.0 { (low - pad).max(0.0) } else { low - pad }, high + pad)
}

pub(crate) fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|v| v.is_finite()).fold(None, |range: Option<(f64, f64)>, value| {
        Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    })
}

fn curve_panel<X>(title: &str, x: X, curves: &[(RGBColor, Vec<(f64, f64)>)]) -> Drawn
where
    X: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    panel(title, PANEL, |root| {
        let mut chart = frame(root, title, 44).build_cartesian_2d(x, 0.0..100.0).map_err(|e| e.to_string())?;
        draw_axes(
            chart
                .configure_mesh()
                .x_labels(6)
                .y_labels(6)
                .x_label_formatter(&|value| tick(*value))
                .y_label_formatter(&|value| format!("{value:.0}"))
                .x_desc("milliseconds")
                .y_desc("% of values"),
        )?;
        for (colour, curve) in curves {
            chart
                .draw_series(LineSeries::new(curve.iter().copied(), colour.stroke_width(2)))
                .map_err(|e| e.to_string())?;
        }
        Ok(())
    })
}

pub(crate) fn text(size: i32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size)).color(&INK)
}

pub(crate) fn tick(value: f64) -> String {
    if value.abs() >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Caption and margins that every plot has; `left` pixels for the labels of the vertical axis.
pub(crate) fn frame<'a, 'b>(
    root: &'a DrawingArea<SVGBackend<'b>, plotters::coord::Shift>,
    caption: &str,
    left: u32,
) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(root);
    chart.caption(caption, text(14)).margin(8).margin_right(16).x_label_area_size(34).y_label_area_size(left);
    chart
}

/// Draws axes and grid in the style that every plot has.
pub(crate) fn draw_axes<X, Y>(mesh: &mut MeshStyle<'_, '_, X, Y, SVGBackend<'_>>) -> Result<(), String>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    mesh.label_style(text(11))
        .axis_desc_style(text(11))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .draw()
        .map_err(|e| e.to_string())
}

/// Draws on a white panel; the SVG scales with the page.
pub(crate) fn panel(
    what: &str,
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Result<(), String>,
) -> Drawn {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&root).map_err(|error| fault(what)(&error))?;
        root.present().map_err(|error| fault(what)(&error))?;
    }
    Ok(svg)
}

/// Output tokens a second against concurrency: a line per arm through the mean of its rounds, a dot per round.
pub fn throughput(report: &Report) -> Option<Drawn> {
    let series: Vec<Series> = report
        .arms()
        .into_iter()
        .enumerate()
        .map(|(colour, arm)| {
            let cells = report.cells.iter().filter(|cell| cell.label == arm);
            let points = cells.map(|cell| {
                let rates = cell.legs.iter().map(|at| report.leg_figures[*at].output_tok_s).collect();
                (u64::try_from(cell.key.concurrency).ok(), rates)
            });
            Series { name: arm.to_owned(), colour, points: points.collect() }
        })
        .collect();
    concurrency::draw("output tok/s against concurrency; a dot per round", "output tok/s", &series)
}

/// TTFT of every request over the time it was sent; one cell, all rounds laid over each other. Warm-up hollow.
pub fn over_time(report: &Report, cell: &Cell) -> Option<Drawn> {
    let points: Vec<(f64, f64, bool)> = cell
        .legs
        .iter()
        .flat_map(|at| &report.legs[*at].records.points)
        .map(|point| (f64::from(point.at_s), f64::from(point.ttft_ms), point.warmup))
        .collect();
    let points = thinned(&points);
    let (from, to) = range(points.iter().map(|point| point.0))?;
    let (_, high) = range(points.iter().map(|point| point.1))?;
    let title = format!("{}, c={}", cell.label, cell.key.concurrency);
    let colour = colour(report, &cell.label);
    let ((from, to), high) = (padded(from, to, false), high * 1.06 + 1e-6);
    Some(panel(&title, PANEL, |root| {
        let mut chart = frame(root, &title, 50).build_cartesian_2d(from..to, 0.0..high).map_err(|e| e.to_string())?;
        draw_axes(
            chart
                .configure_mesh()
                .x_labels(6)
                .y_labels(6)
                .x_label_formatter(&|value| tick(*value))
                .y_label_formatter(&|value| tick(*value))
                .x_desc("seconds since the phase began")
                .y_desc("TTFT ms"),
        )?;
        let dots = points.iter().map(|(at, ttft, warmup)| {
            let style = if *warmup { colour.stroke_width(1) } else { colour.mix(0.55).filled() };
            Circle::new((*at, *ttft), if *warmup { 4 } else { 2 }, style)
        });
        chart.draw_series(dots.collect::<Vec<_>>()).map_err(|e| e.to_string())?;
        Ok(())
    }))
}

/// Prompts per length bin, a bar per arm.
#[expect(clippy::cast_precision_loss, reason = "counts of prompts")]
pub fn lengths(report: &Report) -> Option<Drawn> {
    let (arms, counts) = prompt_bins(report);
    let most = counts.iter().flatten().max().copied().filter(|most| *most > 0)?;
    let width = 0.8 / arms.len() as f64;
    Some(panel("lengths", WIDE, |root| {
        let mut chart = frame(root, "measured requests by prompt tokens, as each server counted them", 50)
            .build_cartesian_2d(0.0..BIN_EDGES.len() as f64, 0.0..most as f64 * 1.08)
            .map_err(|e| e.to_string())?;
        draw_axes(
            chart
                .configure_mesh()
                .disable_x_mesh()
                .disable_x_axis()
                .y_labels(6)
                .y_label_formatter(&|value| tick(*value))
                .y_desc("requests"),
        )?;
        for (bin, counts) in counts.iter().enumerate() {
            let bars = counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(arm, count)| {
                let left = bin as f64 + 0.1 + arm as f64 * width;
                Rectangle::new([(left, 0.0), (left + width * 0.94, *count as f64)], colour(report, arms[arm]).filled())
            });
            chart.draw_series(bars.collect::<Vec<_>>()).map_err(|e| e.to_string())?;
            let at = chart.backend_coord(&(bin as f64 + 0.5, 0.0));
            let name = bin_name(bin);
            let shift = i32::try_from(name.len()).unwrap_or(0) * 3;
            root.draw(&Text::new(name, (at.0 - shift, at.1 + 8), text(11))).map_err(|e| e.to_string())?;
        }
        Ok(())
    }))
}
