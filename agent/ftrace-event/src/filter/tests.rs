use super::*;
use crate::Endian;
use crate::symbols::{NoNames, Symbol};

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

/// An event with a field of each kind.
const FIELDS: &str = "\tfield:char comm[8];\toffset:8;\tsize:8;\tsigned:0;
\tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;
\tfield:u64 size;\toffset:24;\tsize:8;\tsigned:0;
\tfield:void * ip;\toffset:32;\tsize:8;\tsigned:0;
\tfield:unsigned int vec;\toffset:40;\tsize:4;\tsigned:0;
\tfield:__data_loc char[] name;\toffset:44;\tsize:4;\tsigned:0;
\tfield:__data_loc cpumask_t mask;\toffset:48;\tsize:4;\tsigned:0;
\tfield:u8 id[4];\toffset:52;\tsize:4;\tsigned:0;
\tfield:u16 ports[2];\toffset:56;\tsize:4;\tsigned:0;
\tfield:int cpu;\toffset:60;\tsize:4;\tsigned:1;
\tfield:char * path;\toffset:64;\tsize:8;\tsigned:0;
";

const PRINT: &str = "\"%s %s\", __print_symbolic(REC->vec, {0, \"HI\"}, {1, \"TIMER\"}), \
__print_flags(REC->ret & 7, \"|\", {1, \"S\"}, {2, \"D\"})";

const STACK: &str = "\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;
\tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;\n";

fn table() -> EventTable {
    let mut table = EventTable::new(Machine { endian: Endian::Little, long_size: 8 });
    for (system, name, id, fields, print) in [
        ("sys", "first", 1, FIELDS, PRINT),
        ("sys", "second", 2, "\tfield:int other;\toffset:8;\tsize:4;\tsigned:1;\n", "\"\""),
        ("ftrace", "kernel_stack", 3, STACK, "\"\""),
    ] {
        let text = format!("name: {name}\nID: {id}\nformat:\n{COMMON}\n{fields}\nprint fmt: {print}\n");
        table.add(system, &text, &NoNames).unwrap();
    }
    table
}

/// `first` with comm "worker", ret -2, size u64::MAX, ip in `do_it`, vec 1, name "a name", mask 0 and 3, cpu
/// 3.
fn record() -> Vec<u8> {
    let mut record = vec![1, 0, 0x18, 0, 42, 0, 0, 0];
    record.extend(b"worker\0x");
    record.extend((-2_i64).to_le_bytes());
    record.extend(u64::MAX.to_le_bytes());
    record.extend(0xffff_8000_u64.to_le_bytes());
    record.extend(1_u32.to_le_bytes());
    record.extend(0x0006_0048_u32.to_le_bytes());
    record.extend(0x0008_0050_u32.to_le_bytes());
    record.extend(b"id\0\0");
    record.extend([80, 0, 0xbb, 1]);
    record.extend(3_u32.to_le_bytes());
    record.extend(0x1234_u64.to_le_bytes());
    record.extend(b"a name\0\0");
    record.extend(0b1001_u64.to_le_bytes());
    record
}

struct Known;

impl Symbols for Known {
    fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        (address >> 16 == 0xffff).then_some(Symbol { name: "do_it", offset: 1, size: None, module: None })
    }
}

impl Tasks for Known {
    fn comm(&self, tid: u32) -> Option<&[u8]> {
        (tid == 42).then_some(b"thread")
    }

    fn number(&self, tid: u32, context: Context) -> Option<u64> {
        (tid == 42 && context == Context::Uid).then_some(1000)
    }

    fn user_text(&self, address: u64) -> Option<&[u8]> {
        (address == 0x1234).then_some(b"/etc/passwd")
    }
}

const ORIGIN: Origin<'static> = Origin { cpu: 3, timestamp: 5_000_000_000, tasks: &Known, symbols: &Known };

fn matches(expression: &str, dialect: Dialect, options: ResolveOptions) -> bool {
    let filter = Filter::parse_expression(expression, dialect).unwrap_or_else(|error| panic!("{error}"));
    let resolved = filter.resolve(&table(), options).unwrap_or_else(|error| panic!("{error}"));
    resolved.matches(1, &record(), &ORIGIN)
}

fn error(text: &str) -> String {
    let filter = Filter::parse(text, Dialect::TraceCmd);
    let error = filter.and_then(|filter| filter.resolve(&table(), ResolveOptions::default())).unwrap_err();
    assert!(error.span.start <= error.text.len());
    error.to_string()
}

#[test]
fn expressions_mean_what_they_say() {
    for (expression, expected) in [
        ("ret == -2 && ret < 0 && ret > -3", true),
        ("ret > 0", false),
        ("size == 0xffffffffffffffff && size > 1", true),
        ("size < ret", false),
        ("vec == 1", true),
        ("vec == TIMER && vec == \"TIMER\" && vec != HI", true),
        ("ret & D", true),
        ("ret & S", false),
        ("(ret & 3) == 2 && ret + 2 == 0 && vec << 4 == 16 && 100 / vec > 99 && 7 % 4 == 3", true),
        ("vec / 0 == 1 || vec % 0", false),
        ("!(vec / 0 == 1)", true),
        ("~vec == -2 && -vec == -1", true),
        ("1 == vec && 2 > vec && 0 < vec", true),
        ("common_pid == 42 && $tid == 42", true),
        ("comm == worker && comm == \"worker\" && 'worker' == comm", true),
        ("comm != \"worke\" && comm != \"worker2\"", true),
        ("comm ~ \"work*\" && comm ~ \"w?r[j-l]er\" && comm ~ \"*k*\"", true),
        ("comm ~ \"work\" || comm ~ \"!work*\"", false),
        ("comm =~ \"^WORK\" && comm !~ \"rk$\"", true),
        ("comm =~ name", false),
        ("name == \"a\" \" name\"", true),
        ("comm == name", false),
        ("comm != name && name == name", true),
        ("id == \"id\"", true),
        ("ip == do_it && ip.function == do_it && ip == \"do_it\" && ip != other && ip =~ \"^do\"", true),
        ("path == \"0x1234\" && path =~ \"0x12\"", true),
        ("path == 0x1234", true),
        ("CPU == 3 && $cpu == 3 && CPU & CPUS{2-3} && CPU == CPUS{3} && CPU != CPUS{2,3}", true),
        ("cpu & CPUS{0-2}", false),
        ("mask & CPUS{3,7} && mask == CPUS{0,3} && mask != CPUS{0-3} && CPUS{0,3} == mask", true),
        ("mask & CPUS{1,2,64}", false),
        ("COMM == \"thread\" && $comm == thread && COMM =~ \"^thr\"", true),
        ("TIMESTAMP >= 5000000000 && $timestamp < 5000000001", true),
        ("vec == '\u{1}'", true),
        ("!vec == 1", false),
        ("!!vec == 1", true),
        ("common_flags & 0x10", true),
        ("cpu", true),
    ] {
        for dialect in [Dialect::TraceCmd, Dialect::Ftrace] {
            assert_eq!(matches(expression, dialect, ResolveOptions::default()), expected, "{expression}");
        }
    }
}

#[test]
fn dialects_differ_in_precedence_and_in_names() {
    let both = |expression: &str| {
        [Dialect::TraceCmd, Dialect::Ftrace]
            .map(|dialect| matches(expression, dialect, ResolveOptions::default()))
    };
    assert_eq!(both("vec == 1 || vec == 1 && vec == 2"), [false, true]);
    assert_eq!(both("vec == 2 && vec == 2 || vec == 1"), [true, true]);
    assert_eq!(both("vec == 1 || (vec == 1 && vec == 2)"), [true, true]);
    let filter = |dialect| Filter::parse("second: comm == \"thread\"", dialect).unwrap();
    let resolve = |dialect| filter(dialect).resolve(&table(), ResolveOptions::default());
    assert!(resolve(Dialect::TraceCmd).is_err());
    let record = [2, 0, 0, 0, 42, 0, 0, 0, 9, 0, 0, 0];
    assert!(resolve(Dialect::Ftrace).unwrap().matches(2, &record, &ORIGIN));
}

#[test]
fn what_is_known_only_while_recording() {
    let live = ResolveOptions { live: true, ..ResolveOptions::default() };
    assert!(matches("$uid == 1000 && path.ustring ~ \"/etc/*\"", Dialect::Ftrace, live));
    assert!(!matches("$ppid == 1 || path.ustring == \"/etc\"", Dialect::Ftrace, live));
    assert!(
        error("first: $uid == 0").contains("the record does not tell $uid; record it with `--context uid`")
    );
    assert!(error("first: path.ustring == \"x\"").contains("which is not in the file"));
}

#[test]
fn events_are_named_in_many_ways() {
    let found = |head: &str| {
        let filter = Filter::parse(head, Dialect::TraceCmd).unwrap();
        filter.resolve(&table(), ResolveOptions::default()).map(|filter| filter.events().collect::<Vec<_>>())
    };
    for (head, ids) in [
        ("first", &[1][..]),
        ("sys", &[1, 2]),
        ("SYS", &[1, 2]),
        ("sys/first", &[1]),
        ("sys:first", &[1]),
        ("sys:first: vec == 1", &[1]),
        ("sys:s*: other == 1", &[2]),
        ("sys:se*", &[2]),
        (" sys / second , first ", &[1, 2]),
        (".*st", &[1]),
        ("*", &[1, 2, 3]),
        ("fir*", &[1]),
        ("first\\|kernel.*", &[1, 3]),
        ("sys:first,kernel_stack: common_pid == 1", &[1, 3]),
        ("first: comm == \"a:b\" || comm == 'c:d'", &[1]),
    ] {
        assert_eq!(found(head).unwrap_or_else(|error| panic!("{error}")), ids, "{head}");
    }
    assert_eq!(
        error("frist: vec == 1"),
        "at byte 0: no event is described by `frist`; did you mean `sys/first`?\n  frist: vec == 1\n  ^~~~~"
    );
}

#[test]
fn mistakes_are_shown_at_their_position() {
    for (text, expected) in [
        (
            "first: vecc == 1",
            "at byte 7: sys:first has no field `vecc`; did you mean `vec`?\n  first: vecc == 1\n         ^~~~",
        ),
        ("sys: nothing_like_it == 1", "none of the 2 events has a field `nothing_like_it`"),
        (
            "second: zzz == 1",
            "sys:second has no field `zzz`; it has other, common_type, common_flags, common_pid",
        ),
        ("first: vec ==", "a field or a value expected, and the filter ends here"),
        ("first:", "a field or a value expected, and the filter ends here"),
        ("first: vec = 1", "there is no operator `=`; `==` compares"),
        ("first: vec == 1 vec == 2", "`&&`, `||` or the end expected, and here is `vec`"),
        ("first: (vec == 1", "`&&`, `||` or `)` expected, and the filter ends here"),
        ("first: vec == 1)", "there is no parenthesis to be closed"),
        ("first: vec == 12ab", "`12ab` is no number of 64 bits"),
        ("first: vec == 99999999999999999999", "is no number of 64 bits"),
        ("first: comm == \"abc", "the quote \" is never closed"),
        ("first: comm =~ \"\\(\"", "the regular expression cannot be used: `\\(` without `\\)`"),
        ("first: comm =~ 5", "a pattern in quotes expected, and here is `5`"),
        ("first: comm < \"a\"", "the text `comm` can only be compared with =="),
        ("first: comm == 5", "the text `comm` cannot be compared with the number 5"),
        ("first: cpu == \"five\"", "`cpu` (int cpu) is a number; compare it with a number"),
        ("first: vec == \"five\"", "`vec` (unsigned int vec) has no value of this name; it has HI, TIMER"),
        ("first: size == -1", "`size` (u64 size) has no sign and is never negative"),
        ("first: ports == 80", "`ports` (u16 ports[2]) is neither a number nor a text"),
        ("first: (comm)", "the text `comm` alone is no condition"),
        ("first: (vec == 1) == 1", "a condition stands where a value is expected"),
        ("first: cpu ~ \"1*\"", "`cpu` (int cpu) is no text, and `~` is for texts"),
        ("first: CPU & CPUS{1-}", "is no list of CPUs"),
        ("first: CPU & CPUS{}", "a list of CPUs is empty"),
        ("first: CPU < CPUS{1}", "a list of CPUs can only be compared with ==, != and &"),
        ("first: $what == 1", "there is no `$what`; there are $pid $tid"),
        ("first: ip.what == 1", "there is no `.what`; there are .ustring and .function"),
        ("first: comm.function == x", "is no address, which `.function` is for"),
        ("first: vec == 1, 2", "there is no operator `,`"),
        ("first: vec == \"1\" : vec", "there is no operator `:`"),
        ("first: ü == 1", "'ü' has no meaning here"),
        ("sys/: vec", "the name of an event or a system expected"),
        (",first", "the name of an event or a system expected"),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text}\n{error}\n{expected}");
        assert!(error.lines().next_back().unwrap().contains('^'), "{error}");
    }
}

#[test]
fn a_field_that_only_some_events_have_is_false_in_the_others() {
    let filter = Filter::parse("sys: other == 9 || vec == 1", Dialect::TraceCmd).unwrap();
    let resolved = filter.resolve(&table(), ResolveOptions::default()).unwrap();
    let second = [2, 0, 0, 0, 42, 0, 0, 0, 9, 0, 0, 0];
    assert!(resolved.matches(1, &record(), &ORIGIN) && resolved.matches(2, &second, &ORIGIN));
    assert!(!resolved.matches(3, &second, &ORIGIN));
    let filter = Filter::parse("sys: bogus == 9 || vec == 1", Dialect::TraceCmd).unwrap();
    let lenient = ResolveOptions { unknown_fields: true, ..ResolveOptions::default() };
    assert!(filter.resolve(&table(), lenient).unwrap().matches(1, &record(), &ORIGIN));
    let filter = Filter::parse("first: name == 3 || vec == 1", Dialect::TraceCmd).unwrap();
    let wrong = *filter.resolve(&table(), lenient).unwrap_err().kind;
    assert!(matches!(wrong, FilterErrorKind::Mismatch(_)), "{wrong:?}");
    let lenient = ResolveOptions { mismatches: true, ..lenient };
    assert!(filter.resolve(&table(), lenient).unwrap().matches(1, &record(), &ORIGIN));
}

#[test]
fn a_record_that_is_cut_off_has_no_values() {
    let filter = Filter::parse("first: vec == 1 || name == \"a name\"", Dialect::TraceCmd).unwrap();
    let resolved = filter.resolve(&table(), ResolveOptions::default()).unwrap();
    let record = record();
    assert!(resolved.matches(1, &record[..44], &ORIGIN));
    assert!(!resolved.matches(1, &record[..43], &ORIGIN) && !resolved.matches(1, &[], &ORIGIN));
}

#[test]
fn length_and_depth_are_bounded() {
    let parse = |text: &str| Filter::parse_expression(text, Dialect::TraceCmd).map_err(|error| *error.kind);
    let deep = |open: &str, close: &str| format!("{}a == 1{}", open.repeat(30_000), close.repeat(30_000));
    for text in [
        deep("(", ")"),
        deep("!", ""),
        deep("-", ""),
        "a+".repeat(30_000) + "1",
        "a==1||a==1&&".repeat(5000) + "a",
    ] {
        assert_eq!(parse(&text), Err(FilterErrorKind::TooDeep { limit: MAX_DEPTH }));
    }
    let long = "a == 1 || ".repeat(6000) + "a == 1";
    assert!(parse(&long).is_ok());
    assert_eq!(parse(&(long.clone() + &long)), Err(FilterErrorKind::TooLong { limit: MAX_TEXT }));
    let error = Filter::parse_expression(&(long + " ("), Dialect::Ftrace).unwrap_err().to_string();
    assert!(error.len() < 400, "{error}");
}

#[test]
fn a_selection_shows_stacks_with_their_events() {
    let table = table();
    let mut selection = Selection::new(&table);
    let mut shown = Shown::default();
    let (first, stack) = (record(), [3, 0, 0, 0, 42, 0, 0, 0]);
    assert!(selection.wants(3, &stack, 0, &ORIGIN, &mut shown), "without filters everything is wanted");
    selection.add_text("first: vec == 1", false, &table).unwrap();
    let mut second = first.clone();
    second[40] = 2;
    for (event, record, expected) in [
        (3, &stack[..], false),
        (1, &first, true),
        (3, &stack, true),
        (3, &stack, true),
        (1, &second, false),
        (3, &stack, false),
    ] {
        assert_eq!(selection.wants(event, record, 0, &ORIGIN, &mut shown), expected);
    }
    selection.add_text("first: CPU == 3", true, &table).unwrap();
    assert!(!selection.wants(1, &first, 0, &ORIGIN, &mut shown));
    assert!(selection.add_text("first: nothing == 1", true, &table).is_err());
}

#[test]
fn the_fuzz_target_takes_anything() {
    let table = table();
    for data in [&b"first: vec == 1\n\x01\0"[..], b"", b"\n", b"\xff: \xff", b"*:comm=~\"x\"\n\x01\0\0\0"] {
        fuzz(data, &table);
    }
}

#[test]
fn lttng_binds_in_its_own_way() {
    let live = ResolveOptions { live: true, ..ResolveOptions::default() };
    for (expression, expected) in [
        ("vec == 2 || vec == 1 && ret == 0", false),
        ("vec == 1 || vec == 1 && ret == 0", true),
        // Bits bind stronger than comparisons, as in all dialects here; `!` stronger than everything.
        ("ret & 3 == 2", true),
        ("vec << 4 == 16 && 8 >> 3 == vec", true),
        ("!vec", false),
        ("!vec || vec == 1u && vec == 0x1UL", true),
        ("vec ^ 1 | 2 == 2", true),
        ("+vec == 1 && -vec == -1 && ~vec == -2", true),
        ("name == \"a name\" && name != \"a\"", true),
        ("name == \"a*e\" && \"*name\" == name && !(name == \"a*b\")", true),
        ("name != \"*x*\" && name != \"a*\"", false),
        // Only the star is a wildcard, and not after a backslash.
        ("name == \"?*\"", false),
        ("name == \"[a]*\"", false),
        ("name == \"a\\*e\"", false),
        ("name != \"!a*\"", true),
        ("$ctx.uid == 1000 && $ctx.procname == \"thr*\" && $ctx.tid == 42 && $ctx.cpu_id == 3", true),
        ("vec == 1 // the rest is a comment", true),
        ("vec /* in the middle */ == 1", true),
    ] {
        assert_eq!(matches(expression, Dialect::Lttng, live), expected, "{expression}");
    }
}

#[test]
fn what_lttng_does_not_have_is_told() {
    for (expression, text) in [
        ("vec + 1 == 2", "no operator `+`; LTTng's filters have none"),
        ("vec % 2", "no operator `%`"),
        ("name > \"a\"", "`==` and `!=` only"),
        ("name =~ \"a\"", "no operator `=`"),
        ("name ~ \"a\"", "expected"),
        ("ports[1] == 2", "fields have no parts"),
        ("a->b == 2", "fields have no parts"),
        ("a.b == 2", "fields have no parts"),
        ("vec == 1.5", "is no number"),
        ("$uid == 0", "there is no `$uid`; there are $ctx.pid $ctx.tid $ctx.procname"),
        ("$ctx.pthread_id == 0", "there is no `$ctx.pthread_id`"),
        ("$app.x:y == 0", "there is no `$app.x`"),
        ("vec == 1 /* open", "the end of the comment"),
        ("\"a\" == \"b\"", "always the same or never"),
        ("vec == 1 &&", "expected"),
    ] {
        let error = Filter::parse_expression(expression, Dialect::Lttng).unwrap_err().to_string();
        assert!(error.contains(text), "{expression}: {error}");
    }
    // In conditions, where a value is meant.
    let nested = Filter::parse_expression("(vec < 2) == 1", Dialect::Lttng).unwrap();
    let error = nested.resolve(&table(), ResolveOptions::default()).unwrap_err().to_string();
    assert!(error.contains("a condition stands where a value is expected"), "{error}");
}

#[test]
fn groups_are_named_by_their_paths() {
    let mut filter =
        Filter::parse_expression("$cgroup == \"/a\" || !(\"/b\" != $cgroup)", Dialect::Ftrace).unwrap();
    let mut asked = Vec::new();
    let mut number = |path: &str| {
        asked.push(path.to_owned());
        Ok(asked.len() as u64)
    };
    filter.name_groups(&mut number).unwrap();
    assert_eq!(asked, ["/a", "/b"]);
    let same = Filter::parse_expression("$cgroup == 1 || !(2 != $cgroup)", Dialect::Ftrace).unwrap();
    let live = ResolveOptions { live: true, ..ResolveOptions::default() };
    let tests = [&filter, &same].map(|filter| format!("{:?}", filter.resolve(&table(), live).unwrap()));
    assert_eq!(tests[0], tests[1]);
    let mut absent = Filter::parse_expression("$cgroup == \"/c\"", Dialect::Ftrace).unwrap();
    let error = absent.name_groups(&mut |_| Err("no such group".to_owned())).unwrap_err();
    assert!(error.to_string().contains("at byte 11: no such group"), "{error}");
}
