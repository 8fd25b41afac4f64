//! Which tracer is meant.

use clap::Args;

use super::super::at::Failure;
use api::{Code, Domain};

/// The domains.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Domains {
    /// The kernel
    #[arg(short, long)]
    pub kernel: bool,

    /// Programs and libraries
    #[arg(short, long)]
    pub userspace: bool,
}

/// Domains of LTTng for loggers of Java and Python.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Loggers {
    /// java.util.logging: not supported
    #[arg(short, long)]
    pub jul: bool,

    /// Apache log4j: not supported
    #[arg(short, long)]
    pub log4j: bool,

    /// Python: not supported
    #[arg(short, long)]
    pub python: bool,
}

impl Domains {
    /// The one that is meant.
    pub fn one(self) -> Result<Domain, Failure> {
        match (self.kernel, self.userspace) {
            (true, true) => Err(Failure::new("Only one domain must be specified.")),
            (true, false) => Ok(Domain::Kernel),
            (false, true) => Ok(Domain::User),
            (false, false) => Err(Failure::new("Please specify a domain (--kernel/--userspace).")),
        }
    }

    /// The same where loggers could be meant.
    pub fn or(self, loggers: Loggers) -> Result<Domain, Failure> {
        let Loggers { jul, log4j, python } = loggers;
        let chosen = [self.kernel, self.userspace, jul, log4j, python].iter().filter(|one| **one).count();
        match chosen {
            0 => Err(Failure::new("Please specify a domain (--kernel/--userspace/--jul/--log4j/--python).")),
            1 if jul || log4j || python => Err(Failure::new(format!(
                "{}: loggers of Java and Python are not recorded",
                Code::NotSupported.text()
            ))),
            1 => self.one(),
            _ => Err(Failure::new("Only one domain must be specified.")),
        }
    }
}
