//! Writes the recordings of a fleet and says what they are: `test-fleet HOSTS RECORDINGS EVENTS CPUS
//! DIRECTORY`.

use std::path::Path;

use integration_tests::fleet::Fleet;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((fleet, dir)) = fleet(&args) else {
        eprintln!("usage: test-fleet HOSTS RECORDINGS EVENTS CPUS DIRECTORY");
        std::process::exit(2);
    };
    for which in fleet.numbers() {
        println!("{}", fleet.write(Path::new(dir), which, false).path.display());
    }
}

fn fleet(args: &[String]) -> Option<(Fleet, &String)> {
    let [hosts, recordings, events, cpus, dir] = args else { return None };
    let fleet = Fleet {
        hosts: hosts.parse().ok()?,
        recordings: recordings.parse().ok()?,
        events: events.parse().ok()?,
        cpus: cpus.parse().ok()?,
    };
    Some((fleet, dir))
}
