//! The command, built with programs that say what they do: `cargo run --features debug-programs --example
//! debug_programs -- record --debug-programs -e sched sleep 1`. The features of an example are its own: the
//! command beside it stays as it is.

fn main() -> std::process::ExitCode {
    cli::run(std::env::args_os())
}
