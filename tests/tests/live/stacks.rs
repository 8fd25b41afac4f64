//! Stacks behind events: a known chain of calls, in the kernel and in a process, by name in stock trace-cmd
//! and in our report.

use std::{
    fs,
    path::{Path, PathBuf},
};

use integration_tests::{agent, binaries, trace_cmd};

/// Calls `getppid` from the bottom of a chain of functions. Each has a frame but `call`, which hides its
/// caller.
const SOURCE: &str = r#"
#define NOINLINE __attribute__((noinline))
static NOINLINE long call(long number)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number) : "rcx", "r11", "memory");
    return result;
}
NOINLINE long chain_inner(int n) { long sum = 0; while (n--) sum += call(110); __asm__ volatile(""); return sum + 1; }
NOINLINE long chain_outer(int n) { long sum = chain_inner(n); __asm__ volatile(""); return sum + 1; }
#define DEEP(name, next) NOINLINE long name(int n) { long sum = next(n); __asm__ volatile(""); return sum + 1; }
DEEP(deep_1, chain_outer) DEEP(deep_2, deep_1) DEEP(deep_3, deep_2) DEEP(deep_4, deep_3) DEEP(deep_5, deep_4)
DEEP(deep_6, deep_5) DEEP(deep_7, deep_6) DEEP(deep_8, deep_7) DEEP(deep_9, deep_8)
/* A function without a frame that does not begin as the kernel expects of functions. */
__asm__(".text\n.type plain, @function\nplain: mov %edi, %eax\nret\n.size plain, . - plain\n");
long plain(int n);
NOINLINE long framed(int n) { long sum = plain(n); __asm__ volatile(""); return sum + 1; }
NOINLINE long caller(int n) { long sum = framed(n); __asm__ volatile(""); return sum + 1; }
int main(int argc, char **argv)
{
    (void)argv;
    return (argc > 2 ? caller(3) : argc > 1 ? deep_9(3) : chain_outer(3)) == 0;
}
"#;

fn program(dir: &Path, flags: &[&str]) -> PathBuf {
    fs::write(dir.join("chain.c"), SOURCE).unwrap();
    let args = ["-O1", "-fno-omit-frame-pointer", "-Wl,--build-id", "-o", "chain", "chain.c"];
    binaries::tool(dir, "cc", &[&args, flags].concat());
    dir.join("chain")
}

/// The frames of the stacks that follow each `sys_enter_getppid` in a report.
fn stacks(report: &str, stack: &str) -> Vec<Vec<String>> {
    stacks_of(report, "sys_enter_getppid", stack)
}

/// The frames of the stacks that follow each `of` in a report.
fn stacks_of(report: &str, of: &str, stack: &str) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let (mut behind, mut inside) = (false, false);
    for line in report.lines() {
        if let Some(event) = trace_cmd::Line::parse(line) {
            behind = event.event == of || behind && event.event.ends_with("_stack");
            inside = behind && event.event == stack;
            if inside {
                found.push(Vec::new());
            }
        }
        // The first frame of a user stack stands in the event's own line.
        if let Some((_, frame)) = line.split_once("=> ").filter(|_| inside) {
            let stack = found.last_mut().expect("a stack has begun");
            stack.push(frame.split(' ').next().unwrap_or_default().to_owned());
        }
    }
    found
}

fn base(frame: &str) -> &str {
    frame.split('+').next().unwrap()
}

/// The places of `names` in `frames`, which must be there in this order.
#[track_caller]
fn in_order(frames: &[String], names: &[&str]) {
    let bases: Vec<&str> = frames.iter().map(|frame| base(frame)).collect();
    let places: Vec<Option<usize>> =
        names.iter().map(|name| bases.iter().position(|frame| frame == name)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{names:?} in {bases:?}");
}

#[test]
fn a_known_chain_of_calls_has_its_names_in_both_lanes() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path(), &["-fPIE", "-pie"]);
    for lane in ["fast", "generic"] {
        let file = dir.path().join(format!("{lane}.dat"));
        let options = ["--lane", lane, "-T", "--user-stack", "-e", "syscalls:sys_enter_getppid", "-F"];
        agent::record(&file, options.iter().map(AsRef::as_ref).chain([program.as_os_str()]));
        let report = trace_cmd::report(&file, &[]);
        let kernel = stacks(&report, "kernel_stack");
        assert_eq!(kernel.len(), 3, "{lane}: {report}");
        for stack in &kernel {
            in_order(stack, &["do_syscall_64", "entry_SYSCALL_64_after_hwframe"]);
            assert!(stack.iter().all(|frame| !frame.starts_with("bpf_")), "{lane}: {stack:?}");
        }
        let user = stacks(&report, "user_stack");
        assert_eq!(user.len(), 3, "{lane}: {report}");
        for stack in &user {
            // Readers print eight frames, whatever there are.
            assert_eq!(stack.len(), 8);
            in_order(stack, &["call", "chain_outer", "main"]);
        }
        let ours = agent::run([Path::new("report"), &file]);
        assert_eq!(String::from_utf8_lossy(&ours.stdout), report, "{lane}");
    }
}

#[test]
fn deep_stacks_go_on_in_the_next_record() {
    let dir = tempfile::tempdir().unwrap();
    // At a fixed address, where other programs are too.
    let program = program(dir.path(), &["-fno-pie", "-no-pie"]);
    let file = dir.path().join("trace.dat");
    let options =
        ["--user-stack=sys_enter_getppid", "-e", "syscalls:sys_enter_getppid", "-e", "sched:sched_switch"];
    let command = ["-F".as_ref(), program.as_os_str(), "deep".as_ref()];
    agent::record(&file, options.iter().map(AsRef::as_ref).chain(command));
    let report = trace_cmd::report(&file, &[]);
    let parts = stacks(&report, "user_stack");
    assert_eq!(parts.len(), 6, "{report}");
    for stack in parts.chunks(2) {
        in_order(&stack.concat(), &["call", "chain_outer", "deep_1", "deep_5", "deep_9", "main"]);
        assert!(stack[1].ends_with(&["-".to_owned()]), "{stack:?}");
    }
    // Only the chosen event has stacks.
    let json = agent::run([Path::new("info"), Path::new("--json"), &file]);
    let json = String::from_utf8_lossy(&json.stdout).replace(' ', "");
    assert!(json.contains("\"event\":\"ftrace:user_stack\",\"id\":"), "{json}");
    assert_eq!(report.matches(" user_stack: ").count(), 6, "{report}");
    assert_eq!(report.matches(" kernel_stack: ").count(), 0, "{report}");
}

/// At its first instruction a function has no frame, so that a walk along frames misses who called it.
#[test]
fn stacks_at_the_entry_of_a_function_have_its_direct_caller() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path(), &["-fPIE", "-pie"]);
    let file = dir.path().join("trace.dat");
    let probe = |function: &str| format!("{function}={}:{function}", program.display());
    let (plain, framed) = (probe("plain"), probe("framed"));
    let options = ["--user-stack", "--uprobe", &plain, "--uprobe", &framed, "-F"];
    let command = [program.as_os_str(), "deep".as_ref(), "calls".as_ref()];
    agent::record(&file, options.iter().map(AsRef::as_ref).chain(command));
    let report = trace_cmd::report(&file, &[]);
    for (function, wanted) in
        [("plain", &["plain", "framed", "caller", "main"][..]), ("framed", &["framed", "caller", "main"])]
    {
        let found = stacks_of(&report, function, "user_stack");
        let [stack] = found.as_slice() else { panic!("{function}: {report}") };
        let bases: Vec<&str> = stack.iter().map(|frame| base(frame)).take(wanted.len()).collect();
        assert_eq!(bases, wanted, "{function}: {report}");
    }
}

#[test]
fn files_of_user_stacks_are_recorded_with_their_build_ids() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path(), &[]);
    let notes = binaries::tool(dir.path(), "readelf", &["-n", "chain"]);
    let id =
        notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).expect("a build id").to_owned();
    let file = dir.path().join("trace.dat");
    let options = ["--user-stack", "-e", "syscalls:sys_enter_getppid", "-F"];
    agent::record(&file, options.iter().map(AsRef::as_ref).chain([program.as_os_str()]));
    let bytes = fs::read(&file).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let expected = format!("{{\"build_id\":\"{id}\",\"path\":\"{}\"}}", program.display());
    assert!(text.contains(&expected), "{expected}");
}

#[test]
fn stacks_of_events_that_are_not_recorded_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let mut command = agent::command(["record", "-e", "sched:sched_switch", "--kernel-stack=irq:*", "-o"]);
    let output = command.arg(&file).arg("true").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--kernel-stack=irq:* matches none of the recorded events"), "{said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
}
