//! A daemon as it is on every host of a fleet: all of it at once, again and again.

use integration_tests::{
    daemon::Daemon,
    harness::{Caller, Report, is_getppid, wait_for},
    object_store::Faults,
};
use serde_json::json;

use super::{
    archives::{Store, metric},
    endurance::held,
    markers::bytes_below,
};

/// Rounds of a trial; each takes about a second.
const ROUNDS: usize = 12;
/// After so many rounds everything has happened once, and what is held is looked at.
const WARM: usize = 6;
/// Calls in a round.
const CALLS_OF_ROUND: u64 = 20_000;
/// What may stay on the disk of what is stored.
const KEPT: u64 = 8 << 20;

/// What a daemon holds: kilobytes of memory, descriptors, threads, and bytes of its state.
#[derive(Clone, Copy, Debug)]
struct Held {
    memory: u64,
    descriptors: usize,
    threads: usize,
    disk: u64,
}

impl Held {
    fn of(daemon: &Daemon) -> Self {
        let (memory, [descriptors, threads, _]) = held(daemon);
        Self { memory, descriptors, threads, disk: bytes_below(&daemon.path().join("state")) }
    }
}

/// The configuration of a round: a rule comes and goes.
fn text(store: &str, caller: &Caller, round: usize) -> String {
    let more = if round.is_multiple_of(2) { "" } else { ", { what = { events = \"task:task_newtask\" } }" };
    format!(
        "[budget]\ncpu = \"80%\"\n\n[retention]\nmax_bytes = {KEPT}\n\n{store}\n\
         [sessions.files]\nkallsyms = \"none\"\nthrottled = false\nscope.track.pid = [\"{pid}\"]\nrotate = {{ size = \"1M\" }}\n\
         [[sessions.files.channels]]\nring_bytes = 8388608\n\
         rules = [{{ what = {{ events = \"raw_syscalls:sys_enter\" }}, filter = \"id == 110\" }}{more}]\n\n\
         [sessions.flight]\nkallsyms = \"none\"\nmode = \"snapshot\"\nkeep = {{ size = \"2M\" }}\n\
         [[sessions.flight.channels]]\nrules = [{{ what = {{ events = \"sched\" }} }}{more}]\n\n\
         [triggers.asked]\ncondition = \"signal\"\n\
         actions = [{{ do = {{ snapshot_session = {{ session = \"flight\" }} }} }}]\n",
        pid = caller.pid()
    )
}

fn what_is_always_on_stays_as_large_as_it_was() {
    // A long trial is as long as those of three seconds.
    let rounds = ROUNDS + 3 * (integration_tests::soak() - 1);
    let store = Store::start();
    let (proxy, moto, table) = (&store.proxy, &store.moto, store.table());
    let mut caller = Caller::start();
    let daemon = Daemon::start_configured(&text(&table, &caller, 0));
    let mut before = None;
    for round in 1..=rounds {
        for _ in 0..10 {
            caller.call(CALLS_OF_ROUND / 10);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        match round % 6 {
            1 => proxy.set_faults(Faults { unavailable: 30, cut_request: 10, cut_answer: 10, delay: 20 }),
            2 => daemon.signal(libc::SIGUSR1),
            3 => proxy.set_down(true),
            4 => {
                let rotation = daemon.ask("POST", "/v1/sessions/files/rotations", None);
                // One that goes on already is as good.
                assert!([200, 201, 202, 409].contains(&rotation.0), "{rotation:?}");
            }
            5 => proxy.set_down(false),
            _ => proxy.set_faults(Faults::default()),
        }
        let told = daemon.configure(&text(&table, &caller, round));
        assert_eq!((&told["mistakes"], &told["failures"]), (&json!([]), &json!([])), "{told}");
        if round == WARM {
            wait_for("the archives to be stored", || {
                (metric(&daemon, "tracer_agent_upload_queued_archives") == 0).then_some(())
            });
            before = Some(Held::of(&daemon));
        }
    }
    proxy.set_faults(Faults::default());
    proxy.set_down(false);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/files/stop", None);
    wait_for("the archives to be stored", || {
        (metric(&daemon, "tracer_agent_upload_queued_archives") == 0).then_some(())
    });
    daemon.tell("POST", "/v1/sessions/files/start", None);
    let before = before.unwrap();
    wait_for("what was used to be given back", || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        let now = Held::of(&daemon);
        let is_flat = now.memory < before.memory + before.memory / 4 + 8192
            && now.descriptors <= before.descriptors + 8
            && now.threads <= before.threads + 2
            // What is recorded, and the spools of it, beside what may stay.
            && now.disk <= before.disk.max(KEPT) + (8 << 20);
        is_flat.then_some(()).ok_or_else(|| println!("{before:?} became {now:?}")).ok()
    });
    // Everything is in the store, once.
    let stored = metric(&daemon, "tracer_agent_upload_stored_archives_total");
    assert_eq!(moto.objects().len() as u64, stored);
    assert_eq!(metric(&daemon, "tracer_agent_upload_lost_archives_total"), 0);
    let mut calls = 0;
    for object in moto.objects() {
        let key = object["key"].as_str().unwrap();
        if key.contains("/files/") {
            let file = store.dir.path().join("one.dat");
            moto.get(key, &file);
            calls += Report::of(&file).count(is_getppid);
        }
    }
    assert_eq!(calls, caller.calls(), "of what was recorded nothing is missing in the store");
    let snapshots =
        moto.objects().iter().filter(|of| of["key"].as_str().unwrap().contains("/flight/")).count();
    assert!(snapshots >= 1, "{:?}", moto.objects());
}

mod soak {
    #[test]
    fn what_is_always_on_stays_as_large_as_it_was() {
        super::what_is_always_on_stays_as_large_as_it_was();
    }
}
