//! Time without a CPU as a flame graph.

use super::{OffCpuAnswer, OffCpuStack, Wakers};
use crate::answers::stacks::frames;
use flame::{FlameStacks, Frame, Kind, Unit};

/// What is between a sleeper and who wakes it, as `offwaketime` of bcc has it.
const WOKEN: Frame<'static> = Frame { kind: Kind::Mark, name: "--" };

impl OffCpuAnswer {
    /// The stacks with the time without a CPU in nanoseconds, including that which has not ended.
    ///
    /// `has_wakers` puts who woke the thread upon its stack: behind a frame `--` the waker's functions from
    /// the innermost one to the outermost one, and its name; then in the same way who woke that one while the
    /// first one slept, and so on.
    pub fn flame(&self, title: &str, has_wakers: bool) -> FlameStacks {
        let mut flame = FlameStacks::new(title, Unit::Nanoseconds);
        for of in &self.stacks {
            let sleeper = || frames(&of.comm, &of.user, &of.kernel);
            if has_wakers {
                let mut without = of.open_ns.saturating_add(of.times.total_ns);
                for wakers in of.wakers.iter().filter(|wakers| !wakers.chain.is_empty()) {
                    without = without.saturating_sub(wakers.total_ns);
                    flame.add(sleeper().chain(links(wakers)), wakers.total_ns);
                }
                flame.add(sleeper(), without);
            } else {
                flame.add(sleeper(), total(of));
            }
        }
        flame
    }

    /// Whether a stack has functions.
    pub fn has_stacks(&self) -> bool {
        self.stacks.iter().any(|of| !of.kernel.is_empty() || !of.user.is_empty())
    }
}

fn total(of: &OffCpuStack) -> u64 {
    of.times.total_ns.saturating_add(of.open_ns)
}

fn links(wakers: &Wakers) -> impl Iterator<Item = Frame<'_>> {
    wakers.chain.iter().flat_map(|link| {
        let of = |kind: Kind| move |name| Frame { kind, name };
        let (kernel, user) = (link.kernel.iter().map(String::as_str), link.user.iter().map(String::as_str));
        std::iter::once(WOKEN)
            .chain(kernel.map(of(Kind::Kernel)))
            .chain(user.map(of(Kind::User)))
            .chain(std::iter::once(Frame { kind: Kind::Mark, name: &link.waker }))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Reason, WakerLink};
    use super::*;
    use crate::answers::{Off, TimesTold};

    #[test]
    fn wakers_stand_upon_what_they_wake() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let link = WakerLink {
            waker: "two".to_owned(),
            tid: Some(2),
            kernel: texts(&["pipe_write", "vfs_write"]),
            user: texts(&["write", "main"]),
        };
        let stack = OffCpuStack {
            tid: 1,
            comm: "one".to_owned(),
            state: Off::Sleeping,
            reason: Reason::Pipe,
            kernel: texts(&["schedule", "pipe_read"]),
            user: texts(&["read", "main"]),
            times: TimesTold { total_ns: 70, ..TimesTold::default() },
            wait_ns: Some(0),
            open_ns: 30,
            wakers: vec![
                Wakers { chain: vec![link], count: 1, total_ns: 50 },
                Wakers { chain: vec![], count: 1, total_ns: 20 },
            ],
        };
        let answer = OffCpuAnswer { stacks: vec![stack], ..OffCpuAnswer::default() };
        let lines = |has_wakers| {
            let mut text = Vec::new();
            flame::Format::Folded.write(&answer.flame("", has_wakers), &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(lines(false), "one;main;read;pipe_read;schedule 100\n");
        assert_eq!(
            lines(true),
            "one;main;read;pipe_read;schedule 50\n\
             one;main;read;pipe_read;schedule;--;pipe_write;vfs_write;write;main;two 50\n"
        );
    }
}
