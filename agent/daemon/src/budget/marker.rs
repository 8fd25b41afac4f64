//! The event that says in traces that less is recorded, or more again: a USDT marker of this program.

use compile::dynamic::usdt::{OWN_BINARY, OWN_PROVIDER};
use spec::{RuleSpec, What};

/// The rule that records it. The program is the one that runs, wherever it was installed, and a kernel that
/// has no uprobes does without.
pub(crate) fn rule() -> RuleSpec {
    let text = format!(
        "{OWN_PROVIDER}/throttle={OWN_BINARY}:{OWN_PROVIDER}:throttle before=arg1:u64 after=arg2:u64 used=arg3:u64 \
         allowed=arg4:u64"
    );
    RuleSpec { optional: true, ..RuleSpec::new(What::Usdt(text)) }
}

/// Passes the marker: how many steps were taken, and are from now on; the share of a CPU that was used, and
/// that may be, in millionths.
#[inline(never)]
pub(super) fn throttle(before: u64, after: u64, used: u64, allowed: u64) {
    probe::probe!(tracer_agent, throttle, before, after, used, allowed);
}
