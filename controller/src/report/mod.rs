//! `controller report`: what the records of a set of legs say (harness spec section C).
//!
//! [`files`] finds the legs, [`read`] streams each into columns ([`axes`], [`leg`]), [`figures`] computes once
//! what every form prints, [`markdown`] is the published text. Nothing is taken from a leg's own headline: the
//! records alone decide. What is ours ([`analysis`]: intervals, verdicts, remarks) goes into [`document`] and is
//! shown by [`extended`] and [`html`] ([`page`], [`plots`], [`concurrency`]), never in the published text.

pub mod acceptance;
pub mod analysis;
pub mod axes;
pub mod concurrency;
pub mod document;
pub mod extended;
pub mod figures;
pub mod files;
pub mod html;
pub mod leg;
mod lenient;
pub mod markdown;
pub mod page;
pub mod plots;
pub mod read;

use figures::Report;
use leg::Leg;
use read::{ReadError, Reading};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The pattern.
    #[error("--glob {0:?}: {1}")]
    Pattern(String, glob::PatternError),
    /// No leg among the files. The words are those of the published program.
    #[error("NO LEG PRODUCED A RESULT: {0}")]
    NoLeg(String),
    /// A leg that lacks something.
    #[error("{path}: {problem}")]
    Refused {
        /// The file.
        path: String,
        /// The key, and what is wrong with it.
        problem: String,
    },
}

/// A file that could not be read.
#[derive(Debug, Clone)]
pub struct Unreadable {
    /// The file.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// Reads every leg below `dir` and computes the report; the files that could not be read come beside it.
pub fn load(dir: &str, glob: &str) -> (Vec<Unreadable>, Result<Report, ReportError>) {
    let mut unreadable = Vec::new();
    let report = legs(dir, glob, &mut unreadable).map(Report::of);
    (unreadable, report)
}

fn legs(dir: &str, glob: &str, unreadable: &mut Vec<Unreadable>) -> Result<Vec<Leg>, ReportError> {
    let paths = files::matching(dir, glob).map_err(|error| ReportError::Pattern(glob.to_owned(), error))?;
    let mut legs = Vec::new();
    for path in &paths {
        match read::leg(path) {
            Ok(Reading::Leg(leg)) => legs.push(*leg),
            Ok(Reading::Other) => {}
            Err(ReadError::Unreadable(reason)) => unreadable.push(Unreadable { path: path.clone(), reason }),
            Err(ReadError::Refused(problem)) => return Err(ReportError::Refused { path: path.clone(), problem }),
        }
    }
    if legs.is_empty() {
        return Err(ReportError::NoLeg(format!(
            "{} files match {glob:?} in {dir:?}, and no leg is among them",
            paths.len()
        )));
    }
    Ok(legs)
}
