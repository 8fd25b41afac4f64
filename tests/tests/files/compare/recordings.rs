//! Recordings that nobody made, each the same in every run: all kinds of fields, probes, stacks, buffers,
//! losses, times and names.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use ftrace_event::{Array, Cmdlines, Field, Format, Location};
use integration_tests::hostile::TEXTS;
use integration_tests::made_up::{CpuPages, ENDIAN, PAGE};
use tracedat::layout::header_page_text;
use tracedat::ledger::{Ledger, LedgerCpu, LedgerEvent, Losses};
use tracedat::reader::Reader;
use tracedat::{Buffer, Compression, EventSystem, FileOption, OptionId, Section, Setup, Writer};

/// Makes a recording.
type Make = fn() -> Crafted;

/// All of them, by name.
pub(crate) const RECORDINGS: [(&str, Make); 11] = [
    ("fields", fields),
    ("probes", probes),
    ("stacks", stacks),
    ("buffers", buffers),
    ("overwritten", overwritten),
    ("lossy", lossy),
    ("empty", empty),
    ("times", times),
    ("names", names),
    ("machine", machine),
    ("lossy machine", lossy_machine),
];

/// The name of a recording that was rotated, which is merged of two archives.
pub(crate) const ROTATED: &str = "rotated";

/// The names of all of them.
pub(crate) fn all_names() -> impl Iterator<Item = &'static str> {
    RECORDINGS.iter().map(|(name, _)| *name).chain([ROTATED])
}

/// How many threads with a name one of them has.
pub(crate) fn thread_count(name: &str) -> u64 {
    let made = RECORDINGS.iter().find(|(other, _)| *other == name).map_or_else(plain, |(_, make)| make());
    made.threads.iter().count() as u64
}

/// Those that analyses have something to say of.
pub(crate) const MACHINES: [(&str, Make); 3] =
    [("stacks", stacks), ("machine", machine), ("lossy machine", lossy_machine)];

/// What makes wall time of the clock.
pub(crate) const WALL: i64 = 1_700_000_000_000_000_000;

/// The system of events that no kernel has.
pub(crate) const OWN: &str = "made";

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

const HEADER_EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits
\tarray       :   32 bits\n\n\tpadding     : type == 29\n\ttime_extend : type == 30
\ttime_stamp : type == 31\n\tdata max type_len  == 28\n";

const SYMBOLS: &str = "ffffffff81000000 T _stext\nffffffff81001000 T do_one\nffffffff81002000 t do_two
ffffffff81003000 T kfree\nffffffff81004000 T schedule\nffffffff81005000 T __traceiter_sched_switch
ffffffff81006000 T tick_nohz_handler\nffffffff81007000 T asm_sysvec_apic_timer_interrupt
ffffffff81008000 T io_schedule\nffffffff81009000 T do_sys_poll\nffffffff8100a000 t rcu_gp_kthread
ffffffff82000000 T _etext\n";

/// Addresses in these functions.
const IN_SCHEDULE: u64 = 0xffff_ffff_8100_4010;
const IN_TICK: u64 = 0xffff_ffff_8100_6000;
const IN_INTERRUPT: u64 = 0xffff_ffff_8100_7010;
const IN_DISK: u64 = 0xffff_ffff_8100_8010;
const IN_POLL: u64 = 0xffff_ffff_8100_9010;
const IN_RCU: u64 = 0xffff_ffff_8100_a010;

/// The value of a field.
#[derive(Clone, Debug)]
pub(crate) enum Is {
    /// An integer.
    Number(i128),
    /// A text, which gets its NUL.
    Text(Vec<u8>),
    /// The bytes of it.
    Bytes(Vec<u8>),
}

impl From<i128> for Is {
    fn from(number: i128) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Is {
    fn from(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Is {
    fn from(text: &[u8]) -> Self {
        Self::Text(text.to_vec())
    }
}

/// Elements of an array.
fn words<const N: usize>(elements: impl IntoIterator<Item = [u8; N]>) -> Is {
    Is::Bytes(elements.into_iter().flatten().collect())
}

#[derive(Clone, Debug)]
struct Event {
    system: String,
    format: Format,
    text: String,
}

/// A recording that is being made.
#[derive(Clone, Debug)]
pub(crate) struct Crafted {
    events: BTreeMap<u16, Event>,
    buffers: Vec<(String, BTreeMap<u32, CpuPages>)>,
    threads: Cmdlines,
    printk: &'static str,
    ledger: Option<Ledger>,
    clock: &'static str,
}

impl Crafted {
    fn new() -> Self {
        let mut threads = Cmdlines::new();
        for (tid, name) in [(10_u32, "t10"), (11, "t11"), (12, "t12")] {
            threads.insert(tid, name.as_bytes());
        }
        let buffers = vec![(String::new(), BTreeMap::new())];
        let mut crafted =
            Self { events: BTreeMap::new(), buffers, threads, printk: "", ledger: None, clock: "mono" };
        crafted.kernel(&["kernel_stack", "user_stack", "print", "bprint", "bputs"]);
        crafted
    }

    /// Describes events as the kernel of a stored recording does.
    fn kernel(&mut self, names: &[&str]) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/k6.12-all-mono.dat");
        let reader = Reader::open(File::open(path).unwrap()).unwrap();
        for event in reader.metadata().events() {
            let Ok(format) = Format::parse(event.format) else { continue };
            if names.contains(&&*format.name) {
                let (system, text) = (event.system.to_owned(), event.format.to_owned());
                self.events.insert(format.id, Event { system, format, text });
            }
        }
    }

    /// Describes an event. Fields are declarations, their bytes, and whether they have a sign.
    fn describe(&mut self, system: &str, id: u16, name: &str, fields: &[(&str, u32, bool)], print_fmt: &str) {
        let (mut text, mut at) = (format!("name: {name}\nID: {id}\nformat:\n{COMMON}\n"), 8_u32);
        for (declaration, size, signed) in fields {
            let is_array = declaration.contains('[') && !declaration.contains("_loc");
            let align = if is_array { 8 } else { (*size).min(8) };
            at = at.next_multiple_of(align.max(1));
            let signed = u8::from(*signed);
            text += &format!("\tfield:{declaration};\toffset:{at};\tsize:{size};\tsigned:{signed};\n");
            at += size;
        }
        text += &format!("\nprint fmt: {print_fmt}\n");
        let format = Format::parse(&text).unwrap();
        self.events.insert(id, Event { system: system.to_owned(), format, text });
    }

    /// Later records are in this buffer.
    fn buffer(&mut self, name: &str) {
        self.buffers.push((name.to_owned(), BTreeMap::new()));
    }

    fn cpu(&mut self, cpu: u32) -> &mut CpuPages {
        self.buffers.last_mut().unwrap().1.entry(cpu).or_default()
    }

    /// A record. Fields that are not named are 0.
    fn at(&mut self, (time, cpu): (u64, u32), tid: i32, event: &str, fields: &[(&str, Is)]) {
        let found = self.events.values().find(|other| other.format.name == event);
        let record = record(&found.unwrap_or_else(|| panic!("no event {event}")).format, tid, fields);
        self.cpu(cpu).push(time, &record);
    }

    /// The stack of the kernel behind an event, which takes its time.
    fn stack(&mut self, (time, cpu): (u64, u32), tid: i32, frames: &[u64]) {
        // The kernel fills its array of eight.
        let caller =
            words(frames.iter().chain(&[u64::MAX; 8]).take(frames.len().max(8)).map(|f| f.to_le_bytes()));
        let size = Is::Number(frames.len().max(8) as i128);
        self.at((time + 3, cpu), tid, "kernel_stack", &[("size", size), ("caller", caller)]);
    }

    /// The stack of a process behind an event, later than that of the kernel.
    fn user_stack(&mut self, (time, cpu): (u64, u32), tid: i32, frames: &[u64]) {
        let caller = words(frames.iter().chain(&[0; 8]).take(8).map(|frame| frame.to_le_bytes()));
        self.at((time + 9, cpu), tid, "user_stack", &[("tgid", Is::Number(tid.into())), ("caller", caller)]);
    }

    /// Events of a CPU are lost here; 0 if it is not known how many.
    fn lost(&mut self, cpu: u32, count: u64) {
        self.cpu(cpu).missed(count);
    }

    /// `sched_switch` from a thread with a state to another one.
    fn switch(&mut self, at: (u64, u32), (prev, state): (i32, i128), next: i32) {
        let name = |tid: i32| Is::Text(if tid == 0 { "swapper/0".into() } else { format!("t{tid}").into() });
        let fields = [
            ("prev_comm", name(prev)),
            ("prev_pid", Is::Number(prev.into())),
            ("prev_prio", Is::Number(120)),
            ("prev_state", Is::Number(state)),
            ("next_comm", name(next)),
            ("next_pid", Is::Number(next.into())),
            ("next_prio", Is::Number(120)),
        ];
        self.at(at, prev, "sched_switch", &fields);
    }

    /// A ledger whose rows have what is in the file, and `lost` more on each CPU of each buffer.
    fn ledger(&mut self, lost: &[(&str, u32, u64)]) -> &mut Ledger {
        let mut cpus = Vec::new();
        for (channel, of) in &mut self.buffers {
            for (cpu, made) in of {
                made.end_page();
                let mut stored = 0;
                for page in made.pages().chunks(PAGE as usize) {
                    tracedat::page::each_record(page, ENDIAN, |_| stored += 1);
                }
                cpus.push(LedgerCpu {
                    channel: channel.clone(),
                    cpu: *cpu,
                    recorded: Some(stored),
                    stored: Some(stored),
                    ..LedgerCpu::default()
                });
            }
        }
        for (channel, cpu, count) in lost {
            let count = Losses(vec![("ring_full".to_owned(), *count)]);
            match cpus.iter_mut().find(|row| row.channel == *channel && row.cpu == *cpu) {
                Some(row) => row.lost = count,
                None => cpus.push(LedgerCpu {
                    channel: (*channel).to_owned(),
                    cpu: *cpu,
                    stored: Some(0),
                    lost: count,
                    ..LedgerCpu::default()
                }),
            }
        }
        let clock = Some(self.clock.to_owned());
        let (realtime_offset_ns, realtime_uncertainty_ns) = (Some(WALL), Some(100));
        let ledger = Ledger {
            version: 3,
            clock,
            realtime_offset_ns,
            realtime_uncertainty_ns,
            cpus,
            ..Ledger::default()
        };
        self.ledger.insert(ledger)
    }

    /// Writes it.
    pub(crate) fn write(mut self, path: &Path) {
        let setup = Setup { endian: ENDIAN, page_size: PAGE, compression: Compression::None };
        let file = File::options().create_new(true).read(true).write(true).open(path).unwrap();
        let mut writer = Writer::create(file, setup).unwrap();
        let header = Section::header_info(ENDIAN, &header_page_text(PAGE), HEADER_EVENT);
        writer.section(header.unwrap()).unwrap();
        let mut systems: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for event in self.events.values() {
            systems.entry(&event.system).or_default().push(&event.text);
        }
        let ftrace = systems.remove("ftrace").unwrap_or_default();
        writer.section(Section::ftrace_events(ENDIAN, &ftrace).unwrap()).unwrap();
        let systems: Vec<_> =
            systems.iter().map(|(name, formats)| EventSystem { name, formats: formats.as_slice() }).collect();
        writer.section(Section::event_formats(ENDIAN, &systems).unwrap()).unwrap();
        writer.section(Section::kallsyms(ENDIAN, SYMBOLS.as_bytes()).unwrap()).unwrap();
        writer.section(Section::printk(ENDIAN, self.printk.as_bytes()).unwrap()).unwrap();
        writer.section(Section::cmdlines(ENDIAN, &self.threads)).unwrap();
        for option in [
            FileOption::TraceClock(format!("local [{}]", self.clock)),
            FileOption::Uname("Linux made 6.12.0-made x86_64".to_owned()),
            FileOption::Version("1".to_owned()),
            FileOption::TraceId(0x1234_5678),
            FileOption::CpuCount(4),
        ] {
            writer.option(&option).unwrap();
        }
        if let Some(ledger) = &self.ledger {
            let bytes = ledger.to_bytes();
            writer.option(&FileOption::Unknown { id: OptionId::LEDGER, bytes }).unwrap();
        }
        for (name, cpus) in &mut self.buffers {
            let mut buffer =
                writer.begin_buffer(Buffer { name, clock: self.clock, page_size: PAGE }).unwrap();
            for (cpu, made) in cpus {
                made.end_page();
                buffer.write_cpu(*cpu, made.pages()).unwrap();
            }
            buffer.finish().unwrap();
        }
        writer.finish().unwrap();
    }
}

/// A record of an event.
fn record(format: &Format, tid: i32, values: &[(&str, Is)]) -> Vec<u8> {
    let all = || format.common.iter().chain(&format.fields);
    let len = all().map(|field| field.offset + field.size).max().unwrap() as usize;
    let mut record = vec![0; len];
    let common = [
        ("common_type", Is::Number(format.id.into())),
        // Interrupts are off, and now and then another thread is due.
        ("common_flags", Is::Number(1 | i128::from(tid % 2) << 2)),
        ("common_preempt_count", Is::Number(1 + i128::from(tid % 3))),
        ("common_pid", Is::Number(tid.into())),
    ];
    for (name, value) in common.iter().chain(values) {
        let field = all().find(|field| field.name == *name);
        let field = field.unwrap_or_else(|| panic!("{} has no {name}", format.name));
        put(&mut record, field, value);
    }
    record
}

fn put(record: &mut Vec<u8>, field: &Field, value: &Is) {
    let place = field.offset as usize..(field.offset + field.size) as usize;
    let mut bytes = match value {
        Is::Number(number) => number.to_le_bytes()[..place.len()].to_vec(),
        Is::Text(text) => [text, &[0][..]].concat(),
        Is::Bytes(bytes) => bytes.clone(),
    };
    let is_open = field.array == Array::Open || field.name == "caller";
    match field.location {
        Location::Inline if is_open => {
            record.truncate(place.start);
            record.append(&mut bytes);
        }
        Location::Inline => {
            bytes.resize(place.len(), 0);
            record[place].copy_from_slice(&bytes);
        }
        Location::DataLoc | Location::RelLoc => {
            let from = if field.location == Location::RelLoc { place.end } else { 0 };
            let word = (record.len() - from) as u32 | (bytes.len() as u32) << 16;
            record[place].copy_from_slice(&word.to_le_bytes());
            record.append(&mut bytes);
        }
    }
}

/// An event with a number and a text, for recordings that are about something else.
fn plain() -> Crafted {
    let mut crafted = Crafted::new();
    let fields = [("u64 number", 8, false), ("__data_loc char[] text", 4, false)];
    crafted.describe(OWN, 500, "plain", &fields, "\"number=%llu text=%s\", REC->number, __get_str(text)");
    crafted
}

fn number(number: i128) -> [(&'static str, Is); 2] {
    [("number", Is::Number(number)), ("text", format!("n{number}").as_str().into())]
}

/// All types of fields, with the ends of their ranges.
fn fields() -> Crafted {
    let mut crafted = Crafted::new();
    let integers = [
        ("u8 u8", 1, false),
        ("s8 s8", 1, true),
        ("bool flag", 1, false),
        ("u16 u16", 2, false),
        ("s16 s16", 2, true),
        ("u32 u32", 4, false),
        ("int s32", 4, true),
        ("u64 u64", 8, false),
        ("long s64", 8, true),
        ("size_t size", 8, false),
    ];
    let text = "\"u8=%u s8=%d flag=%d u16=%u s16=%d u32=%u s32=%d u64=%llu s64=%lld size=%zu\", REC->u8, REC->s8, \
        REC->flag, REC->u16, REC->s16, REC->u32, REC->s32, REC->u64, REC->s64, REC->size";
    crafted.describe(OWN, 501, "integers", &integers, text);
    let arrays = [
        ("char name[16]", 16, false),
        ("__u8 uuid[16]", 16, false),
        ("s16 shorts[4]", 8, true),
        ("u32 words[3]", 12, false),
        ("u64 longs[2]", 16, false),
        ("s8 bytes[3]", 3, true),
    ];
    let text = "\"name=%s uuid=%pU\", REC->name, REC->uuid";
    crafted.describe(OWN, 502, "arrays", &arrays, text);
    let dynamic = [
        ("__data_loc char[] text", 4, false),
        ("__rel_loc char[] relative", 4, false),
        ("__data_loc u8[] octets", 4, false),
        ("__data_loc u16[] shorts", 4, false),
        ("__data_loc s64[] longs", 4, true),
        ("__rel_loc u32[] words", 4, false),
    ];
    let text = "\"text=%s relative=%s octets=%s\", __get_str(text), __get_rel_str(relative), \
        __print_hex(__get_dynamic_array(octets), __get_dynamic_array_len(octets))";
    crafted.describe(OWN, 503, "dynamic", &dynamic, text);
    let named = [
        ("void * place", 8, false),
        ("unsigned long function", 8, false),
        ("int kind", 4, true),
        ("unsigned long bits", 8, false),
        ("__data_loc cpumask_t cpus", 4, false),
        ("__data_loc unsigned long mask", 4, false),
    ];
    let text = "\"place=%p function=%pS kind=%s bits=%s cpus=%s mask=%s\", REC->place, (void *)REC->function, \
        __print_symbolic(REC->kind, { 0, \"none\" }, { 1, \"one\" }, { -1, \"minus\" }), \
        __print_flags(REC->bits, \"|\", { 1, \"A\" }, { 2, \"B\" }, { 0x80000000, \"HIGH\" }), \
        __get_bitmask(cpus), __get_bitmask(mask)";
    crafted.describe(OWN, 504, "named", &named, text);
    let mut time = 1_000;
    let mut next = || {
        time += 1_000;
        (time, 0)
    };
    let ends: [[i128; 10]; 3] = [
        [0; 10],
        [
            0xff,
            -0x80,
            1,
            0xffff,
            -0x8000,
            0xffff_ffff,
            i32::MIN.into(),
            u64::MAX.into(),
            i64::MIN.into(),
            u64::MAX.into(),
        ],
        [1, 0x7f, 1, 0x8000, 0x7fff, 0x8000_0000, i32::MAX.into(), 1 << 63, i64::MAX.into(), (1 << 53) + 1],
    ];
    let names = ["u8", "s8", "flag", "u16", "s16", "u32", "s32", "u64", "s64", "size"];
    for values in ends {
        let fields: Vec<_> = names.into_iter().zip(values.map(Is::Number)).collect();
        crafted.at(next(), 10, "integers", &fields);
    }
    for (text, fill) in [("", 0_u8), ("sixteen bytes go", 0xff), ("a \"b\" \\c", 0x41)] {
        let (short, word) = (i16::from_le_bytes([fill, 0x80]), u32::from_le_bytes([fill; 4]));
        let fields = [
            // Without room for a NUL.
            ("name", Is::Bytes(text.as_bytes().to_vec())),
            ("uuid", Is::Bytes((0..16).map(|byte| byte ^ fill).collect())),
            ("shorts", words([short, i16::MIN, i16::MAX, -1].map(i16::to_le_bytes))),
            ("words", words([word, 0, u32::MAX].map(u32::to_le_bytes))),
            ("longs", words([u64::from(word), u64::MAX].map(u64::to_le_bytes))),
            ("bytes", Is::Bytes(vec![fill, 0x80, 0x7f])),
        ];
        crafted.at(next(), 10, "arrays", &fields);
    }
    for (text, count) in [("", 0), ("x", 1), ("text with = and , and ;", 5)] {
        let fields = [
            ("text", text.into()),
            ("relative", format!("rel {text}").as_str().into()),
            ("octets", Is::Bytes((0..count).map(|n| 0xf0 + n as u8).collect())),
            ("shorts", words((0..count).map(|n| (0xfffe + n as u16 % 2).to_le_bytes()))),
            ("longs", words((0..count).map(|n| (i64::MIN + n).to_le_bytes()))),
            ("words", words((0..count).map(|n| (u32::MAX - n as u32).to_le_bytes()))),
        ];
        crafted.at(next(), 11, "dynamic", &fields);
    }
    for (kind, bits, mask) in
        [(0_i128, 0_i128, 0_u64), (1, 3, 1), (-1, 0x8000_0001, 0x8000_0000_0000_0005), (7, 4, u64::MAX)]
    {
        let fields = [
            ("place", Is::Number(0xffff_8880_0000_0000 + bits)),
            ("function", Is::Number(0xffff_ffff_8100_1010)),
            ("kind", Is::Number(kind)),
            ("bits", Is::Number(bits)),
            ("cpus", words([(mask & 0xff).to_le_bytes()])),
            ("mask", words([mask.to_le_bytes(), 2_u64.to_le_bytes()])),
        ];
        crafted.at(next(), 12, "named", &fields);
    }
    crafted.ledger(&[]);
    crafted
}

/// Events of kprobes and uprobes, beginning and returning.
fn probes() -> Crafted {
    let mut crafted = Crafted::new();
    let entry = [
        ("unsigned long __probe_ip", 8, false),
        ("s32 dfd", 4, true),
        ("__data_loc char[] path", 4, true),
        ("u64 flags", 8, false),
        ("u8 bytes[4]", 4, false),
    ];
    let text = "\"(%lx) dfd=%d path=\\\"%s\\\" flags=0x%Lx\", REC->__probe_ip, REC->dfd, __get_str(path), REC->flags";
    crafted.describe("kprobes", 600, "opens", &entry, text);
    let back = [
        ("unsigned long __probe_func", 8, false),
        ("unsigned long __probe_ret_ip", 8, false),
        ("s32 ret", 4, true),
    ];
    let text = "\"(%lx <- %lx) ret=%d\", REC->__probe_func, REC->__probe_ret_ip, REC->ret";
    crafted.describe("uprobes", 601, "returns", &back, text);
    for turn in 0..4_u64 {
        let fields = [
            ("__probe_ip", Is::Number(0xffff_ffff_8100_1000)),
            ("dfd", Is::Number(-100)),
            ("path", format!("/tmp/file {turn}").as_str().into()),
            ("flags", Is::Number(i128::from(u64::MAX - turn))),
            ("bytes", Is::Bytes(vec![0, 1, 254, 255])),
        ];
        crafted.at((5_000 + turn * 1_000, 1), 10, "opens", &fields);
        let fields = [
            ("__probe_func", Is::Number(0x0040_1000)),
            ("__probe_ret_ip", Is::Number(0x7fff_1234_5678)),
            ("ret", Is::Number(-2)),
        ];
        crafted.at((5_500 + turn * 1_000, 1), 10, "returns", &fields);
    }
    crafted.ledger(&[]);
    crafted
}

/// Events with stacks of the kernel and of processes, and texts of `trace_printk` and `trace_marker`.
fn stacks() -> Crafted {
    let mut crafted = plain();
    crafted.kernel(&["sched_switch"]);
    crafted.printk = "0xffffffff82100000 : \"n=%d\"\n0xffffffff82100010 : \"whole\"\n";
    crafted.at((1_000, 0), 10, "plain", &number(1));
    crafted.stack((1_000, 0), 10, &[0xffff_ffff_8100_1010, 0xffff_ffff_8100_2020]);
    crafted.user_stack((1_000, 0), 10, &[0x0040_1000, 0x0040_1100]);
    crafted.at((2_000, 0), 10, "plain", &number(2));
    let deep: Vec<u64> = (0..20).map(|frame| 0xffff_ffff_8100_1000 + frame * 8).collect();
    crafted.stack((2_000, 0), 10, &deep);
    crafted.switch((3_000, 1), (10, 1), 11);
    crafted.stack((3_000, 1), 10, &[0xffff_ffff_8100_5000, 0xffff_ffff_8100_4010, 0xffff_ffff_8100_1018]);
    crafted.switch((4_000, 1), (11, 0), 10);
    crafted.stack((4_000, 1), 11, &[0xffff_ffff_8100_4020]);
    crafted.at((5_000, 1), 10, "plain", &number(3));
    let at = ("ip", Is::Number(0xffff_ffff_8100_1000));
    crafted.at((6_000, 0), 10, "print", &[at.clone(), ("buf", "a marker\n".into())]);
    let fmt = ("fmt", Is::Number(0xffff_ffff_8210_0000));
    crafted.at(
        (7_000, 0),
        10,
        "bprint",
        &[at.clone(), fmt, ("buf", Is::Bytes(7_u32.to_le_bytes().to_vec()))],
    );
    crafted.at((8_000, 0), 10, "bputs", &[at, ("str", Is::Number(0xffff_ffff_8210_0010))]);
    crafted.ledger(&[]);
    crafted
}

/// Three buffers with contexts, filters, rates and a scope.
fn buffers() -> Crafted {
    let mut crafted = plain();
    let fields = [("u64 number", 8, false), ("u32 ctx_uid", 4, false), ("char ctx_comm[16]", 16, false)];
    let text = "\"number=%llu ctx_uid=%u ctx_comm=%s\", REC->number, REC->ctx_uid, REC->ctx_comm";
    crafted.describe(OWN, 505, "known", &fields, text);
    for turn in 0..5_u64 {
        crafted.at((1_000 + turn * 100, (turn % 2) as u32), 10, "plain", &number(turn.into()));
    }
    crafted.buffer("second");
    for turn in 0..5_u64 {
        let fields = [
            ("number", Is::Number(turn.into())),
            ("ctx_uid", Is::Number(i128::from(u32::MAX))),
            ("ctx_comm", "the name".into()),
        ];
        crafted.at((1_050 + turn * 100, 0), 11, "known", &fields);
    }
    crafted.lost(0, 9);
    crafted.at((2_000, 0), 11, "plain", &number(9));
    crafted.buffer("third");
    crafted.at((1_033, 3), 12, "plain", &number(3));
    let ledger = crafted.ledger(&[("second", 0, 9), ("third", 3, 4)]);
    ledger.only = vec!["CPUs 0-3".to_owned()];
    let of = |channel: &str, event: &str, id| LedgerEvent {
        channel: channel.to_owned(),
        event: event.to_owned(),
        id,
        lane: "generic".to_owned(),
        ..LedgerEvent::default()
    };
    ledger.events = Some(vec![
        LedgerEvent { recorded: 5, ..of("", "made:plain", 500) },
        LedgerEvent {
            recorded: 5,
            filter: Some("number < 5".to_owned()),
            filtered: 2,
            ..of("second", "made:known", 505)
        },
        LedgerEvent { recorded: 1, ..of("second", "made:plain", 500) },
        LedgerEvent { recorded: 1, sampled_out: 99, ..of("third", "made:plain", 500) },
    ]);
    crafted
}

/// A flight recorder: of one CPU the older events were overwritten.
fn overwritten() -> Crafted {
    let mut crafted = plain();
    for turn in 0..20_u64 {
        crafted.at((1_000_000 + turn * 1_000, (turn % 2) as u32), 10, "plain", &number(turn.into()));
    }
    let ledger = crafted.ledger(&[]);
    ledger.cpus[0].overwritten = Some(1_000);
    ledger.cpus[0].recorded = Some(1_010);
    ledger.cpus[1].overwritten = Some(0);
    crafted
}

/// Losses at the beginnings, in the middle and at the ends, and one of unknown size.
fn lossy() -> Crafted {
    let mut crafted = plain();
    crafted.lost(0, 7);
    for turn in 0..300_u64 {
        let cpu = (turn % 3) as u32;
        if turn == 30 {
            crafted.lost(0, 1_000_000);
        }
        if turn == 91 {
            crafted.lost(1, 0);
        }
        crafted.at((10_000 + turn * 10, cpu), 10 + (turn % 3) as i32, "plain", &number(turn.into()));
    }
    // Beside the marks, CPU 0 lost 3 at its end, CPU 2 all of 50 there, and CPU 3 all that it had.
    crafted.ledger(&[("", 0, 1_000_010), ("", 2, 50), ("", 3, 11)]);
    crafted
}

/// The archives of a recording that was rotated: the second one marks a loss that the first one has counted,
/// and one of its own.
pub(crate) fn rotated() -> [Crafted; 2] {
    let archive = |number: u64| {
        let mut crafted = plain();
        if number == 1 {
            crafted.lost(0, 12);
        }
        for turn in 0..20_u64 {
            if (number, turn) == (1, 10) {
                crafted.lost(1, 5);
            }
            let time = 1_000_000 + (number * 20 + turn) * 1_000;
            crafted.at((time, (turn % 2) as u32), 10, "plain", &number_of(number, turn));
        }
        crafted
    };
    let mut archives = [0, 1].map(archive);
    let _ = archives[0].ledger(&[("", 0, 12)]);
    let _ = archives[1].ledger(&[("", 1, 5)]);
    let second = archives[1].ledger.as_mut().unwrap();
    second.cpus[0].marked_before = 12;
    archives
}

fn number_of(archive: u64, turn: u64) -> [(&'static str, Is); 2] {
    number((archive * 100 + turn).into())
}

/// A recording in which nothing happened.
fn empty() -> Crafted {
    let mut crafted = plain();
    crafted.buffer("also");
    crafted.ledger(&[]);
    crafted
}

/// Times of 292 years, which is what signed nanoseconds have, equal ones, and long pauses.
fn times() -> Crafted {
    let mut crafted = plain();
    let last = 292 * 31_557_600 * 1_000_000_000;
    for (turn, time) in
        [0, 0, 1, 1 << 27, 1 << 40, 1 << 53, (1 << 53) + 1, last - 1, last].into_iter().enumerate()
    {
        crafted.at((time, 0), 10, "plain", &number(turn as i128));
    }
    crafted.at((1 << 41, 1), 11, "plain", &number(100));
    crafted
}

/// Threads with odd names, the idle one, and one without a name.
fn names() -> Crafted {
    let mut crafted = plain();
    let odd: [&[u8]; 6] = [b"<...>", b"x-12 [001] 1.5:", b" around ", b"swapper/0", b"12", b"a b"];
    let mut time = 1_000;
    for (name, tid) in odd.iter().copied().chain(TEXTS).zip(100_u32..) {
        crafted.threads.insert(tid, name);
        let name = name.to_vec();
        time += 100;
        let fields = [("number", Is::Number(tid.into())), ("text", Is::Text(name))];
        crafted.at((time, 0), tid as i32, "plain", &fields);
    }
    crafted.at((time + 100, 0), 0, "plain", &number(0));
    // Without a name.
    crafted.at((time + 200, 0), 99, "plain", &number(99));
    crafted.ledger(&[]);
    crafted
}

/// What a machine does: threads that take turns, calls, requests, interrupts, locks and memory.
fn machine() -> Crafted {
    let mut crafted = busy(0);
    crafted.ledger(&[]);
    crafted
}

/// The same with losses.
fn lossy_machine() -> Crafted {
    let mut crafted = busy(3);
    // Those of the marks, and more at the end of one CPU.
    let marked = 3 * 5;
    crafted.ledger(&[("", 0, marked), ("", 1, 17)]);
    crafted
}

/// A busy machine, which loses 5 events so many times.
fn busy(losses: u64) -> Crafted {
    let mut crafted = Crafted::new();
    crafted.kernel(&[
        "sched_switch",
        "sched_waking",
        "sched_wakeup",
        "sched_process_fork",
        "sched_process_exit",
        "sys_enter",
        "sys_exit",
        "block_rq_issue",
        "block_rq_complete",
        "irq_handler_entry",
        "irq_handler_exit",
        "softirq_raise",
        "softirq_entry",
        "softirq_exit",
        "contention_begin",
        "contention_end",
        "kmalloc",
        "kfree",
        "mm_page_alloc",
        "mm_page_free",
        "hrtimer_expire_entry",
    ]);
    let is = |number: u64| Is::Number(number.into());
    for turn in 0..12_u64 {
        let start = 1_000_000 + turn * 1_000_000;
        let at = |micros: u64, cpu: u32| (start + micros * 1_000, cpu);
        if losses != 0 && turn % 4 == 2 {
            crafted.lost(0, 5);
        }
        crafted.switch(at(10, 0), (0, 0), 20);
        crafted.at(
            at(20, 0),
            20,
            "sys_enter",
            &[("id", is(0)), ("args", words([3_u64, 4096, 100, 0, 0, 0].map(u64::to_le_bytes)))],
        );
        let request =
            [("dev", is(8 << 20)), ("sector", is(turn * 8)), ("nr_sector", is(8)), ("rwbs", "R".into())];
        let mut issue = request.to_vec();
        issue.extend([("bytes", is(4096)), ("comm", "t20".into()), ("cmd", "".into())]);
        crafted.at(at(30, 0), 20, "block_rq_issue", &issue);
        crafted.at(
            at(40, 0),
            20,
            "kmalloc",
            &[
                ("call_site", is(0xffff_ffff_8100_1010)),
                ("ptr", is(0xffff_8880_0000_0000 + turn * 64)),
                ("bytes_req", is(60)),
                ("bytes_alloc", is(64)),
            ],
        );
        crafted.at(at(45, 0), 20, "mm_page_alloc", &[("pfn", is(1000 + turn)), ("order", is(turn % 2))]);
        crafted.switch(at(50, 0), (20, 2), 21);
        crafted.stack(at(50, 0), 20, &[IN_SCHEDULE, IN_DISK, 0xffff_ffff_8100_1010]);
        crafted.at(
            at(60, 0),
            21,
            "contention_begin",
            &[("lock_addr", is(0xffff_8880_1000_0000)), ("flags", is(2))],
        );
        crafted.at(at(90, 0), 21, "contention_end", &[("lock_addr", is(0xffff_8880_1000_0000))]);
        let interrupt = [("irq", is(9)), ("name", "disk".into())];
        crafted.at(at(100, 0), 21, "irq_handler_entry", &interrupt);
        crafted.at(at(105, 0), 21, "block_rq_complete", &[&request[..], &[("cmd", "".into())]].concat());
        crafted.at(
            at(106, 0),
            21,
            "sched_waking",
            &[("comm", "t20".into()), ("pid", is(20)), ("prio", is(120))],
        );
        crafted.at(at(110, 0), 21, "irq_handler_exit", &[("irq", is(9)), ("ret", is(1))]);
        crafted.at(at(112, 0), 21, "softirq_raise", &[("vec", is(4))]);
        crafted.at(at(115, 0), 21, "softirq_entry", &[("vec", is(4))]);
        crafted.at(at(130, 0), 21, "softirq_exit", &[("vec", is(4))]);
        crafted.switch(at(150, 0), (21, 0), 20);
        crafted.stack(at(150, 0), 21, &[IN_SCHEDULE, 0xffff_ffff_8100_1010]);
        crafted.at(
            at(160, 0),
            20,
            "sys_exit",
            &[("id", is(0)), ("ret", Is::Number(if turn % 3 == 0 { -5 } else { 100 }))],
        );
        if turn % 2 == 0 {
            crafted.at(
                at(170, 0),
                20,
                "kfree",
                &[("call_site", is(0xffff_ffff_8100_2010)), ("ptr", is(0xffff_8880_0000_0000 + turn * 64))],
            );
            crafted.at(at(175, 0), 20, "mm_page_free", &[("pfn", is(1000 + turn)), ("order", is(turn % 2))]);
        }
        crafted.switch(at(200, 0), (20, 1), 0);
        crafted.stack(at(200, 0), 20, &[IN_SCHEDULE, IN_POLL]);
        crafted.switch(at(15, 1), (0, 0), 30);
        crafted.at(
            at(25, 1),
            30,
            "sched_waking",
            &[("comm", "t21".into()), ("pid", is(21)), ("prio", is(120))],
        );
        let timer = [("hrtimer", is(0xffff_8880_0000_1000)), ("now", is(start)), ("function", is(IN_TICK))];
        crafted.at(at(400, 1), 30, "hrtimer_expire_entry", &timer);
        crafted.stack(at(400, 1), 30, &[IN_TICK + 4, IN_INTERRUPT, 0xffff_ffff_8100_2010]);
        crafted.switch(at(700, 1), (30, 1), 0);
        crafted.stack(at(700, 1), 30, &[IN_SCHEDULE, IN_RCU]);
    }
    for (tid, name) in [(20_u32, "t20"), (21, "t21"), (30, "t30")] {
        crafted.threads.insert(tid, name.as_bytes());
    }
    crafted
}
