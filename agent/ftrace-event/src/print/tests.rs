use super::*;
use crate::record::Endian;
use crate::symbols::{NoNames, NoSymbols, Symbol};

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

/// Fields of all kinds, and the record that [`record`] makes of them.
const FIELDS: &str = "\tfield:int i;\toffset:8;\tsize:4;\tsigned:1;
\tfield:unsigned int u;\toffset:12;\tsize:4;\tsigned:0;
\tfield:long l;\toffset:16;\tsize:8;\tsigned:1;
\tfield:u64 q;\toffset:24;\tsize:8;\tsigned:0;
\tfield:char comm[8];\toffset:32;\tsize:8;\tsigned:0;
\tfield:__u8 ip4[4];\toffset:40;\tsize:4;\tsigned:0;
\tfield:u16 words[2];\toffset:44;\tsize:4;\tsigned:0;
\tfield:__u8 ip6[16];\toffset:48;\tsize:16;\tsigned:0;
\tfield:__data_loc char[] name;\toffset:64;\tsize:4;\tsigned:0;
\tfield:__rel_loc u32[] nums;\toffset:68;\tsize:4;\tsigned:0;
\tfield:__data_loc cpumask_t mask;\toffset:72;\tsize:4;\tsigned:0;
\tfield:const char * text;\toffset:80;\tsize:8;\tsigned:0;
\tfield:unsigned char b;\toffset:88;\tsize:1;\tsigned:0;
\tfield:short s;\toffset:90;\tsize:2;\tsigned:1;
\tfield:struct guid id;\toffset:92;\tsize:16;\tsigned:0;
";

fn format(print_fmt: &str) -> Format {
    Format::parse(&format!("name: x\nID: 1\nformat:\n{COMMON}\n{FIELDS}\nprint fmt: {print_fmt}\n")).unwrap()
}

fn record(endian: Endian) -> Vec<u8> {
    let mut record = vec![1, 0, 0, 0, 0, 0, 0, 0];
    record.extend(endian.u32((-5_i32).cast_unsigned()));
    record.extend(endian.u32(0xffff_fff0));
    record.extend(endian.u64((-1_i64).cast_unsigned()));
    record.extend(endian.u64(0x1122_3344_5566_7788));
    record.extend(b"bash\0xyz");
    record.extend([192, 168, 0, 1]);
    record.extend(endian.u16(7));
    record.extend(endian.u16(0xffff));
    record.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    record.extend(endian.u32(0x0006_006c));
    record.extend(endian.u32(0x0008_002c));
    record.extend(endian.u32(0x0008_007c));
    record.extend([0; 4]);
    record.extend(endian.u64(0xffff_ffff_8100_0010));
    record.extend([200, 0]);
    record.extend(endian.u16((-2_i16).cast_unsigned()));
    record.extend(0..16);
    record.extend(b"/bin\0\0\0\0");
    record.extend(endian.u32(1));
    record.extend(endian.u32(0xabcd));
    record.extend(endian.u64(0x10_0000_000f));
    record
}

struct Known;

impl Symbols for Known {
    fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let offset = address.checked_sub(0xffff_ffff_8100_0000).filter(|offset| *offset < 0x40)?;
        Some(Symbol { name: "start", offset, size: Some(0x40), module: None })
    }

    fn text_at(&self, address: u64) -> Option<&str> {
        (address == 0xffff_ffff_8100_0010).then_some("known text")
    }
}

fn print_on(endian: Endian, print_fmt: &str) -> String {
    let names = |name: &str| (name == "KNOWN").then_some(7);
    let machine = Machine { endian, long_size: 8 };
    let compiled = PrintFmt::compile(&format(print_fmt), machine, &names)
        .unwrap_or_else(|error| panic!("{print_fmt}: {error}"));
    let mut text = String::new();
    compiled.print(&record(endian), &Known, &mut text);
    text
}

/// The text of the record on either kind of machine.
fn print(print_fmt: &str) -> String {
    let (little, big) = (print_on(Endian::Little, print_fmt), print_on(Endian::Big, print_fmt));
    assert_eq!(little, big, "{print_fmt}");
    little
}

fn error(print_fmt: &str) -> PrintFmtError {
    PrintFmt::compile(&format(print_fmt), Machine::default(), &NoNames).unwrap_err()
}

#[test]
fn values_have_their_c_types() {
    for (arguments, text) in [
        ("\"%d %u %ld %llx\", REC->i, REC->u, REC->l, REC->q", "-5 4294967280 -1 1122334455667788"),
        ("\"%d\", REC->i + REC->u > 0", "1"),
        ("\"%d\", REC->i < 0", "1"),
        // An int beside an unsigned int becomes one, beside a long it does not.
        ("\"%d\", REC->i < REC->u", "0"),
        ("\"%d\", REC->l < REC->u", "1"),
        ("\"%d\", REC->q > -9ULL", "0"),
        ("\"%lu\", REC->u + 0x10", "0"),
        ("\"%lu\", REC->u + 0x10UL", "4294967296"),
        ("\"%d\", REC->b * 2", "400"),
        ("\"%d\", (signed char)REC->b", "-56"),
        ("\"%x\", ~REC->b", "ffffff37"),
        ("\"%d\", -REC->s", "2"),
        ("\"%d\", REC->s >> 1", "-1"),
        ("\"%u\", (unsigned short)REC->s >> 1", "32767"),
        ("\"%d %d\", REC->i / 2, REC->i % 3", "-2 -2"),
        ("\"%d\", REC->i / 0", "?"),
        ("\"%d\", 1 << 3 | 2 & 3 ^ 1", "11"),
        ("\"%d\", !REC->i || REC->u && 0", "0"),
        ("\"%s\", REC->i == -5 ? \"yes\" : \"no\"", "yes"),
        ("\"%lld\", REC->i ? REC->i : REC->q", "-5"),
        ("\"%d\", REC->words[1]", "65535"),
        ("\"%x\", ((u32 *)__get_rel_dynamic_array(nums))[1]", "abcd"),
        ("\"%d\", *(u16 *)&REC->words", "7"),
        ("\"%c%c\", REC->comm[0], 'x'", "bx"),
        ("\"%zu %zu %zu\", sizeof(u64), sizeof(REC->comm), sizeof(struct x *)", "8 8 8"),
        ("\"%d\", __builtin_expect(!!(REC->i), 0)", "1"),
        ("\"%d\", ({ int a = REC->i; int b = 3; ((a) < (b) ? (a) : (b)); })", "-5"),
        ("\"%d\", KNOWN + 1", "8"),
        ("\"%d %d\", unknown_name, 3", "? 3"),
        ("\"%d\", (REC)->i", "-5"),
        ("\"%x\", REC->__data_loc_name & 0xffff", "6c"),
    ] {
        assert_eq!(print(arguments), text, "{arguments}");
    }
}

#[test]
fn conversions_are_the_kernels() {
    for (arguments, text) in [
        ("\"100%% %5d|%-5d|%05d\", 42, 42, -42", "100%    42|42   |-0042"),
        ("\"%#x %#010x %#o %X %#x\", 255, 255, 8, 255, 0", "0xff 0x000000ff 010 FF 0x0"),
        ("\"%+d % d %.3d %8.3d\", 1, 1, 1, 1", "+1  1 001      001"),
        ("\"%hd %hhu %hx\", 65535, 257, 0x12345", "-1 1 2345"),
        (
            "\"%s|%8s|%-8s|%.2s|%.*s\", REC->comm, REC->comm, REC->comm, REC->comm, 3, REC->comm",
            "bash|    bash|bash    |ba|bas",
        ),
        ("\"%*d|%-*d|%*d\", 4, 1, 4, 1, -4, 1", "   1|1   |1   "),
        ("\"%s %s\", REC->text, (char *)0", "known text (null)"),
        ("\"%s\", (char *)REC->q", "0x1122334455667788"),
        ("\"%p %px\", (void *)REC->q, (void *)1", "1122334455667788 0000000000000001"),
        (
            "\"%pS %ps %pB %pS\", REC->text, REC->text, REC->text, 5",
            "start+0x10/0x40 start start+0x10/0x40 0x5",
        ),
        ("\"%8ps|%-8pf|\", REC->text, REC->text", "   start|start   |"),
        (
            "\"%pI4 %pi4 %pI6 %pI6c\", REC->ip4, REC->ip4, REC->ip6, REC->ip6",
            "192.168.0.1 192.168.000.001 fe80:0000:0000:0000:0000:0000:0000:0001 fe80::1",
        ),
        (
            "\"%pM %pm %*ph %4phN\", REC->ip6, REC->ip6, 3, REC->ip6, REC->ip4",
            "fe:80:00:00:00:00 fe8000000000 fe 80 00 c0a80001",
        ),
        (
            "\"%pU %pUl\", &REC->id, REC->id",
            "00010203-0405-0607-0809-0a0b0c0d0e0f 03020100-0504-0706-0809-0a0b0c0d0e0f",
        ),
        (
            "\"%*pbl|%*pb|%*pb\", 64, __get_dynamic_array(mask), 64, __get_dynamic_array(mask), 6, __get_dynamic_array(mask)",
            "0-3,36|00000010,0000000f|0f",
        ),
        ("\"%pd %pe\", REC->text, (void *)-12L", "? -12"),
        ("\"a\" \"b%d\" \"c\", 1", "ab1c"),
        ("\"%psx\", REC->text", "start"),
    ] {
        assert_eq!(print(arguments), text, "{arguments}");
    }
}

#[test]
fn sockets() {
    let print = |bytes: &[u8], conversion: &str| {
        let fields = format!(
            "\tfield:__u8 a[28];\toffset:8;\tsize:28;\tsigned:0;\n\nprint fmt: \"{conversion}\", REC->a"
        );
        let format = Format::parse(&format!("name: x\nID: 1\nformat:\n{COMMON}\n{fields}")).unwrap();
        let mut record = vec![0; 36];
        record[8..8 + bytes.len()].copy_from_slice(bytes);
        let mut text = String::new();
        let compiled = PrintFmt::compile(&format, Machine::default(), &NoNames).unwrap();
        compiled.print(&record, &NoSymbols, &mut text);
        text
    };
    assert_eq!(print(&[2, 0, 0, 80, 127, 0, 0, 1], "%pISpc"), "127.0.0.1:80");
    let mut v6 = vec![10, 0, 1, 187, 0, 0, 0, 5];
    v6.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0]);
    assert_eq!(print(&v6, "%pISpc"), "[2001:db8::1:0:0:1]:443");
    assert_eq!(print(&v6, "%pISpfs"), "[2001:0db8:0000:0000:0001:0000:0000:0001]:443/5%3");
    v6[8..24].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
    assert_eq!(print(&v6, "%pISc"), "::ffff:10.0.0.1");
    v6[8..24].fill(0);
    assert_eq!(print(&v6, "%pISpc"), "[::]:443");
    assert_eq!(print(&[1, 0], "%pISpc"), "(einval)");
}

#[test]
fn functions_of_the_trace_macros() {
    for (arguments, text) in [
        ("\"%s\", __print_symbolic(REC->b, { 1, \"ONE\" }, { 200, \"B\" }, { 200, \"C\" })", "B"),
        (
            "\"%s|%6s|\", __print_symbolic(REC->b, { 1, \"ONE\" }), __print_symbolic(16, { 16, \"\" })",
            "0xc8|  0x10|",
        ),
        ("\"%s\", __print_symbolic(REC->i, { -5, \"five\" })", "five"),
        ("\"%s\", __print_symbolic(REC->b, { UNKNOWN, \"A\" }, { 200, \"B\" })", "B"),
        ("\"%s\", __print_symbolic(REC->b, { })", "0xc8"),
        ("\"%s\", __print_symbolic(KNOWN, { KNOWN, \"K\" }, { -1, NULL })", "K"),
        ("\"%s\", __print_flags(REC->b, \"|\", { 8, \"E\" }, { 192, \"BIG\" }, { 1, \"ONE\" })", "E|BIG"),
        ("\"%s\", __print_flags(REC->b, \"\", { 8, \"E\" })", "E0xc0"),
        (
            "\"%10s|%-10s|\", __print_flags(8, \"|\", { 8, \"E\" }), __print_flags(8, \"|\", { 8, \"E\" })",
            "         E|E         |",
        ),
        ("\"%s|\", __print_flags(0, \"|\", { 0, \"NONE\" })", "|"),
        ("\"%s %d\", __get_str(name), __get_str(name)[0]", "/bin 47"),
        ("\"%s %s\", __print_hex(REC->ip4, 4), __print_hex_str(REC->ip4, 3)", "c0 a8 00 01 c0a800"),
        (
            "\"%s\", __print_array(__get_rel_dynamic_array(nums), __get_rel_dynamic_array_len(nums) / sizeof(u32), sizeof(u32))",
            "{0x1,0xabcd}",
        ),
        ("\"%s\", __print_array(REC->ip4, 2, 3)", "{BAD SIZE:3 0xc0,BAD SIZE:3 0xa8}"),
        ("\"%s\", __print_dynamic_array(nums, sizeof(u32))", "{0x1,0xabcd}"),
        ("\"%s %s\", __get_cpumask(mask), __get_bitmask(mask)", "00000010,0000000f 00000010,0000000f"),
        (
            "\"%llu.%09u\", __print_ns_to_secs(1500000000ULL), __print_ns_without_secs(1500000007ULL)",
            "1.500000007",
        ),
        (
            "\"%s\", __print_hex_dump(\"p: \", DUMP_PREFIX_OFFSET, 16, 1, REC->ip6, 16, 1)",
            "\np: 00000000: fe 80 00 00 00 00 00 00 00 00 00 00 00 00 00 01  ................\n",
        ),
        ("\"%u|%4lu\", jiffies_to_msecs(REC->b), 1 + jiffies_to_msecs(REC->b)", "200 jiffies|   ?"),
        (
            "\"%u %s%s\", REC->words[0], xen_hypercall_name(REC->words[0]), xen_hypercall_name(35)",
            "7 (dom0_op)",
        ),
        ("\"[%*phD] [%*ph]\", 0, REC->ip4, 2, REC->ip4", "[] [c0 a8]"),
        ("\"%s\", xen_hypercall_name(REC->u)", ""),
        ("\"%s\", jbd2_dev_to_name(0x800003)", "8:3"),
        ("\"%#x\", __le16_to_cpup((__le16 *)REC->comm)", "0x6162"),
        ("\"%s\", scsi_trace_parse_cdb(p, __get_str(name), 4)", "?"),
        (
            "\"%s %s\", __print_symbolic(REC->words[0], { SCHED_SOFTIRQ, \"SCHED\" }), __print_symbolic(1, { HRTIMER_NORESTART, \"NO\" }, { HRTIMER_RESTART, \"YES\" })",
            "SCHED YES",
        ),
        ("\"%s\", mc_event_error_type(1)", "Uncorrected"),
        ("\"%d\", strlen(__get_str(name))", "4"),
        ("\"%s\", REC->i ? __print_flags(1, \"|\", { 1, \"one\" }) : \"none\"", "one"),
        (
            "\"%s\", ({ const char *saved_ptr = trace_seq_buffer_ptr(p); static const char *access_str[] = { \"---\", \"--x\" }; union kvm_mmu_page_role role; role.word = 0x112; trace_seq_printf(p, \"l%u %s%c\", role.level, access_str[role.access], 0); saved_ptr; })",
            "l2 --x",
        ),
        ("\"[%s]\", nvme_trace_disk_name(p, REC->comm)", "[disk=bash, ]"),
    ] {
        assert_eq!(print(arguments), text, "{arguments}");
    }
}

#[test]
fn a_stack_is_a_line_for_each_function() {
    let fields = "\tfield:__data_loc unsigned long[] stack;\toffset:8;\tsize:4;\tsigned:0;\n\nprint fmt: \"%s\", __get_stacktrace(stack)";
    let format = Format::parse(&format!("name: x\nID: 1\nformat:\n{COMMON}\n{fields}")).unwrap();
    let compiled = PrintFmt::compile(&format, Machine::default(), &NoNames).unwrap();
    let mut record = vec![0; 8];
    record.extend((24_u32 << 16 | 16).to_le_bytes());
    record.extend([0; 4]);
    for long in [0xffff_ffff_8100_0004_u64, 0x1234_5678, 0] {
        record.extend(long.to_le_bytes());
    }
    let mut text = String::new();
    compiled.print(&record, &Known, &mut text);
    assert_eq!(text, "=> start+0x4/0x40\n=> 0x12345678\n");
}

#[test]
fn arrays_of_strings() {
    let fields = "\tfield:__data_loc char[][2] g;\toffset:8;\tsize:8;\tsigned:0;";
    let parse = |print_fmt: &str| {
        let text = format!("name: x\nID: 1\nformat:\n{COMMON}\n{fields}\n\nprint fmt: {print_fmt}");
        PrintFmt::compile(&Format::parse(&text).unwrap(), Machine::default(), &NoNames)
    };
    let mut record = vec![0; 8];
    record.extend([16, 0, 2, 0, 18, 0, 3, 0, b'a', 0, b'b', b'c', 0]);
    let mut text = String::new();
    let compiled = parse("\"g={\\\"%s\\\",\\\"%s\\\"}\", __get_str(g[0]), __get_str(g[1])").unwrap();
    compiled.print(&record, &NoSymbols, &mut text);
    assert_eq!(text, "g={\"a\",\"bc\"}");
    let outside = parse("\"%s\", __get_str(g[2])").unwrap_err();
    assert_eq!(outside.kind, PrintFmtErrorKind::Arguments("__get_str"));
}

#[test]
fn unresolved_names_are_told() {
    let compiled = PrintFmt::compile(
        &format(
            "\"%lu %s %u\", jiffies - REC->q, __print_symbolic(REC->i, { ONE, \"1\" }, { ONE, \"2\" }), jiffies_to_msecs(3)",
        ),
        Machine::default(),
        &NoNames,
    );
    assert_eq!(compiled.unwrap().unresolved(), ["jiffies", "ONE", "HZ"]);
}

#[test]
fn a_name_is_all_that_is_printed_of_its_field_in_one_piece() {
    // As `prev_state` of sched_switch.
    let flags = r#"(REC->u & 0xff) ? __print_flags(REC->u & 0xff, "|", {1, "S"}, {2, "D"}) : "R""#;
    let plus = r#"REC->u & 0x100 ? "+" : """#;
    for (print_fmt, names) in [
        (format!(r#""u=%s%s ==> %d", {flags}, {plus}, REC->i"#), [Some("R"), Some("R+"), Some("S|D+"), None]),
        (format!(r#""%s%s", {plus}, {flags}"#), [Some("R"), Some("+R"), Some("+S|D"), None]),
        (format!(r#""%s %s", {flags}, {plus}"#), [Some("R"), Some("R"), Some("S|D"), None]),
        (format!(r#""%s%s%s", {flags}, REC->comm, {plus}"#), [Some("R"), Some("R"), Some("S|D"), None]),
    ] {
        let format = format(&print_fmt);
        let compiled = PrintFmt::compile(&format, Machine::default(), &NoNames).unwrap();
        let field = compiled.named(format.field("u").unwrap().offset).unwrap();
        let found = [0_u32, 0x100, 0x103, 0x140].map(|value| {
            let mut record = record(Endian::Little);
            record[12..16].copy_from_slice(&value.to_le_bytes());
            let name = compiled.value_text(field, &record, &NoSymbols)?;
            Some(String::from_utf8(name).unwrap())
        });
        assert_eq!(found.each_ref().map(Option::as_deref), names, "{print_fmt}");
    }
}

#[test]
fn errors_tell_the_position_and_the_reason() {
    use PrintFmtErrorKind as Kind;
    for (print_fmt, at, kind) in [
        ("", 0, Kind::Empty),
        ("REC->i", 0, Kind::Expected { expected: "a string", found: "REC".into() }),
        ("\"%d\"", 0, Kind::MissingArgument(1)),
        ("\"%*d\", 1", 0, Kind::MissingArgument(2)),
        ("\"%y\", 1", 0, Kind::Conversion("y".into())),
        ("\"%\"", 0, Kind::Conversion(String::new())),
        ("\"%d\", REC->none", 11, Kind::NoField("none".into())),
        ("\"%d\", __get_str(none)", 16, Kind::NoField("none".into())),
        ("\"%d\", do_it(REC->i)", 6, Kind::Function("do_it".into())),
        ("\"%d\", (1", 8, Kind::Expected { expected: ")", found: "the end".into() }),
        ("\"%d\", 1 2", 8, Kind::Expected { expected: "the end", found: "2".into() }),
        ("\"%d\", REC->i[0]", 15, Kind::Operands("[]")),
        ("\"%d\", sizeof(struct x)", 12, Kind::TypeSize("struct x".into())),
        ("\"%d\", &3", 6, Kind::Operands("&")),
    ] {
        assert_eq!(error(print_fmt), PrintFmtError { at, kind }, "{print_fmt}");
    }
}

#[test]
fn depth_and_width_are_bounded() {
    let open = "(".repeat(5_000);
    assert_eq!(error(&format!("\"%d\", {open}")).kind, PrintFmtErrorKind::Depth);
    assert_eq!(error(&format!("\"%d\", {}1", "!".repeat(5_000))).kind, PrintFmtErrorKind::Depth);
    let sum = "REC->i + ".repeat(5_000);
    assert_eq!(error(&format!("\"%d\", {sum}1")).kind, PrintFmtErrorKind::Depth);
    let choice = "REC->i ? 1 : ".repeat(5_000);
    assert_eq!(error(&format!("\"%d\", {choice}1")).kind, PrintFmtErrorKind::Depth);
    assert_eq!(error(&format!("\"{}\"", "x".repeat(MAX_PRINT_FMT))).kind, PrintFmtErrorKind::TooLong);
    assert_eq!(print("\"%999999999d\", 1").len(), 4096);
    assert_eq!(print("\"%*d|%.*d\", 2147483647, 1, 2147483647, 1").len(), 4097 + (1 << 16));
    let wide = "%4000d".repeat(1000);
    assert_eq!(print(&format!("\"{wide}\"{}", ", 1".repeat(1000))).len(), MAX_TEXT);
}

/// What a text of a few kilobytes must not become: a tree that doubles with each call, copies of a table for
/// each use.
#[test]
fn hostile_texts_stay_small() {
    let calls = "__print_dynamic_array(nums, ".repeat(40);
    let nested = format!("\"%s\", {calls}4{}", ")".repeat(40));
    assert_eq!(print(&nested), "?");
    let whole = "__print_dynamic_array(nums, 4)";
    assert_eq!(
        print(&format!("\"%s\", {whole}")),
        print(
            "\"%s\", __print_array(__get_rel_dynamic_array(nums), __get_rel_dynamic_array_len(nums) / 4, 4)"
        )
    );
    assert_eq!(print("\"%s\", __print_dynamic_array(nums, 0)"), "?");

    let texts = "\"\",".repeat(8_000);
    let uses = ",t[0]".repeat(4_000);
    let many = format!(
        "\"%s\", ({{ const char *p = trace_seq_buffer_ptr(p); static const char *t[] = {{ {texts} }}; trace_seq_printf(p, \"{}\"{uses}); p; }})",
        "%s".repeat(4_000)
    );
    assert!(many.len() < MAX_PRINT_FMT, "{}", many.len());
    assert_eq!(print(&many), "");

    let names = (0..9_000).map(|n| format!("n{n}")).collect::<Vec<_>>().join(",");
    let compiled =
        PrintFmt::compile(&format(&format!("\"\",{names}")), Machine::default(), &NoNames).unwrap();
    assert_eq!(compiled.unresolved().len(), 9_000);

    let long = format!("\"%p\", (struct {} *)REC->i", "x".repeat(50_000));
    assert!(!print(&long).is_empty());
}

#[test]
fn short_records_are_survived() {
    let print_fmt = "\"%d %s %s %pI6c %s %s %s %c\", REC->i, __get_str(name), REC->comm, REC->ip6, \
                     __print_array(__get_rel_dynamic_array(nums), 8, 4), __get_cpumask(mask), \
                     __print_hex(REC->ip6, 90), REC->comm[99]";
    let compiled = PrintFmt::compile(&format(print_fmt), Machine::default(), &NoNames).unwrap();
    let whole = record(Endian::Little);
    for len in 0..=whole.len() {
        compiled.print(&whole[..len], &Known, &mut Vec::new());
    }
    let mut text = String::new();
    compiled.print(&[], &Known, &mut text);
    assert_eq!(text, "? ?  ? ? ?  \0");
    // Dynamic data at any offset, of any length.
    let mut damaged = whole.clone();
    for word in [0, 0xffff_ffff, 0xffff_0000, 0x0000_ffff, 0x0001_0083, 0x8000_0010] {
        for at in [64, 68, 72] {
            damaged[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
        }
        compiled.print(&damaged, &Known, &mut Vec::new());
    }
}

/// Marsaglia's xorshift: the same numbers each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// Texts as kernels have them, for all parts of the grammar.
const TEXTS: [&str; 12] = [
    "\"prev_comm=%s prev_state=%s%s\", REC->comm, (REC->l & ((((0x00000000 | 0x00000001) + 1) << 1) - 1)) ? __print_flags(REC->l & 3, \"|\", { 0x00000001, \"S\" }, { 0x00000002, \"D\" }) : \"R\", REC->l & 4 ? \"+\" : \"\"",
    "\"%d,%d %s (%s) %llu + %u\", ((unsigned int) ((REC->u) >> 20)), ((unsigned int) ((REC->u) & ((1U << 20) - 1))), REC->comm, __get_str(name), (unsigned long long)REC->q, REC->i",
    "\"gfp=%s\", (REC->u) ? __print_flags(REC->u, \"|\", {( unsigned long)((( gfp_t)((((1UL))) << (2)))), \"A\"}, {( unsigned long)( gfp_t)1, \"B\"}) : \"none\"",
    "\"page=%p pfn=0x%lx\", REC->q != -1UL ? (((struct page *)vmemmap_base) + (REC->q)) : ((void *)0), REC->q",
    "\"%s\", ({ int x_1 = (REC->i); int y_2 = (128); ((x_1) < (y_2) ? (x_1) : (y_2)); }) > 0 ? \"a\" : \"b\"",
    "\"%s %s\", __print_array(__get_rel_dynamic_array(nums), __get_rel_dynamic_array_len(nums) / sizeof(u32), sizeof(u32)), __print_dynamic_array(nums, sizeof(unsigned int))",
    "\"%s %s %s\", __get_cpumask(mask), __print_hex(REC->ip4, REC->i), __print_hex_dump(\"\", DUMP_PREFIX_ADDRESS, 16, 8, REC->ip6, 16, true)",
    "\"%pI4 %pI6c %pISpc %pU %pM %*phC %*pbl %pS\", REC->ip4, REC->ip6, REC->ip6, REC->id, REC->ip6, 6, REC->ip6, 64, __get_dynamic_array(mask), (void *)REC->text",
    "\"%-*.*s|%0*llx|%+5d|%#.3x|%c\", 10, 3, REC->comm, (int)8 * 2, REC->q, REC->i, REC->u, REC->b",
    "\"%s\", ({ const char *saved_ptr = trace_seq_buffer_ptr(p); static const char *access_str[] = { \"a\", \"b\" }; union kvm_mmu_page_role role; role.word = REC->u; trace_seq_printf(p, \"%u %s\" \" %c\", role.level, access_str[role.access], 0); saved_ptr; })",
    "\"%llu.%010lu %u %d %d\", __print_ns_to_secs(REC->q), __print_ns_without_secs(REC->q), jiffies_to_msecs(REC->u), sizeof(REC->id), strlen(__get_str(name))",
    "\"nvme: %scmd=(%s)\", nvme_trace_disk_name(p, REC->comm), ((REC->b) == nvme_fabrics_command ? nvme_trace_parse_fabrics_cmd(p, REC->b, REC->ip6) : nvme_trace_parse_nvm_cmd(p, 2, REC->comm))",
];

#[test]
fn changed_texts_are_survived() {
    const PARTS: [&str; 24] = [
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"",
        "%",
        "?",
        ":",
        "REC->q",
        "((",
        "-1",
        "<<",
        "__print_flags(",
        "&",
        "*",
        "0x7fffffffffffffff",
        "%*",
        "({",
        "; ",
        "(u64)",
        "99999",
    ];
    let mut random = Random(0x1234_5678_9abc_def1);
    let whole = record(Endian::Little);
    let mut compiled_ones = 0;
    for text in TEXTS {
        PrintFmt::compile(&format(text), Machine::default(), &NoNames).unwrap();
        for _ in 0..1500 {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                let end = (at + random.below(20)).min(bytes.len());
                match random.below(4) {
                    0 => drop(bytes.drain(at..end)),
                    1 => drop(bytes.splice(at..at, PARTS[random.below(PARTS.len())].bytes())),
                    2 => {
                        let copied = bytes[at..end].to_vec();
                        let to = random.below(bytes.len());
                        drop(bytes.splice(to..to, copied));
                    }
                    _ => {
                        if let Some(byte) = bytes.get_mut(at) {
                            *byte = random.below(127) as u8;
                        }
                    }
                }
            }
            let mut format = format("\"\"");
            format.print_fmt = String::from_utf8_lossy(&bytes).into_owned();
            let machine = Machine { endian: [Endian::Little, Endian::Big][random.below(2)], long_size: 8 };
            if let Ok(compiled) = PrintFmt::compile(&format, machine, &NoNames) {
                compiled_ones += 1;
                let mut damaged = whole.clone();
                for _ in 0..4 {
                    let at = random.below(damaged.len());
                    damaged[at] = random.below(256) as u8;
                }
                let mut out = Vec::new();
                compiled.print(&damaged[..random.below(damaged.len() + 1)], &Known, &mut out);
                assert!(out.len() <= MAX_TEXT);
            }
        }
    }
    assert!(compiled_ones > 1000, "only {compiled_ones} were understood");
}
