//! The frame of a page that needs nothing but itself: style inside, no script.

use std::fmt::Write as _;

use super::plots::PlotError;

const STYLE: &str = include_str!("page.css");

/// A page in the making.
#[derive(Debug)]
pub struct Page(pub String);

impl Page {
    /// Up to the first heading.
    pub fn new(title: &str) -> Self {
        let mut page = Self(String::with_capacity(1 << 16));
        page.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
        page.raw(&escaped(title));
        page.raw("</title>\n<style>\n");
        page.raw(STYLE);
        page.raw("</style>\n</head>\n<body>\n<main>\n");
        page
    }

    /// The whole.
    pub fn finish(mut self) -> String {
        self.raw("</main>\n</body>\n</html>\n");
        self.0
    }

    /// Text that is HTML already.
    pub fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    /// A heading and a note below it.
    pub fn section(&mut self, title: &str, note: &str) {
        let _ = writeln!(self.0, "<h2>{}</h2>", escaped(title));
        if !note.is_empty() {
            let _ = writeln!(self.0, "<p class=\"note\">{}</p>", escaped(note));
        }
    }

    /// Plots beside each other, or a word that there are none.
    pub fn plots(&mut self, plots: impl IntoIterator<Item = Result<String, PlotError>>) -> Result<(), PlotError> {
        self.raw("<div class=\"plots\">\n");
        let before = self.0.len();
        for plot in plots {
            let _ = writeln!(self.0, "<figure>{}</figure>", scalable(&plot?));
        }
        if self.0.len() == before {
            self.raw("<p class=\"note\">No data.</p>\n");
        }
        self.raw("</div>\n");
        Ok(())
    }

    /// A table; cells are escaped, a class per row.
    pub fn table(&mut self, header: &[&str], rows: impl Iterator<Item = (&'static str, Vec<String>)>) {
        self.raw("<div class=\"scroll\"><table>\n<thead><tr>");
        for cell in header {
            let _ = write!(self.0, "<th>{}</th>", escaped(cell));
        }
        self.raw("</tr></thead>\n<tbody>\n");
        for (class, row) in rows {
            let _ = write!(self.0, "<tr class=\"{class}\">");
            for cell in row {
                let numeric = cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
                let _ = write!(self.0, "<td{}>{}</td>", if numeric { " class=\"n\"" } else { "" }, escaped(&cell));
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>\n");
    }
}

/// Text as HTML shows it.
pub fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
        out
    })
}

/// An SVG without its fixed size, so that the page's width decides.
fn scalable(svg: &str) -> String {
    let Some((head, rest)) = svg.split_once("viewBox") else { return svg.to_owned() };
    let head = head.split(" width=").next().unwrap_or(head);
    format!("{head} viewBox{rest}")
}
