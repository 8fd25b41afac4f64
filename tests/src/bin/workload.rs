//! Runs one of the workloads that the tests record: `test-workload KIND SCRATCH-DIRECTORY [TRACING_ON]`.

use integration_tests::workload;

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(kind), Some(scratch)) = (args.next(), args.next()) else {
        eprintln!("usage: test-workload KIND SCRATCH-DIRECTORY [TRACING_ON]");
        std::process::exit(2);
    };
    workload::run(&kind, scratch.as_ref(), args.next().as_deref().map(AsRef::as_ref));
}
