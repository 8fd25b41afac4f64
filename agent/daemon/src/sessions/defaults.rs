//! What channels are like where nothing is said: LTTng's defaults (lttng-enable-channel(1)).

use api::{Buffers, ChannelAttributes, Code, ControlError, Domain, EventLoss, OutputMethod, SessionMode};

/// Bytes of a page, which is the smallest sub-buffer.
const PAGE: u64 = agent_ebpf::PAGE_SIZE as u64;
/// The largest ring of a CPU. What a machine has is looked at when the session is started.
const RING_MAX: u64 = 1 << 32;

/// The attributes with a value each, rounded as LTTng rounds them.
pub(super) fn complete(
    domain: Domain,
    mode: &SessionMode,
    given: &ChannelAttributes,
) -> Result<ChannelAttributes, ControlError> {
    let ChannelAttributes {
        event_loss,
        subbuf_size,
        num_subbuf,
        switch_timer_us,
        read_timer_us,
        monitor_timer_us,
        blocking_timeout_us,
        output,
        tracefile_size,
        tracefile_count,
        buffers,
    } = given.clone();
    let keeps = matches!(mode, SessionMode::Snapshot);
    let event_loss = event_loss.unwrap_or(if keeps { EventLoss::Overwrite } else { EventLoss::Discard });
    if mode.live_timer_us().is_some() && event_loss == EventLoss::Overwrite {
        return Err(ControlError::new(
            Code::NotSupported,
            "viewers read what is stored meanwhile, and a channel that overwrites stores nothing: --discard, or a \
             session without --live",
        ));
    }
    let buffers = buffers.unwrap_or(match domain {
        Domain::Kernel => Buffers::Global,
        Domain::User => Buffers::Uid,
    });
    if domain == Domain::Kernel && buffers != Buffers::Global {
        return Err(invalid("the kernel's events share one set of buffers (--buffers-global)"));
    }
    let default_size = match (domain, buffers) {
        (Domain::Kernel, _) => 1 << 20,
        (Domain::User, Buffers::Pid) => 16 << 10,
        (Domain::User, _) => 512 << 10,
    };
    let subbuf_size = rounded("sub-buffer size", subbuf_size.unwrap_or(default_size))?.max(PAGE);
    let num_subbuf = rounded("number of sub-buffers", num_subbuf.unwrap_or(4))?;
    // Without an output it is recorded so, too, whatever it says as LTTng's.
    let overwrites =
        event_loss == EventLoss::Overwrite || matches!(mode, SessionMode::Local { output: None });
    if num_subbuf < 2 && overwrites {
        return Err(invalid("a channel that overwrites has two sub-buffers at least"));
    }
    if subbuf_size.checked_mul(num_subbuf).is_none_or(|bytes| bytes > RING_MAX) {
        return Err(invalid(format!(
            "a ring of {num_subbuf} sub-buffers of {subbuf_size} bytes is larger than {RING_MAX} bytes"
        )));
    }
    if blocking_timeout_us.is_some_and(|timeout| timeout != 0) {
        return Err(ControlError::new(
            Code::NotSupported,
            "a program cannot be made to wait for room: its events are recorded by the kernel, where nothing \
             may wait; choose larger sub-buffers instead",
        ));
    }
    let tracefile_size = tracefile_size.unwrap_or(0);
    if tracefile_size != 0 && tracefile_size < subbuf_size {
        return Err(invalid(format!(
            "a trace file of {tracefile_size} bytes is smaller than a sub-buffer of {subbuf_size} bytes"
        )));
    }
    let tracefile_count = tracefile_count.unwrap_or(0);
    if tracefile_count != 0 && tracefile_size == 0 {
        return Err(invalid("a count of trace files needs their size"));
    }
    Ok(ChannelAttributes {
        event_loss: Some(event_loss),
        subbuf_size: Some(subbuf_size),
        num_subbuf: Some(num_subbuf),
        switch_timer_us: Some(switch_timer_us.unwrap_or(0)),
        read_timer_us: Some(read_timer_us.unwrap_or(match domain {
            Domain::Kernel => 200_000,
            Domain::User => 0,
        })),
        monitor_timer_us: Some(monitor_timer_us.unwrap_or(1_000_000)),
        blocking_timeout_us: Some(0),
        output: Some(output.unwrap_or(match domain {
            Domain::Kernel if !keeps => OutputMethod::Splice,
            _ => OutputMethod::Mmap,
        })),
        tracefile_size: Some(tracefile_size),
        tracefile_count: Some(tracefile_count),
        buffers: Some(buffers),
    })
}

/// The next power of two.
fn rounded(what: &str, value: u64) -> Result<u64, ControlError> {
    if value == 0 {
        return Err(invalid(format!("the {what} is not 0")));
    }
    value.checked_next_power_of_two().ok_or_else(|| invalid(format!("a {what} of {value} is too much")))
}

fn invalid(message: impl Into<String>) -> ControlError {
    ControlError::new(Code::Invalid, message)
}
