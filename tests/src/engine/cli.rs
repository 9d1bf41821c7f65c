//! The commands: those of the real program, and the hidden ones that its processes start each other with.

use super::script::Script;
use super::{bench, control, gateway, helper, orchestrator, raw_reader};
use std::io::{self, Write as _};
use std::process::ExitCode;

/// The whole program.
pub fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let script = match Script::load() {
        Ok(script) => script,
        Err(error) => {
            eprintln!("tokenspeed (stand-in): {error}");
            return ExitCode::from(78);
        }
    };
    // Whatever a test forgets, nothing of ours outlives this.
    nix::unistd::alarm::set(script.max_life_s);
    run(script, &words).unwrap_or_else(|error| {
        eprintln!("tokenspeed (stand-in): {error}");
        ExitCode::from(70)
    })
}

fn run(script: Script, words: &[String]) -> io::Result<ExitCode> {
    let rest = words.get(1..).unwrap_or_default();
    let child_args = || rest.first().map(|text| serde_json::from_str(text)).transpose().map_err(io::Error::from);
    match words.first().map(String::as_str) {
        Some("version") => {
            hang_if(script.version.hang);
            writeln!(io::stdout(), "{}", script.version.text)?;
            Ok(ExitCode::from(script.version.exit))
        }
        Some("-h" | "--help") => {
            hang_if(script.help.hang);
            io::stdout().write_all(help(&script).as_bytes())?;
            Ok(ExitCode::from(script.help.exit))
        }
        Some("serve") => orchestrator::main(script, rest),
        Some("bench") if script.help.bench => bench::main(&script, rest),
        Some("raw-reader") => raw_reader::main(rest),
        Some("env") => Ok(ExitCode::SUCCESS),
        Some(control::COMMAND) => match child_args()? {
            Some(args) => control::main(script, args),
            None => Ok(ExitCode::FAILURE),
        },
        Some(gateway::COMMAND) => match child_args()? {
            Some(args) => gateway::main(script, args),
            None => Ok(ExitCode::FAILURE),
        },
        Some(helper::COMMAND) => Ok(helper::main(&script, rest)),
        None => {
            io::stdout().write_all(help(&script).as_bytes())?;
            Ok(ExitCode::FAILURE)
        }
        Some(word) => {
            let known = if script.help.bench { "'serve', 'bench', " } else { "'serve', " };
            eprintln!(
                "usage: tokenspeed [-h] {} ...\ntokenspeed: error: argument command: invalid choice: '{word}' (choose from {known}'env', 'merge-traces', 'version')",
                commands(&script)
            );
            Ok(ExitCode::from(2))
        }
    }
}

fn hang_if(hang: bool) {
    if hang {
        loop {
            nix::unistd::pause();
        }
    }
}

fn commands(script: &Script) -> &'static str {
    if script.help.bench { "{serve,bench,env,merge-traces,version}" } else { "{serve,env,merge-traces,version}" }
}

fn help(script: &Script) -> String {
    if let Some(text) = &script.help.text {
        return text.clone();
    }
    let bench = if script.help.bench { "    bench               Run TokenSpeed benchmark commands.\n" } else { "" };
    format!(
        "usage: tokenspeed [-h] {0} ...\n\nTokenSpeed is a speed-of-light LLM inference engine.\n\n\
         positional arguments:\n  {0}\n    serve               Launch the TokenSpeed inference server.\n{bench}\
         \x20   env                 Check environment configurations and dependency versions.\n\
         \x20   merge-traces        Merge one or more Proton/VizTracer trace pairs onto a shared timeline.\n\
         \x20   version             Print the TokenSpeed version.\n\n\
         options:\n  -h, --help            show this help message and exit\n",
        commands(script)
    )
}
