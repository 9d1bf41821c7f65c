//! Thin entry: everything is in the library.

fn main() -> std::process::ExitCode {
    controller::cli::main()
}
