//! The lines of `report` are those of stock trace-cmd, of all recordings and with each way to print them, but
//! for the differences that docs/report.md lists.

use std::collections::BTreeSet;

use integration_tests::harness::{agent, program};
use integration_tests::stock_lines::comparable;

use super::exports::recording;
use super::recordings;
use super::truth::{event_of_line, printed_lines};

/// What docs/report.md says.
const REPORT: &str = include_str!("../../../../docs/report.md");

/// The ways to print, and what else we need for stock's letters of states.
const MODES: [(&str, &[&str]); 6] = [
    ("-t", &["--old-states"]),
    ("-R", &[]),
    ("-N", &[]),
    ("-l", &["--old-states"]),
    ("-w", &["--old-states"]),
    ("--ts-diff", &["--old-states"]),
];

/// A difference: the row of the table in docs/report.md, the event, and the text that stock prints of it and
/// the one that we print.
type Pair = (&'static str, &'static str, &'static str, &'static str);

const SIGNS: &str = "numbers of 8 and 16 bits with a sign";
const NEGATIVE: &str = "`__print_symbolic` and `__print_flags` of negative numbers";
const ARRAYS: &str = "arrays of bytes and texts with `-R`";
const BPRINT: &str = "`bprint` with `-R`";

const PAIRS: &[Pair] = &[
    (
        ARRAYS,
        "arrays",
        "name=a \"b\" \\c uuid=ARRAY[41, 40, 43, 42, 45, 44, 47, 46, 49, 48, 4b, 4a, 4d, 4c, \
         4f, 4e] shorts=ARRAY[41, 80, 00, 80, ff, 7f, ff, ff] words=ARRAY[41, 41, 41, 41, 00, \
         00, 00, 00, ff, ff, ff, ff] longs=ARRAY[41, 41, 41, 41, 00, 00, 00, 00, ff, ff, ff, ff, \
         ff, ff, ff, ff] bytes=ARRAY[41, 80, 7f]",
        "name=a \"b\" \\c uuid=A@CBEDGFIHKJMLON shorts=ARRAY[41, 80, 00, 80, ff, 7f, ff, ff] \
         words=ARRAY[41, 41, 41, 41, 00, 00, 00, 00, ff, ff, ff, ff] longs=ARRAY[41, 41, 41, 41, \
         00, 00, 00, 00, ff, ff, ff, ff, ff, ff, ff, ff] bytes=ARRAY[41, 80, 7f]",
    ),
    (
        ARRAYS,
        "arrays",
        "name=sixteen bytes \
         go\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\
         \u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd} \
         uuid=ARRAY[ff, fe, fd, fc, fb, fa, f9, f8, f7, f6, f5, f4, f3, f2, f1, f0] \
         shorts=ARRAY[ff, 80, 00, 80, ff, 7f, ff, ff] words=ARRAY[ff, ff, ff, ff, 00, 00, 00, \
         00, ff, ff, ff, ff] longs=ARRAY[ff, ff, ff, ff, 00, 00, 00, 00, ff, ff, ff, ff, ff, ff, \
         ff, ff] bytes=ARRAY[ff, 80, 7f]",
        "name=sixteen bytes go uuid=ARRAY[ff, fe, fd, fc, fb, fa, f9, f8, f7, f6, f5, f4, f3, \
         f2, f1, f0] shorts=ARRAY[ff, 80, 00, 80, ff, 7f, ff, ff] words=ARRAY[ff, ff, ff, ff, \
         00, 00, 00, 00, ff, ff, ff, ff] longs=ARRAY[ff, ff, ff, ff, 00, 00, 00, 00, ff, ff, ff, \
         ff, ff, ff, ff, ff] bytes=ARRAY[ff, 80, 7f]",
    ),
    (
        BPRINT,
        "bprint",
        "ip=0xffffffff81001000 fmt=0xffffffff82100000 buf=ARRAY[]",
        "ip=0xffffffff81001000 fmt=0xffffffff82100000 buf=n=7",
    ),
    (
        SIGNS,
        "integers",
        "u8=255 s8=128 flag=1 u16=65535 s16=32768 u32=4294967295 s32=-2147483648 \
         u64=18446744073709551615 s64=-9223372036854775808 size=18446744073709551615",
        "u8=255 s8=-128 flag=1 u16=65535 s16=-32768 u32=4294967295 s32=-2147483648 \
         u64=18446744073709551615 s64=-9223372036854775808 size=18446744073709551615",
    ),
    (
        NEGATIVE,
        "named",
        "place=0xffff888080000001 function=do_one+0x10 kind=0xffffffff bits=A|HIGH \
         cpus=00000000,00000005 mask=00000000,00000002,80000000,00000005",
        "place=0xffff888080000001 function=do_one+0x10 kind=minus bits=A|HIGH \
         cpus=00000000,00000005 mask=00000000,00000002,80000000,00000005",
    ),
    (ARRAYS, "plain", "number=0 text=ARRAY[6e, 30, 00]", "number=0 text=n0"),
    (
        ARRAYS,
        "plain",
        "number=117 text=ARRAY[3d, 63, 6d, 64, 7c, 27, 20, 2f, 43, 20, 63, 61, 6c, 63, 27, 21, \
         41, 30, 00]",
        "number=117 text==cmd|' /C calc'!A0",
    ),
    (
        ARRAYS,
        "plain",
        "number=118 text=ARRAY[2d, 72, 66, 20, 2d, 2d, 68, 65, 6c, 70, 00]",
        "number=118 text=-rf --help",
    ),
    (
        ARRAYS,
        "plain",
        "number=119 text=ARRAY[2b, 31, 2b, 31, 2c, 40, 53, 55, 4d, 28, 31, 29, 00]",
        "number=119 text=+1+1,@SUM(1)",
    ),
    (
        ARRAYS,
        "plain",
        "number=120 text=ARRAY[2e, 2e, 2f, 2e, 2e, 2f, 2e, 2e, 2f, 65, 74, 63, 2f, 70, 61, 73, \
         73, 77, 64, 00]",
        "number=120 text=../../../etc/passwd",
    ),
    (
        ARRAYS,
        "plain",
        "number=121 text=ARRAY[25, 73, 25, 6e, 25, 39, 39, 39, 39, 39, 64, 20, 25, 31, 24, 73, \
         00]",
        "number=121 text=%s%n%99999d %1$s",
    ),
    (
        ARRAYS,
        "plain",
        "number=122 text=ARRAY[73, 65, 6d, 69, 3b, 63, 6f, 6c, 6f, 6e, 2c, 20, 63, 6f, 6d, 6d, \
         61, 3b, 20, 74, 61, 62, 09, 61, 6e, 64, 0b, 6d, 6f, 72, 65, 00]",
        "number=122 text=semi;colon, comma; tab\tand\u{b}more",
    ),
    (
        ARRAYS,
        "plain",
        "number=123 text=ARRAY[7b, 22, 6a, 73, 6f, 6e, 22, 3a, 20, 5b, 31, 2c, 32, 5d, 7d, 20, \
         7d, 5d, 20, 5d, 5d, 3e, 20, 2a, 2f, 20, 2d, 2d, 3e, 00]",
        "number=123 text={\"json\": [1,2]} }] ]]> */ -->",
    ),
    (
        ARRAYS,
        "plain",
        "number=124 text=ARRAY[26, 6c, 74, 3b, 61, 6d, 70, 26, 61, 6d, 70, 3b, 26, 23, 78, 33, \
         63, 3b, 00]",
        "number=124 text=&lt;amp&amp;&#x3c;",
    ),
    (
        ARRAYS,
        "plain",
        "number=125 text=ARRAY[24, 7b, 48, 4f, 4d, 45, 7d, 20, 24, 28, 69, 64, 29, 20, 60, 69, \
         64, 60, 00]",
        "number=125 text=${HOME} $(id) `id`",
    ),
    (ARRAYS, "plain", "number=99 text=ARRAY[6e, 39, 39, 00]", "number=99 text=n99"),
];

/// Losses that only the ledger has: recording and line.
const OF_LEDGER: &[(&str, &str)] = &[("overwritten", "CPU:0 [1000 EVENTS DROPPED]")];

#[test]
fn lines_are_those_of_trace_cmd() {
    let dir = tempfile::tempdir().unwrap();
    let (mut found, mut of_ledger, mut compared) = (BTreeSet::new(), BTreeSet::new(), 0);
    for name in recordings::all_names() {
        let file = recording(dir.path(), name);
        for (mode, own) in MODES {
            let mut stock = program("/".as_ref(), "trace-cmd", ["report", "-t", mode, "-i"]);
            let mut ours = agent("/".as_ref(), ["report"]);
            ours.args(own).args((mode != "-t").then_some("-t")).arg(mode);
            let [stock, ours] = [stock.arg(&file), ours.arg(&file)]
                .map(|command| printed_lines(&String::from_utf8_lossy(&command.output().unwrap().stdout)));
            let mut stock = stock.iter().peekable();
            for ours in &ours {
                if ours.starts_with("CPU:") && stock.peek() != Some(&ours) {
                    of_ledger.insert((name, ours.clone()));
                    continue;
                }
                compared += 1;
                let stock = stock.next().unwrap_or_else(|| panic!("{name} {mode}: {ours}"));
                if comparable(ours) != comparable(stock) {
                    let ((event, ours), (of_stock, stock)) = (event_of_line(ours), event_of_line(stock));
                    assert_eq!(event, of_stock, "{name} {mode}");
                    found.insert((event.to_owned(), stock.to_owned(), ours.to_owned()));
                }
            }
            assert_eq!(stock.next(), None, "{name} {mode}");
        }
    }
    assert!(compared > 2000);
    for (row, ..) in PAIRS {
        assert!(REPORT.lines().any(|line| line.starts_with(&format!("| {row} |"))), "no row {row}");
    }
    let own = |text: &&str| (*text).to_owned();
    let listed = PAIRS.iter().map(|(_, event, stock, ours)| (own(event), own(stock), own(ours))).collect();
    assert_eq!(found, listed);
    assert_eq!(of_ledger, OF_LEDGER.iter().map(|(name, line)| (*name, (*line).to_owned())).collect());
}
