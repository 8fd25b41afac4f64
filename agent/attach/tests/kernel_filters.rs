//! Filters in the kernel against the same filters in user space, on records made at random. Needs root, and
//! fails without.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail as its own lines do")]

use std::fmt::Write as _;

use attach::trial::Trial;
use compile::filter::{Facts, Program, Uncompiled};
use ftrace_event::EventTable;
use ftrace_event::filter::{Context, Dialect, Filter, Origin, ResolveOptions, Tasks};
use ftrace_event::record::Machine;
use ftrace_event::symbols::{NoNames, NoSymbols};
use kernel::btf::Btf;
use spec::TraceClock;

const FILTERS: usize = 300;
const RECORDS: usize = 60;
const ID: u16 = 77;
/// Where dynamic data starts.
const FIXED: usize = 88;

/// Every kind of field: sizes, signs, places that are no multiples of the size, arrays and all kinds of
/// dynamic data.
const FORMAT: &str = "name: odd
ID: 77
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:u8 u1;\toffset:8;\tsize:1;\tsigned:0;
\tfield:s8 s1;\toffset:9;\tsize:1;\tsigned:1;
\tfield:u16 u2;\toffset:10;\tsize:2;\tsigned:0;
\tfield:s16 s2;\toffset:13;\tsize:2;\tsigned:1;
\tfield:u32 u4;\toffset:17;\tsize:4;\tsigned:0;
\tfield:int s4;\toffset:24;\tsize:4;\tsigned:1;
\tfield:u64 u8;\toffset:32;\tsize:8;\tsigned:0;
\tfield:s64 s8;\toffset:43;\tsize:8;\tsigned:1;
\tfield:char five[5];\toffset:51;\tsize:5;\tsigned:0;
\tfield:char name[16];\toffset:56;\tsize:16;\tsigned:0;
\tfield:__data_loc char[] text;\toffset:72;\tsize:4;\tsigned:0;
\tfield:__rel_loc char[] near;\toffset:76;\tsize:4;\tsigned:0;
\tfield:__data_loc cpumask_t mask;\toffset:80;\tsize:4;\tsigned:0;
\tfield:u32 cpu;\toffset:84;\tsize:4;\tsigned:0;

print fmt: \"\"
";

const NUMBERS: [(&str, bool); 9] = [
    ("u1", false),
    ("s1", true),
    ("u2", false),
    ("s2", true),
    ("u4", false),
    ("s4", true),
    ("u8", false),
    ("s8", true),
    ("cpu", false),
];
const TEXTS: [&str; 4] = ["five", "name", "text", "near"];

/// Marsaglia's xorshift: the same filters in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Numbers near those where something changes.
    fn number(&mut self) -> u64 {
        let near = self.one(&[0, 1, 7, 100, 127, 128, 255, 32_767, 65_535, 1 << 31, 1 << 32, 1 << 63]);
        let base: u64 = if self.below(6) == 0 { self.0 } else { near };
        base.wrapping_add(self.below(5)).wrapping_sub(2)
    }

    /// A text of few letters, so that patterns describe some of them.
    fn text(&mut self, longest: u64) -> String {
        (0..self.below(longest + 1)).map(|_| self.one(&['a', 'b', '/', 'c'])).collect()
    }

    fn filter(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.comparison();
        }
        match self.below(7) {
            0 | 1 => format!("({} && {})", self.filter(depth - 1), self.filter(depth - 1)),
            2 | 3 => format!("({} || {})", self.filter(depth - 1), self.filter(depth - 1)),
            4 => format!("!({})", self.filter(depth - 1)),
            _ => self.comparison(),
        }
    }

    fn comparison(&mut self) -> String {
        let equality = self.one(&["==", "!="]);
        match self.below(12) {
            0..=3 => {
                let (field, signed) = self.one(&NUMBERS);
                let op = self.one(&["==", "!=", "<", "<=", ">", ">="]);
                let number = self.number();
                let negative = signed && self.below(3) == 0;
                let number = if negative { format!("-{}", number >> 1) } else { number.to_string() };
                format!("{field} {op} {number}")
            }
            4 => format!(
                "({}) {} ({})",
                self.arithmetic(3),
                self.one(&["<", ">=", "==", "!="]),
                self.arithmetic(2)
            ),
            5 => format!("{} & {}", self.one(&NUMBERS).0, self.number()),
            6 => format!("{} {equality} \"{}\"", self.one(&TEXTS), self.text(6)),
            7 | 8 => format!("{} ~ \"{}\"", self.one(&TEXTS), self.pattern()),
            9 => format!("{} {equality} {}", self.one(&TEXTS), self.one(&["name", "five", "text", "COMM"])),
            10 => {
                let list = self.one(&["0", "1-3", "0,2-5,63-65", "1,3,5", "127", "700-2000"]);
                format!("{} {} CPUS{{{list}}}", self.one(&["mask", "cpu"]), self.one(&["==", "!=", "&"]))
            }
            _ => {
                let context =
                    ["$pid != 1", "$tid == common_pid", "$uid == 0", "COMM ~ \"*filters*\"", "$pid < $tid"];
                self.one(&context).to_owned()
            }
        }
    }

    fn arithmetic(&mut self, depth: u32) -> String {
        match self.below(if depth == 0 { 2 } else { 6 }) {
            0 => self.one(&NUMBERS).0.to_owned(),
            1 => self.number().to_string(),
            2 => format!("-{}", self.one(&NUMBERS).0),
            3 => format!("~{}", self.one(&NUMBERS).0),
            _ => {
                let op = self.one(&["+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^"]);
                format!("({} {op} {})", self.arithmetic(depth - 1), self.arithmetic(depth - 1))
            }
        }
    }

    fn pattern(&mut self) -> String {
        let mut pattern = String::new();
        for _ in 0..=self.below(5) {
            let part = self.one(&["a", "b", "*", "?", "[ab]", "[!a]", "[a-c]", "/", "*", "!", "\\\\*"]);
            // In front it means the opposite, which is meant now and then.
            if part != "!" || pattern.is_empty() {
                pattern.push_str(part);
            }
        }
        pattern
    }

    fn record(&mut self) -> Vec<u8> {
        let mut record = vec![0; FIXED];
        record[0..2].copy_from_slice(&ID.to_le_bytes());
        record[4..8].copy_from_slice(&tid().to_le_bytes());
        for (at, size) in [(8, 1), (9, 1), (10, 2), (13, 2), (17, 4), (24, 4), (32, 8), (43, 8)] {
            record[at..at + size].copy_from_slice(&self.number().to_le_bytes()[..size]);
        }
        record[84..88].copy_from_slice(&(self.below(70) as u32).to_le_bytes());
        for (at, size) in [(51, 5), (56, 16)] {
            let text = self.text(size);
            record[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        for (at, base) in [(72, 0), (76, 80)] {
            let mut text = self.text(20).into_bytes();
            text.push(0);
            let place = (record.len() - base) | text.len() << 16;
            record[at..at + 4].copy_from_slice(&(place as u32).to_le_bytes());
            record.extend(text);
        }
        record.resize(record.len().next_multiple_of(8), 0);
        let place = record.len() | 16 << 16;
        record[80..84].copy_from_slice(&(place as u32).to_le_bytes());
        let masks = [0_u64, 1, 0xe, 0x2a, 1 << 63 | 0x3d];
        record.extend(self.one(&masks).to_le_bytes());
        record.extend(self.one(&[0_u64, 0, 3, 1 << 63]).to_le_bytes());
        record
    }
}

fn tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// This thread, as the kernel sees it.
struct Current(Vec<u8>);

impl Tasks for Current {
    fn comm(&self, _: u32) -> Option<&[u8]> {
        Some(&self.0)
    }

    fn number(&self, tid: u32, context: Context) -> Option<u64> {
        match context {
            Context::Pid => Some(std::process::id().into()),
            Context::Tid => Some(tid.into()),
            Context::Uid => Some(rustix::process::getuid().as_raw().into()),
            _ => None,
        }
    }
}

fn table() -> EventTable {
    let mut table = EventTable::new(Machine::default());
    table.add("test", FORMAT, &NoNames).unwrap();
    table
}

fn facts() -> Facts {
    Facts::new(TraceClock::Mono, Btf::of_kernel().ok().as_ref())
}

fn compile(text: &str) -> Result<Program, Uncompiled> {
    let filter = Filter::parse_expression(text, Dialect::Ftrace).unwrap();
    let options = ResolveOptions { live: true, ..ResolveOptions::default() };
    let resolved = filter.resolve(&table(), options).unwrap_or_else(|error| panic!("{error}"));
    Program::compile(resolved.test(ID).unwrap(), ID, &facts())
}

#[test]
fn the_kernel_takes_the_records_that_user_space_takes() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (table, facts) = (table(), facts());
    let comm = std::fs::read("/proc/thread-self/comm").unwrap();
    let current = Current(comm.strip_suffix(b"\n").unwrap_or(&comm).to_vec());
    let (mut taken, mut left, mut different) = (0, 0, String::new());
    for _ in 0..FILTERS {
        let text = random.filter(2);
        let filter =
            Filter::parse_expression(&text, Dialect::Ftrace).unwrap_or_else(|error| panic!("{error}"));
        let options = ResolveOptions { live: true, ..ResolveOptions::default() };
        let resolved = filter.resolve(&table, options).unwrap_or_else(|error| panic!("{error}"));
        let program = Program::compile(resolved.test(ID).unwrap(), ID, &facts)
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let trial = Trial::load(&program).unwrap_or_else(|error| panic!("{text}: {error}"));
        for _ in 0..RECORDS {
            let record = random.record();
            let origin = Origin { cpu: 0, timestamp: 0, tasks: &current, symbols: &NoSymbols };
            let expected = resolved.matches(ID, &record, &origin);
            let found = trial.takes(&record).unwrap();
            if found != expected {
                let _ = writeln!(different, "{text}: the kernel says {found} of {record:02x?}");
                break;
            }
            taken += usize::from(found);
            left += usize::from(!found);
        }
    }
    assert!(different.is_empty(), "{different}");
    assert!(taken > FILTERS * RECORDS / 10 && left > FILTERS * RECORDS / 10, "{taken} and {left}");
}

#[test]
fn what_the_kernel_cannot_evaluate_is_named() {
    assert_eq!(compile("name =~ \"a.*\""), Err(Uncompiled::Regex));
    assert_eq!(compile("u8.function == \"schedule\""), Err(Uncompiled::Function));
    assert_eq!(compile("common_flags & 1"), Err(Uncompiled::Common("common_flags")));
    assert!(matches!(compile(&format!("name ~ \"{}*x\"", "a?".repeat(40))), Err(Uncompiled::Pattern(_))));
    let nested = format!("{}u1{} == 5", "(u2 - ".repeat(20), ")".repeat(20));
    assert!(matches!(compile(&nested), Err(Uncompiled::TooDeep(_))));
    let filter = Filter::parse_expression("$ppid == 1", Dialect::Ftrace).unwrap();
    let resolved =
        filter.resolve(&table(), ResolveOptions { live: true, ..ResolveOptions::default() }).unwrap();
    let without_btf = Facts::new(TraceClock::Mono, None);
    let compiled = Program::compile(resolved.test(ID).unwrap(), ID, &without_btf);
    assert_eq!(compiled, Err(Uncompiled::NoType("ppid")));
}

#[test]
fn threads_are_told_by_the_kernel() {
    let mut random = Random(5);
    let parent = std::os::unix::process::parent_id();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap().to_string_lossy().into_owned();
    let namespace = namespace.trim_start_matches("pid:[").trim_end_matches(']').to_owned();
    let record = random.record();
    for (filter, expected) in [
        (format!("$ppid == {parent} && $pidns == {namespace}"), true),
        (format!("$ppid != {parent} || $pidns != {namespace}"), false),
        ("$cpu < 4096 && $timestamp > 0 && common_type == 77".to_owned(), true),
        ("$cgroup > 0".to_owned(), true),
    ] {
        let trial = Trial::load(&compile(&filter).unwrap()).unwrap();
        assert_eq!(trial.takes(&record).unwrap(), expected, "{filter}");
    }
}
