//! `controller corpus build`: the published builder's command line (harness spec A.1).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::corpus::bands::{DEFAULT_WEIGHTS, Weights};
use crate::corpus::rng::Seed;
use crate::corpus::{Request, build};

/// Status of a refused command line; nothing is written then.
const REFUSED: u8 = 2;
/// Status of a failed build.
const FAILED: u8 = 1;
/// Name under which the published builder signs its manifests; a part of their bytes.
const UPSTREAM: &str = "benchmarks/variadic/build_corpus.py";

/// Arguments of `controller corpus`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Builds corpus and manifest, byte-identical to the published builder's
    Build(Box<Build>),
}

#[derive(Debug, clap::Args)]
struct Build {
    /// GSM8K rows (JSONL with "question"), for band S
    #[arg(long, value_name = "FILE")]
    gsm8k: String,
    /// HumanEval rows (JSONL with "prompt"), for bands M, XL and XXL
    #[arg(long, value_name = "FILE")]
    humaneval: String,
    /// Plain text, for band L
    #[arg(long, value_name = "FILE")]
    sonnet: String,
    /// Prompts to build
    #[arg(long, value_name = "N", default_value_t = 136, allow_negative_numbers = true)]
    count: i64,
    /// Generator seed: a whole number of any size
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true)]
    seed: Seed,
    /// Band shares; bands are S, M, L, XL, XXL, and the shares sum to 1
    #[arg(long, value_name = "BAND=SHARE,...", default_value = DEFAULT_WEIGHTS, allow_hyphen_values = true)]
    weights: Weights,
    /// Corpus file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Manifest file to write; its text goes to stdout too
    #[arg(long, value_name = "FILE")]
    manifest: PathBuf,
    /// "generator" of the manifest
    #[arg(long, value_name = "NAME", default_value = UPSTREAM)]
    generator: String,
}

/// Runs the command.
pub fn main(args: Args) -> ExitCode {
    let Command::Build(args) = args.command;
    if let Some(clash) = clash(&args) {
        eprintln!("error: {clash}");
        return ExitCode::from(REFUSED);
    }
    let request = Request {
        gsm8k: args.gsm8k,
        humaneval: args.humaneval,
        sonnet: args.sonnet,
        count: args.count,
        seed: args.seed,
        weights: args.weights,
        generator: args.generator,
    };
    let built = build(&request, &args.out, &args.manifest).map_err(|error| error.to_string()).and_then(|manifest| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{manifest}")
            .and_then(|()| out.flush())
            .map_err(|error| format!("cannot write to stdout: {error}"))
    });
    match built {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// An output that would replace a source or the other output.
fn clash(args: &Build) -> Option<String> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let regular = |path: &Path| std::fs::metadata(path).map_or(true, |meta| meta.is_file());
    let inputs = [("--gsm8k", &args.gsm8k), ("--humaneval", &args.humaneval), ("--sonnet", &args.sonnet)];
    for (option, output) in [("--out", &args.out), ("--manifest", &args.manifest)] {
        if let Some((input, path)) = inputs.iter().find(|(_, path)| real(Path::new(path)) == real(output)) {
            return Some(format!("{option} {} would replace the source {input} {path}", output.display()));
        }
    }
    (real(&args.out) == real(&args.manifest) && regular(&args.out))
        .then(|| format!("--out and --manifest both name {}; give two files", args.out.display()))
}
