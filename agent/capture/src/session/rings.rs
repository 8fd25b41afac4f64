//! How full the rings of a recording are.

use super::Session;
use crate::StreamId;
use attach::ring::Control;

/// How full a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFill {
    /// Bytes of complete pages that are not stored yet.
    pub held: u64,
    /// Bytes that there is room for.
    pub room: u64,
    /// Bytes of pages that have left it to be stored; `None` where events are overwritten, and what snapshots
    /// store stays.
    pub stored: Option<u64>,
}

impl Session {
    /// How full each ring is.
    pub fn rings(&self) -> impl Iterator<Item = (StreamId, RingFill)> {
        let channels = (0..).zip(&self.channels).zip(&self.options.channels);
        channels.flat_map(|((number, channel), options)| {
            let pages = u64::from(options.ring_pages);
            let fill = move |control: Control<'_>| RingFill {
                held: bytes(held(control, pages)),
                room: bytes(pages),
                stored: (!options.overwrite).then(|| bytes(control.consumed())),
            };
            channel.programs.rings_of(&self.options.cpus).filter_map(move |ring| {
                let control = channel.programs.rings.control(ring)?;
                Some((StreamId::in_set(number, ring.set, ring.cpu), fill(control)))
            })
        })
    }

    /// What the fullest ring of each channel holds, in bytes, and has room for.
    pub fn held(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.channels.iter().zip(&self.options.channels).map(|(channel, options)| {
            let pages = u64::from(options.ring_pages);
            let of_rings = channel.controls(&self.options.cpus).map(|control| held(control, pages));
            (options.name.as_str(), bytes(of_rings.max().unwrap_or_default()), bytes(pages))
        })
    }
}

/// Pages that a ring holds.
fn held(control: Control<'_>, pages: u64) -> u64 {
    // Read first: what is released meanwhile only makes it less.
    let consumed = control.consumed();
    control.head().saturating_sub(consumed).min(pages)
}

fn bytes(pages: u64) -> u64 {
    pages * agent_ebpf::PAGE_SIZE as u64
}
