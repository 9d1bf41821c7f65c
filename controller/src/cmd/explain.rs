//! `controller explain`: a result document in words, on stdout.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use proto::exit::controller as status;

use crate::result::document::Document;
use crate::result::words;

/// Largest document that is read, bytes.
const LIMIT: u64 = 256 * 1024 * 1024;

/// Arguments of `controller explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The result document; - is stdin
    result: PathBuf,
}

/// Runs the command.
pub fn main(args: &Args) -> ExitCode {
    match read(args).and_then(|bytes| serde_json::from_slice::<Document>(&bytes).map_err(|e| e.to_string())) {
        Ok(document) => {
            // A reader that had enough (`| head`) is no error.
            let _ = std::io::stdout().write_all(words::explain(&document).as_bytes());
            ExitCode::from(status::OK)
        }
        Err(error) => {
            eprintln!(
                "controller explain: {}: {error}; name a document that `controller run --result` wrote",
                args.result.display()
            );
            ExitCode::from(status::USAGE)
        }
    }
}

fn read(args: &Args) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = if args.result.as_os_str() == "-" {
        std::io::stdin().take(LIMIT).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(&args.result).and_then(|file| file.take(LIMIT).read_to_end(&mut bytes))
    };
    read.map(|_| bytes).map_err(|error| error.to_string())
}
