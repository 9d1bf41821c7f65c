//! `tokenspeed`: the engine's stand-in. All of it is in the library.

fn main() -> std::process::ExitCode {
    tests::engine::cli::main()
}
