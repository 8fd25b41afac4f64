//! Object stores on the command line: the options that say how they are reached, and files in them.

#[cfg(feature = "store")]
mod access;

use std::io;
use std::path::Path;

use super::input::Opened;

#[cfg(feature = "store")]
pub use self::access::AccessArgs;
#[cfg(feature = "store")]
pub(super) use self::access::url;

/// How an object store is reached: this build reaches none.
#[cfg(not(feature = "store"))]
#[derive(clap::Args, Clone, Debug, Default)]
pub struct AccessArgs {}

/// The object that a path is the address of, as the readers of trace files take it. `None` if it is no
/// address, or this build reaches no stores.
pub(super) fn open(path: &Path, args: &AccessArgs) -> Option<io::Result<Opened>> {
    #[cfg(feature = "store")]
    return Some(args.open(url(path)?));
    #[cfg(not(feature = "store"))]
    {
        let (_, AccessArgs {}) = (path, args);
        None
    }
}
