//! The `tracer-agent` command: a thin shell over the library.

fn main() -> std::process::ExitCode {
    tracer_agent::cli::run(std::env::args_os())
}
