//! Log lines on stderr, as text or JSON, written around the moving progress line where there is one.

use std::io::{self, Write};

use indicatif::ProgressBar;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// `--log-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// A JSON object per line
    Json,
}

/// Writes to stderr without tearing the moving line.
#[derive(Debug, Clone)]
struct Around(Option<ProgressBar>);

impl Write for Around {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Some(bar) => bar.suspend(|| io::stderr().write(bytes)),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for Around {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Starts logging; `TS_BENCH_LOG` filters (default `info`). A second call changes nothing.
pub fn init(format: Format, bar: Option<ProgressBar>) {
    let filter = EnvFilter::try_from_env("TS_BENCH_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Around(bar)).with_target(false);
    let _ = match format {
        Format::Text => lines.with_ansi(false).try_init(),
        Format::Json => lines.json().try_init(),
    };
}
