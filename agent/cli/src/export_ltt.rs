//! Options of `tracer-agent export` that only the historic layouts have.

use clap::{Args, ValueEnum};

use super::{CliError, units};
use export::eventdefs;
use export::ltt2008::{Alignment, Options};
use ftrace_event::Endian;

/// What can be chosen of the layouts of 2003 and 2008.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Options of the historic formats")]
pub(super) struct LttArgs {
    /// Block size in bytes: 4096, 64K, 1M [default: 256K]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub block_size: Option<u32>,

    /// Byte order [default: that of the recording]
    #[arg(long, value_name = "ORDER")]
    pub endian: Option<Order>,

    /// Follow the format document to the letter, instead of what the readers of its time accept
    #[arg(long)]
    pub literal: bool,

    /// Align event headers and numbers to this many bytes; 0 packs them
    #[arg(long, value_name = "0|4|8", value_parser = parse_alignment)]
    pub alignment: Option<Alignment>,

    /// Use 32-bit timestamps with heartbeats instead of 64-bit timestamps
    #[arg(long)]
    pub heartbeat: bool,
}

/// A byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Order {
    /// Least significant byte first
    Little,
    /// Most significant byte first
    Big,
}

impl From<Order> for Endian {
    fn from(order: Order) -> Self {
        match order {
            Order::Little => Self::Little,
            Order::Big => Self::Big,
        }
    }
}

impl LttArgs {
    pub(super) fn options_2008(&self) -> Options {
        let Self { block_size, endian, literal, alignment, heartbeat } = *self;
        let default = Options::default();
        Options {
            literal,
            heartbeat,
            alignment: alignment.unwrap_or(default.alignment),
            block_size: block_size.unwrap_or(default.block_size),
            endian: endian.map(Endian::from),
        }
    }

    pub(super) fn options_eventdefs(&self) -> eventdefs::Options {
        let Self { block_size, endian, literal, .. } = *self;
        let default = eventdefs::Options::default();
        eventdefs::Options {
            literal,
            block_size: block_size.unwrap_or(default.block_size),
            endian: endian.map(Endian::from),
        }
    }

    /// Refuses options that `format` does not have.
    ///
    /// # Errors
    /// The first one that was given.
    pub(super) fn refuse(&self, format: &str, allowed: &[&str]) -> Result<(), CliError> {
        let Self { block_size, endian, literal, alignment, heartbeat } = self;
        let given = [
            ("--block-size", block_size.is_some()),
            ("--endian", endian.is_some()),
            ("--literal", *literal),
            ("--alignment", alignment.is_some()),
            ("--heartbeat", *heartbeat),
        ];
        match given.iter().find(|(name, given)| *given && !allowed.contains(name)) {
            Some((name, _)) => Err(CliError::Usage(format!("the format {format} has no {name}"))),
            None => Ok(()),
        }
    }
}

fn parse_size(text: &str) -> Result<u32, String> {
    u32::try_from(units::size(text, 1)?).map_err(|_| "a block has less than 4 GB".to_owned())
}

fn parse_alignment(text: &str) -> Result<Alignment, String> {
    match text {
        "0" => Ok(Alignment::Packed),
        "4" => Ok(Alignment::Four),
        "8" => Ok(Alignment::Eight),
        _ => Err("expected 0, 4 or 8".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_what_a_format_has_not() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64K"), Ok(65536));
        assert_eq!(parse_size("1MB"), Ok(1 << 20));
        assert!(parse_size("5G").is_err() && parse_size("4096M").is_err() && parse_size("").is_err());
        let args = LttArgs { literal: true, ..LttArgs::default() };
        assert!(args.refuse("ctf", &[]).is_err());
        assert!(args.refuse("lttng-2008", &["--literal"]).is_ok());
    }
}
