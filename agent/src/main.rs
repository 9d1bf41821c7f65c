//! Thin entry: everything is in the library.

fn main() -> std::process::ExitCode {
    agent::cli::main()
}
