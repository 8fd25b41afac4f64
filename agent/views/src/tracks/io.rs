//! Requests to block devices, from issue to completion.

use super::{At, Part, Row, Sink};
use analysis::answers;
use analysis::answers::{Completion, Known, Place, Requests, Scope};
use stdx::fast_map::FastMap;

/// Most rows of a device. Requests that have none of their own are in the last.
const LANES: usize = 16;

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
struct Open {
    lane: usize,
    since: u64,
    first: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Io {
    requests: Requests<Open>,
    /// How many requests are in each row of a device.
    lanes: FastMap<u64, [u32; LANES]>,
}

impl Io {
    pub(super) fn look(&mut self, at: At, known: &Known<'_>, sink: &mut Sink) {
        let (when, scope) = (answers::At { time: at.time, cpu: at.cpu }, Scope::default());
        match known {
            Known::BlockIssue(request) => {
                let lanes = self.lanes.get(&request.device).copied().unwrap_or_default();
                let lane = lanes.iter().position(|count| *count == 0).unwrap_or(LANES - 1);
                let open = Open { lane, since: at.time, first: at.event, bytes: request.bytes };
                let given = self.requests.issue(when, request, open, &scope);
                for (place, unseen) in given.unseen {
                    self.tell_unseen(place, unseen, sink);
                }
                // One that is not followed never ends, and would keep its row, and its device, for good.
                if given.is_followed
                    && let Some(count) = self.lanes.entry(request.device).or_default().get_mut(lane)
                {
                    *count += 1;
                }
            }
            Known::BlockComplete { device, sector, sectors, rwbs, is_failed } => {
                let place = Place::new(*device, *sector, rwbs);
                let done = Completion { place, sectors: *sectors, is_failed: *is_failed };
                match self.requests.complete(when, done, &scope, true) {
                    Some(issued) if issued.is_ambiguous => self.tell_unseen(place, issued.by, sink),
                    Some(issued) => {
                        self.tell(place, issued.by, issued.is_failed, (at.time, at.event), sink);
                    }
                    None => {}
                }
            }
            Known::BlockRequeue { device, sector, rwbs } => {
                let place = Place::new(*device, *sector, rwbs);
                if let Some(issued) = self.requests.requeue(when, place, &scope) {
                    self.tell(place, issued.by, false, (at.time, at.event), sink);
                }
            }
            _ => {}
        }
    }

    fn tell(&mut self, place: Place, open: Open, is_failed: bool, (end, last): (u64, u64), sink: &mut Sink) {
        if let Some(count) = self.lanes.get_mut(&place.device).and_then(|lanes| lanes.get_mut(open.lane)) {
            *count = count.saturating_sub(1);
        }
        let name = place.operation.name();
        let name = if is_failed { format!("{name}, failed") } else { name.to_owned() };
        let key = sink.labels.number(&name);
        let arg = i64::try_from(open.bytes).unwrap_or(i64::MAX);
        let part = Part { start: open.since, end, key, arg, first: open.first, last };
        sink.slice(Row::Device(place.device, open.lane as u32), part);
    }

    /// Tells of a request whose end was not seen: at its begin, as no more of it is known.
    fn tell_unseen(&mut self, place: Place, open: Open, sink: &mut Sink) {
        self.tell(place, open, false, (open.since, 0), sink);
    }

    /// How many requests are not told of, as there are too many at a time, or too many devices.
    pub(super) fn left_out(&self) -> u64 {
        self.requests.left_out()
    }

    /// Events were lost: which of the requests go on is not known.
    pub(super) fn lost(&mut self, sink: &mut Sink) {
        let open: Vec<_> = self.requests.lose().collect();
        for (place, open) in open {
            self.tell_unseen(place, open, sink);
        }
        self.lanes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::answers::Request;

    fn issue(io: &mut Io, sink: &mut Sink, device: u64, sector: u64) {
        let request = Request { device, sector, bytes: 512, rwbs: b"R", comm: b"" };
        io.look(At { time: sector, cpu: 0, event: 1 }, &Known::BlockIssue(request), sink);
    }

    #[test]
    fn devices_without_number_take_no_room() {
        let (mut io, mut sink) = (Io::default(), Sink::default());
        for device in 0..10_000 {
            issue(&mut io, &mut sink, device, 0);
        }
        assert_eq!(io.lanes.len() as u64 + io.left_out(), 10_000);
        assert!(io.lanes.len() < 2000, "{}", io.lanes.len());
    }

    #[test]
    fn requests_that_are_left_out_keep_no_row() {
        let (mut io, mut sink) = (Io::default(), Sink::default());
        let mut sector = 0;
        while io.left_out() < 5 {
            issue(&mut io, &mut sink, 1, sector);
            sector += 1;
        }
        let open: u32 = io.lanes[&1].iter().sum();
        assert_eq!(u64::from(open) + io.left_out(), sector);
        io.lost(&mut sink);
        assert_eq!(sink.slices.len() as u32, open);
    }
}
