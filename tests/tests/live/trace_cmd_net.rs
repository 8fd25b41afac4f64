//! `record -N` and `listen`, with each other and with stock trace-cmd.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use integration_tests::{
    harness::{Caller, Ledger, Marked, Running, agent, files, is_clean, program, run, temporary, wait_for},
    trace_cmd,
};

/// What is recorded: system calls of the callers, getppid only.
const GETPPID: [&str; 4] = ["-e", "raw_syscalls:sys_enter", "-f", "id == 110"];

/// A listener, and where its files are.
struct Listening {
    process: Running,
    port: u16,
    dir: PathBuf,
}

/// A port that nobody has.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Waits until somebody listens at a port. To connect would be to be a recorder.
fn wait_for_port(process: &mut Running, port: u16) {
    let (end, state) = (format!(":{port:04X}"), "0A");
    wait_for("a listener", || {
        assert!(!process.has_ended(), "the listener has ended");
        let tables =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
        let mut lines = tables.iter().flat_map(|table| table.lines());
        let is_it = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(1).is_some_and(|local| local.ends_with(&end)) && words.get(3) == Some(&state)
        };
        lines.any(is_it).then_some(())
    });
}

impl Listening {
    /// Starts stock trace-cmd.
    fn stock(dir: &Path) -> Self {
        let (port, dir) = (free_port(), dir.join("stock"));
        fs::create_dir(&dir).unwrap();
        let args = ["listen".to_owned(), "-p".to_owned(), port.to_string()];
        let mut process = Running::start(&mut program(&dir, "trace-cmd", args));
        wait_for_port(&mut process, port);
        Self { process, port, dir }
    }

    /// Starts ours.
    fn ours(dir: &Path, args: &[&str]) -> Self {
        let (port, dir) = (free_port(), dir.join("ours"));
        fs::create_dir(&dir).unwrap();
        let mut command = agent(&dir, ["listen", "-p", &port.to_string()]);
        let mut process = Running::start(command.args(args));
        process.wait_until_said("listening at", 1);
        Self { process, port, dir }
    }

    fn at(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its only file, which trace-cmd has made when it ends.
    fn file(&self) -> PathBuf {
        let found = files(&self.dir);
        let [name] = &found[..] else { panic!("not one file: {found:?}") };
        self.dir.join(name)
    }

    /// Ends it. trace-cmd takes two seconds for a file.
    fn end(self) -> (PathBuf, String) {
        self.process.signal(libc::SIGINT);
        let Self { process, dir, .. } = self;
        let ended = process.wait();
        let found = files(&dir);
        let [name] = &found[..] else { panic!("not one file: {found:?}, {}", ended.err) };
        (dir.join(name), ended.err)
    }
}

/// Starts `record ARGS` of the callers' calls.
fn record(dir: &Path, name: &str, callers: &[&Caller], args: &[&str]) -> Marked {
    let mut command = agent(dir, ["record"]);
    command.args(GETPPID).args(args).env("TMPDIR", temporary(dir));
    for caller in callers {
        command.args(["-P", &caller.pid().to_string()]);
    }
    Marked::start_as(&mut command, dir.join(name))
}

/// What stock trace-cmd prints, without the times: of two recordings each event has one of its own.
fn text(file: &Path) -> Vec<String> {
    let text = trace_cmd::report(file, &[]);
    let lines = text.lines().filter_map(trace_cmd::Line::parse);
    lines
        .map(|line| format!("{}-{} [{}] {}: {}", line.comm, line.pid, line.cpu, line.event, line.fields))
        .collect()
}

/// A number as summaries have it.
fn spaced(number: u64) -> String {
    if number < 1000 { number.to_string() } else { format!("{} {:03}", spaced(number / 1000), number % 1000) }
}

/// Records the same calls into a file and to a listener, and compares what is in both.
fn is_as_a_local_file(dir: &Path, listening: Listening, way: &[&str], times: u64) -> PathBuf {
    let mut callers = [Caller::named("first"), Caller::named("second")];
    for (cpu, caller) in callers.iter().enumerate() {
        caller.pin(cpu);
    }
    let both = [&callers[0], &callers[1]];
    let local = record(dir, "local-mark", &both, &["-o", "local.dat"]);
    let sent = record(dir, "mark", &both, &[&["--switch-timer", "50ms"], way].concat());
    callers[0].call(10);
    std::thread::scope(|scope| {
        for caller in &mut callers {
            scope.spawn(move || (0..4).for_each(|_| caller.call(times)));
        }
    });
    let expected = sent.finish().expect(0);
    let events = 10 + 2 * 4 * times;
    assert!(expected.err.contains(&format!("{} events", spaced(events))), "{}", expected.err);
    local.finish().expect(0);
    is_clean(dir);
    let (file, _) = listening.end();
    let (of_file, of_local) = (text(&file), text(&dir.join("local.dat")));
    assert_eq!(of_file.len() as u64, events);
    for cpu in ["[0]", "[1]"] {
        let of_cpu =
            |lines: &[String]| lines.iter().filter(|line| line.contains(cpu)).cloned().collect::<Vec<_>>();
        assert!(of_cpu(&of_file) == of_cpu(&of_local), "{cpu} of {}", file.display());
    }
    run(agent(dir, ["check"]).arg(&file)).expect(0);
    file
}

#[test]
fn stock_trace_cmd_receives_a_recording() {
    let dir = tempfile::tempdir().unwrap();
    let listening = Listening::stock(dir.path());
    let at = listening.at();
    let file = is_as_a_local_file(dir.path(), listening, &["-N", &at, "-t"], 2000);
    // What only our files have.
    assert_eq!((Ledger::of(&file).events("recorded"), Ledger::of(&file).lost()), (16_010, 0));
}

#[test]
fn stock_trace_cmd_receives_datagrams() {
    let dir = tempfile::tempdir().unwrap();
    let listening = Listening::stock(dir.path());
    let at = listening.at();
    // As many as its sockets keep, so that none is lost however slow it is.
    is_as_a_local_file(dir.path(), listening, &["-N", &at], 200);
}

#[test]
fn ours_receives_ours() {
    for (way, bind) in [
        (&["-t"][..], "127.0.0.1"),
        (&[], "127.0.0.1"),
        (&["-t"], "::1"),
        (&["--compression", "none"], "::1"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let listening = Listening::ours(dir.path(), &["--bind", bind]);
        let at = if bind == "::1" { format!("[::1]:{}", listening.port) } else { listening.at() };
        let file = is_as_a_local_file(dir.path(), listening, &[&["-N", &at], way].concat(), 2000);
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            name.starts_with(&format!("trace.{bind}:")) && file.extension().is_some_and(|end| end == "dat"),
            "{name}"
        );
        assert_eq!((Ledger::of(&file).events("recorded"), Ledger::of(&file).lost()), (16_010, 0));
    }
}

/// A listener from before version 3: the connection is closed when it hears of that.
#[test]
fn version_1_is_spoken_with_who_knows_no_other() {
    for is_stock in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let listening =
            if is_stock { Listening::stock(dir.path()) } else { Listening::ours(dir.path(), &[]) };
        let old = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (at, real) = (format!("127.0.0.1:{}", old.local_addr().unwrap().port()), listening.port);
        let between = std::thread::spawn(move || {
            let (mut first, _) = old.accept().unwrap();
            first.write_all(b"tracecmd").unwrap();
            let mut said = [0; 5];
            first.read_exact(&mut said).unwrap();
            assert_eq!(&said, b"-1V3\0");
            drop(first);
            let (recorder, _) = old.accept().unwrap();
            let listener = TcpStream::connect((Ipv4Addr::LOCALHOST, real)).unwrap();
            let pass = |mut from: TcpStream, mut to: TcpStream| {
                std::io::copy(&mut from, &mut to).unwrap();
                let _ = to.shutdown(std::net::Shutdown::Write);
            };
            let (from, to) = (recorder.try_clone().unwrap(), listener.try_clone().unwrap());
            let there = std::thread::spawn(move || pass(from, to));
            pass(listener, recorder);
            there.join().unwrap();
        });
        let file = is_as_a_local_file(dir.path(), listening, &["-N", &at, "-t"], 2000);
        between.join().unwrap();
        assert_eq!(&fs::read(file).unwrap()[10..12], b"6\0");
    }
}

/// Names that become known while it is recorded.
#[test]
fn threads_that_come_later_have_names() {
    for is_stock in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let late = dir.path().join("latecomer");
        fs::copy("/bin/sleep", &late).unwrap();
        let listening =
            if is_stock { Listening::stock(dir.path()) } else { Listening::ours(dir.path(), &[]) };
        let args = ["record", "-e", "raw_syscalls:sys_enter", "-F", "-N", &listening.at(), "-t"];
        let mut command = agent(dir.path(), args);
        run(command.arg(&late).arg("0.2").env("TMPDIR", temporary(dir.path()))).expect(0);
        let (file, _) = listening.end();
        let lines = text(&file);
        assert!(lines.len() > 10, "{lines:?}");
        assert!(lines.iter().all(|line| line.starts_with("latecomer-")), "{lines:?}");
    }
}

#[test]
fn a_listener_that_is_slow_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let listening = Listening::ours(dir.path(), &[]);
    let mut caller = Caller::start();
    // The ring has room for half of the events: until the recorder has a CPU, not until the listener goes on.
    let args =
        ["-N", &listening.at(), "-t", "--switch-timer", "20ms", "--compression", "none", "-b", "32768"];
    let recording = record(dir.path(), "mark", &[&caller], &args);
    listening.process.hold();
    // More than the kernel keeps for connections.
    (0..20).for_each(|_| caller.call(40_000));
    recording.end_command();
    std::thread::sleep(Duration::from_millis(200));
    listening.process.signal(libc::SIGCONT);
    let ended = recording.agent.wait().expect(0);
    assert!(ended.err.contains("800 000 events"), "{}", ended.err);
    let (file, _) = listening.end();
    assert_eq!((Ledger::of(&file).events("recorded"), Ledger::of(&file).lost()), (800_000, 0));
    assert!(run(agent(dir.path(), ["check"]).arg(&file)).expect(0).out.contains("800 000 events"));
    is_clean(dir.path());
}

#[test]
fn what_had_come_of_a_killed_recorder_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut listening = Listening::ours(dir.path(), &[]);
    let mut caller = Caller::named("gone");
    let args = ["-N", &listening.at(), "-t", "--switch-timer", "20ms"];
    let recording = record(dir.path(), "mark", &[&caller], &args);
    caller.call(5000);
    std::thread::sleep(Duration::from_millis(500));
    recording.agent.signal(libc::SIGKILL);
    drop(recording);
    listening.process.wait_until_said("the recorder has gone before the end", 1);
    listening.process.wait_until_said("what had come: 5 000 events", 1);
    let (file, _) = listening.end();
    let lines = text(&file);
    assert_eq!(lines.len(), 5000);
    assert!(lines.iter().all(|line| line.starts_with("gone-")), "{:?}", lines.first());
    run(agent(dir.path(), ["check"]).arg(&file)).expect(0);
}

#[test]
fn a_listener_that_ends_finishes_its_files_and_the_recorder_keeps_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let listening = Listening::ours(dir.path(), &[]);
    let mut caller = Caller::named("here");
    let args = ["-N", &listening.at(), "-t", "--switch-timer", "20ms"];
    let recording = record(dir.path(), "mark", &[&caller], &args);
    caller.call(5000);
    std::thread::sleep(Duration::from_millis(500));
    let (file, said) = listening.end();
    assert!(said.contains("the listener was told to end"), "{said}");
    assert_eq!(text(&file).len(), 5000);
    // The command goes on, and has the same standard error.
    let mut recording = recording;
    wait_for("the end of the recorder", || recording.agent.has_ended().then_some(()));
    let ended = recording.finish().expect(114);
    assert!(ended.err.contains("the recording has ended, and all of it is in"), "{}", ended.err);
    let kept = files(&temporary(dir.path()));
    let [kept] = &kept[..] else { panic!("{kept:?}") };
    let kept = temporary(dir.path()).join(kept).join("trace.dat");
    assert_eq!(text(&kept).len(), 5000);
}

#[test]
fn nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let at = format!("127.0.0.1:{}", free_port());
    let mut command = agent(dir.path(), ["record", "-e", "sched", "-N", &at, "-t", "touch", "started"]);
    let ended = run(command.env("TMPDIR", temporary(dir.path()))).expect(114);
    assert!(ended.err.contains("cannot connect to 127.0.0.1"), "{}", ended.err);
    // Somebody else does.
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = format!("127.0.0.1:{}", other.local_addr().unwrap().port());
    let answer = std::thread::spawn(move || {
        let (mut came, _) = other.accept().unwrap();
        came.write_all(b"220 mail.example ESMTP\r\n").unwrap();
        let _ = came.read_to_end(&mut Vec::new());
    });
    let mut command = agent(dir.path(), ["record", "-e", "sched", "-N", &at, "-t", "touch", "started"]);
    let ended = run(command.env("TMPDIR", temporary(dir.path()))).expect(114);
    assert!(ended.err.contains("is no listener of trace-cmd: it answers"), "{}", ended.err);
    answer.join().unwrap();
    is_clean(dir.path());
    assert!(!dir.path().join("started").exists());
}

#[test]
fn what_a_listener_cannot_have_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (args, why) in [
        (&["-N", "there:1", "-o", "t.dat"][..], "cannot be used with"),
        (&["-N", "there:1", "-V", "2:1"], "cannot be used with"),
        (&["-t"], "required"),
        (&["-N", "there"], "no port"),
        (&["-V", "host:1"], "CID:PORT"),
        (&["-N", "there:1", "--overwrite"], "in memory until the end"),
        (&["-N", "there:1", "-m", "1M"], "-m removes"),
        (&["-N", "there:1", "--rotate-size", "1M"], "several files"),
        (&["-N", "there:1", "--format", "ctf"], "a trace is a directory"),
        (&["-N", "there:1", "-B", "one", "-e", "irq"], "one buffer"),
    ] {
        let ended = run(agent(dir.path(), ["record", "-e", "sched"]).args(args)).expect(2);
        assert!(ended.err.contains(why), "{args:?}: {}", ended.err);
    }
    for (args, why) in
        [(&["-o", "a/b"][..], "no name"), (&["-d", "nowhere"], "nowhere"), (&["-p", "70000"], "65535")]
    {
        let args = if args[0] == "-p" { args.to_vec() } else { [&["-p", "0"], args].concat() };
        let ended = run(agent(dir.path(), ["listen"]).args(&args));
        assert!(ended.code() != 0 && ended.err.contains(why), "{args:?}: {}", ended.err);
    }
}

/// Says this to the listener, and gives all that it answers until it closes the connection.
fn say(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // It may be closed before all is said.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn message(command: u32, fixed: &[u32], body: &[u8]) -> Vec<u8> {
    let fixed: Vec<u8> = fixed.iter().flat_map(|number| number.to_be_bytes()).collect();
    let numbers = [12 + fixed.len() + body.len(), command as usize, fixed.len()];
    let header: Vec<u8> = numbers.iter().flat_map(|number| (*number as u32).to_be_bytes()).collect();
    [header, fixed, body.to_vec()].concat()
}

const HELLO: &[u8] = b"-1V3\x00766679\0\0";

#[test]
fn recorders_that_make_no_sense_are_sent_away() {
    let dir = tempfile::tempdir().unwrap();
    let limits =
        ["--greeting-timeout", "3s", "--idle-timeout", "400ms", "--max-metadata", "100K", "--max-data", "1M"];
    let mut listening = Listening::ours(dir.path(), &[&limits[..], &["--max-clients", "3"]].concat());
    let port = listening.port;
    let init = |cpus| message(1, &[cpus, 4096, 1], b"tcp\0");
    let cases: [(Vec<u8>, &str); 9] = [
        (b"GET / HTTP/1.1\r\n\r\n\0".to_vec(), "no recorder of trace-cmd"),
        (vec![0xff; 1 << 20], "no recorder of trace-cmd"),
        (Vec::new(), "said nothing that makes sense for 3 s"),
        (b"-1V".to_vec(), "said nothing that makes sense for 3 s"),
        ([HELLO, &[0xff; 100]].concat(), "impossible lengths"),
        ([HELLO, &init(u32::MAX)].concat(), "CPUs"),
        ([HELLO, &init(1)].concat(), "nothing came for 0.4 s"),
        ([HELLO, &init(1), &message(3, &[], &[7; 8000])[..100]].concat(), "nothing came for 0.4 s"),
        (
            [HELLO, &init(1), &message(3, &[], &[7; 8000]).repeat(13)].concat(),
            "102400 bytes, which is the limit",
        ),
    ];
    for (number, (bytes, why)) in cases.iter().enumerate() {
        let answer = say(port, bytes);
        assert!(answer.starts_with(b"tracecmd"), "{why}: {answer:?}");
        listening.process.wait_until_said("no file:", number + 1);
        assert!(listening.process.has_said(why), "{why}");
    }
    // As many as may be.
    let mut here: Vec<_> = (0..3).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()).collect();
    for stream in &mut here {
        stream.read_exact(&mut [0; 8]).unwrap();
    }
    assert_eq!(say(port, HELLO), b"");
    listening.process.wait_until_said("as many recorders as --max-clients allows", 1);
    drop(here);
    listening.process.wait_until_said("the recorder has gone", 3);
    assert_eq!(files(&listening.dir), Vec::<String>::new());

    // Data without end.
    let mut control = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    control.write_all(&[HELLO, &init(1)].concat()).unwrap();
    let mut answer = [0; 8 + 3 + 2 + 16 + 5];
    control.read_exact(&mut answer).unwrap();
    let data_port: u16 = std::str::from_utf8(&answer[29..33]).unwrap().parse().unwrap();
    let mut data = TcpStream::connect((Ipv4Addr::LOCALHOST, data_port)).unwrap();
    while data.write_all(&[0; 4096]).is_ok() {}
    listening.process.wait_until_said("more than 1048576 bytes of pages", 1);

    // Whoever makes sense is served.
    let caller = Caller::start();
    let at = listening.at();
    record(dir.path(), "mark", &[&caller], &["-N", &at, "-t"]).finish().expect(0);
    assert!(files(&listening.dir).len() == 1 && listening.file().exists());
}

/// Trace files are made of whatever came: damage costs what is damaged.
#[test]
fn a_recording_that_is_damaged_on_its_way_is_kept_as_far_as_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let local = record(dir.path(), "mark", &[&caller], &["-o", "local.dat"]);
    caller.call(2000);
    local.finish().expect(0);
    let whole = fs::read(dir.path().join("local.dat")).unwrap();
    let mut listening = Listening::ours(dir.path(), &[]);
    let init = message(1, &[1, 4096, 1], b"tcp\0");
    // A file with data of its own, cut off anywhere, where only what describes data should be.
    for (number, len) in [whole.len() / 3, whole.len() - 1, whole.len()].into_iter().enumerate() {
        let described: Vec<u8> = whole[..len].chunks(8000).flat_map(|part| message(3, &[], part)).collect();
        let mut control = TcpStream::connect((Ipv4Addr::LOCALHOST, listening.port)).unwrap();
        control.write_all(&[HELLO, &init].concat()).unwrap();
        let mut answer = [0; 8 + 3 + 2 + 16 + 5];
        control.read_exact(&mut answer).unwrap();
        let data_port: u16 = std::str::from_utf8(&answer[29..33]).unwrap().parse().unwrap();
        let mut data = TcpStream::connect((Ipv4Addr::LOCALHOST, data_port)).unwrap();
        data.write_all(&[0x5a; 5000]).unwrap();
        drop(data);
        control.write_all(&[described, message(4, &[], &[]), message(0, &[], &[])].concat()).unwrap();
        control.read_to_end(&mut Vec::new()).unwrap();
        listening.process.wait_until_said("has connected", number + 1);
    }
    // What is there can be read.
    for name in files(&listening.dir) {
        let file = listening.dir.join(name);
        run(agent(dir.path(), ["check"]).arg(&file)).expect(0);
    }
    assert!(!files(&listening.dir).is_empty());
    assert!(!listening.process.has_ended());
}

#[test]
fn who_listens_to_others_is_warned() {
    let dir = tempfile::tempdir().unwrap();
    for (bind, is_warned) in [("127.0.0.1", false), ("::1", false), ("0.0.0.0", true), ("::", true)] {
        let mut listening = Running::start(&mut agent(dir.path(), ["listen", "-p", "0", "--bind", bind]));
        listening.wait_until_said("listening at", 1);
        assert_eq!(
            listening.has_said("warning: whoever reaches this port can write files here"),
            is_warned,
            "{bind}"
        );
        listening.signal(libc::SIGTERM);
        listening.wait().expect(0);
    }
}
