//! Synthetic files, and stock trace-cmd to open them with.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ftrace_event::Cmdlines;
use tracedat::page::{PageBuilder, Push};
use tracedat::{Buffer, Compression, EventSystem, FileOption, Section, Setup, Writer, layout};

/// Both kinds of file.
pub(crate) const COMPRESSIONS: [Compression; 2] = [Compression::None, Compression::zstd(1)];

/// Event numbers.
pub(crate) const SWITCH: u16 = 372;
pub(crate) const TICK: u16 = 20000;
pub(crate) const TEXT: u16 = 20001;

pub(crate) const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

const HEADER_EVENT: &str = "# compressed entry header
\ttype_len    :    5 bits
\ttime_delta  :   27 bits
\tarray       :   32 bits

\tpadding     : type == 29
\ttime_extend : type == 30
\ttime_stamp : type == 31
\tdata max type_len  == 28
";

fn format(name: &str, id: u16, fields: &str, print_fmt: &str) -> String {
    format!("name: {name}\nID: {id}\nformat:\n{COMMON}\n{fields}\nprint fmt: {print_fmt}\n")
}

pub(crate) fn tick_format() -> String {
    let fields =
        "\tfield:u32 seq;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u32 len;\toffset:12;\tsize:4;\tsigned:0;\n";
    format("tick", TICK, fields, "\"seq=%u len=%u\", REC->seq, REC->len")
}

pub(crate) fn text_format() -> String {
    let fields = "\tfield:u64 ip;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] text;\toffset:16;\tsize:4;\tsigned:0;\n";
    format("text", TEXT, fields, "\"at %pS text=%s\", (void *)REC->ip, __get_str(text)")
}

/// As kernels have it, with a shorter print fmt.
pub(crate) fn switch_format() -> String {
    let fields = "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;
\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;
\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;
";
    format("sched_switch", SWITCH, fields, "\"%s ==> %s\", REC->prev_comm, REC->next_comm")
}

/// The eight bytes that every record starts with.
fn common(id: u16, pid: u32) -> Vec<u8> {
    let mut record = id.to_le_bytes().to_vec();
    record.extend_from_slice(&[0, 0]);
    record.extend_from_slice(&pid.to_le_bytes());
    record
}

/// A record of `len` bytes, 16 at least.
pub(crate) fn tick(pid: u32, seq: u32, len: usize) -> Vec<u8> {
    let mut record = common(TICK, pid);
    record.extend_from_slice(&seq.to_le_bytes());
    record.extend_from_slice(&(len as u32).to_le_bytes());
    record.resize(len, 0x5a);
    record
}

pub(crate) fn text(pid: u32, ip: u64, text: &str) -> Vec<u8> {
    let mut record = common(TEXT, pid);
    record.extend_from_slice(&ip.to_le_bytes());
    record.extend_from_slice(&(0x14 | (text.len() as u32 + 1) << 16).to_le_bytes());
    record.extend_from_slice(text.as_bytes());
    record.push(0);
    record
}

pub(crate) fn switch(prev: (&str, u32), next: (&str, u32)) -> Vec<u8> {
    let mut record = common(SWITCH, prev.1);
    for (task, state) in [(prev, Some(1u64)), (next, None)] {
        let mut comm = task.0.as_bytes().to_vec();
        comm.resize(16, 0);
        record.extend_from_slice(&comm);
        record.extend_from_slice(&task.1.to_le_bytes());
        record.extend_from_slice(&120u32.to_le_bytes());
        record.extend(state.iter().flat_map(|state| state.to_le_bytes()));
    }
    record
}

/// Pages of records given with their times.
pub(crate) fn pages(page_size: u32, records: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Vec<u8> {
    let mut builder = PageBuilder::new(page_size as usize, Setup::default().endian).unwrap();
    let mut pages = Vec::new();
    for (time, record) in records {
        while builder.push(time, &record).unwrap() == Push::Full {
            pages.extend_from_slice(builder.finish().unwrap());
        }
    }
    pages.extend_from_slice(builder.finish().unwrap_or_default());
    pages
}

pub(crate) fn setup(compression: Compression) -> Setup {
    Setup { compression, ..Setup::default() }
}

/// A directory that is removed at the end of the test.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A writer with all metadata and options given; what is missing is the data.
    pub(crate) fn writer(&self, name: &str, setup: Setup) -> Writer<File> {
        let Setup { endian, page_size, compression } = setup;
        let file = File::options().create_new(true).read(true).write(true).open(self.path(name)).unwrap();
        let mut writer = Writer::create(file, setup).unwrap();
        let header_page = layout::header_page_text(page_size);
        writer.section(Section::header_info(endian, &header_page, HEADER_EVENT).unwrap()).unwrap();
        writer.section(Section::ftrace_events(endian, &[]).unwrap()).unwrap();
        let (switch, tick, text) = (switch_format(), tick_format(), text_format());
        let systems = [
            EventSystem { name: "sched", formats: &[&switch] },
            EventSystem { name: "demo", formats: &[&tick, &text] },
        ];
        writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
        let kallsyms = b"ffffffff81000000 T first_function\nffffffff81000100 T second_function\tT\nffffffff82000000 T the_end\n";
        let kallsyms = kallsyms.as_slice();
        let packed = Section::kallsyms(endian, kallsyms).unwrap().pack(compression).unwrap();
        writer.section(packed).unwrap();
        writer.section(Section::printk(endian, b"0xffffffff82000000 : \"hello %d\\n\"\n").unwrap()).unwrap();
        let cmdlines: Cmdlines = [(42, "worker"), (43, "two words")].into_iter().collect();
        writer.section(Section::cmdlines(endian, &cmdlines)).unwrap();
        for option in [
            FileOption::TraceClock("local global [mono] boot".to_owned()),
            FileOption::Uname("Linux test 6.18.0 x86_64".to_owned()),
            FileOption::Version("tracer-agent under test".to_owned()),
            FileOption::TraceId(0x1234_5678_9abc_def0),
            FileOption::CpuStat("CPU: 0\nentries: 77\noverrun: 0\n".to_owned()),
        ] {
            writer.option(&option).unwrap();
        }
        writer
    }

    /// A file with one buffer, the top one.
    pub(crate) fn file(&self, name: &str, setup: Setup, cpus: &[(u32, Vec<u8>)]) -> PathBuf {
        let mut writer = self.writer(name, setup);
        let mut top =
            writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: setup.page_size }).unwrap();
        for (cpu, pages) in cpus {
            top.write_cpu(*cpu, pages.as_slice()).unwrap();
        }
        top.finish().unwrap();
        writer.finish().unwrap();
        self.path(name)
    }
}

/// Runs stock trace-cmd. Neither its exit code nor what it prints is looked at.
pub(crate) fn run(args: &[&str]) -> Output {
    Command::new("trace-cmd").args(args).output().expect("trace-cmd is installed")
}

/// Runs stock trace-cmd and returns what it prints. It must exit with 0 and must not complain.
pub(crate) fn trace_cmd(args: &[&str]) -> String {
    let output = run(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "trace-cmd {args:?}: {}\n{stderr}", output.status);
    // Plugins are no matter of the file. `convert` and `split` tell their progress here; that version 6 has
    // no place for a description is said of every file. Options that stock tools do not know are skipped and
    // told: the checksums.
    let no_complaint = [
        "plugin",
        "data recorded at offset=",
        " bytes in size",
        "Cannot find description for buffer",
        "unknown option 21571",
    ];
    let harmless = |line: &str| no_complaint.iter().any(|part| line.contains(part));
    // A warning may come under a heading with whatever errno was left over.
    let lines: Vec<_> = stderr.lines().collect();
    let heads_harmless = |n: usize| {
        lines[n].starts_with("libtracecmd: ") && lines.get(n + 1).is_some_and(|next| harmless(next))
    };
    let complaints: Vec<_> =
        (0..lines.len()).filter(|n| !harmless(lines[*n]) && !heads_harmless(*n)).map(|n| lines[n]).collect();
    assert!(complaints.is_empty(), "trace-cmd {args:?}: {complaints:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Event lines of `report` with these options, without heading.
pub(crate) fn report(path: &Path, options: &[&str]) -> Vec<String> {
    let mut args = vec!["report", "-i", str(path)];
    args.extend_from_slice(options);
    let is_event =
        |line: &&str| !line.starts_with("cpus=") && !line.starts_with("version") && !line.trim().is_empty();
    trace_cmd(&args).lines().filter(is_event).map(str::to_owned).collect()
}

/// `line` with every run of blanks as one.
pub(crate) fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The event lines, squeezed.
pub(crate) fn squeezed(path: &Path, options: &[&str]) -> Vec<String> {
    report(path, options).iter().map(|line| squeeze(line)).collect()
}
