//! The `tracer-agent` command: a call of the crate `cli`.

/// What this process was started with, before the standard library's start changes it.
// SAFETY: the C library calls what is in this section once, before `main`; the function needs nothing that is
// set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_DISPOSITIONS: extern "C" fn() = cli::note_dispositions;

fn main() -> std::process::ExitCode {
    cli::ignore_file_size_signal();
    cli::on_known_stack(|| cli::run(std::env::args_os()))
}
