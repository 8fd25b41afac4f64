//! `--debug-programs`: what the eBPF programs say of themselves, on standard error.

use super::super::CliError;

/// Begins to print it.
#[cfg(feature = "debug-programs")]
pub(super) fn print_messages() -> Result<(), CliError> {
    log::set_logger(&Printer)
        .map_err(|error| CliError::Usage(format!("--debug-programs: the messages go elsewhere: {error}")))?;
    log::set_max_level(log::LevelFilter::Debug);
    Ok(())
}

/// The programs have nothing to say.
#[cfg(not(feature = "debug-programs"))]
pub(super) fn print_messages() -> Result<(), CliError> {
    Err(CliError::Usage(
        "--debug-programs: the eBPF programs of this tracer-agent say nothing; build one whose programs do, with \
         `cargo build --release --features debug-programs`"
            .to_owned(),
    ))
}

/// The crate of the programs, of which their messages say that they are from it. Libraries have others.
#[cfg(feature = "debug-programs")]
const PROGRAMS: &str = "tracer_agent_ebpf";

/// Prints messages.
#[cfg(feature = "debug-programs")]
struct Printer;

#[cfg(feature = "debug-programs")]
impl log::Log for Printer {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with(PROGRAMS)
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let level = record.level().as_str().to_ascii_lowercase();
        super::super::tell(&format!("tracer-agent: programs: {level}: {}", record.args()));
    }

    fn flush(&self) {}
}
