use super::*;

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

fn text(fields: &str, print_fmt: &str) -> String {
    format!("name: test\nID: 374\nformat:\n{COMMON}\n{fields}\nprint fmt: {print_fmt}\n")
}

fn parse(fields: &str, print_fmt: &str) -> Format {
    Format::parse(&text(fields, print_fmt)).unwrap()
}

fn field(declaration: &str) -> Field {
    Field::parse(&format!("{declaration};\toffset:8;\tsize:8;\tsigned:0;")).unwrap()
}

#[test]
fn a_whole_format() {
    let format = parse(
        "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n",
        "\"comm=%s pid=%d\", REC->comm, REC->pid",
    );
    assert_eq!((format.name.as_str(), format.id), ("test", 374));
    assert_eq!((format.common.len(), format.fields.len()), (4, 2));
    assert_eq!(format.print_fmt, "\"comm=%s pid=%d\", REC->comm, REC->pid");
    let pid = format.field("pid").unwrap();
    assert_eq!((pid.type_text.as_str(), pid.offset, pid.size, pid.signed), ("pid_t", 24, 4, true));
    assert_eq!(format.field("common_pid").map(|field| field.offset), Some(4));
    assert_eq!(format.field("nothing"), None);
}

#[test]
fn declarations() {
    for (declaration, type_text, name, array, location) in [
        ("char comm[16]", "char", "comm", Array::Fixed(16), Location::Inline),
        ("unsigned long args[6]", "unsigned long", "args", Array::Fixed(6), Location::Inline),
        ("char c[TASK_COMM_LEN]", "char", "c", Array::Constant("TASK_COMM_LEN".into()), Location::Inline),
        ("u32 buf[]", "u32", "buf", Array::Open, Location::Inline),
        ("__data_loc char[] name", "char", "name", Array::Open, Location::DataLoc),
        ("__rel_loc u8[] data", "u8", "data", Array::Open, Location::RelLoc),
        ("__data_loc unsigned long[] v", "unsigned long", "v", Array::Open, Location::DataLoc),
        ("__data_loc cpumask_t mask", "cpumask_t", "mask", Array::Single, Location::DataLoc),
        ("const char * filename", "const char *", "filename", Array::Single, Location::Inline),
        ("const char *filename", "const char *", "filename", Array::Single, Location::Inline),
        ("const void* p", "const void*", "p", Array::Single, Location::Inline),
        ("const char *const * argv", "const char *const *", "argv", Array::Single, Location::Inline),
        ("void __seg_gs * gs", "void __seg_gs *", "gs", Array::Single, Location::Inline),
        ("enum hrtimer_mode mode", "enum hrtimer_mode", "mode", Array::Single, Location::Inline),
    ] {
        let field = field(declaration);
        assert_eq!((field.type_text.as_str(), field.name.as_str()), (type_text, name), "{declaration}");
        assert_eq!((field.array, field.location), (array, location), "{declaration}");
    }
}

#[test]
fn a_declaration_is_written_as_it_was_read() {
    for declaration in [
        "char comm[16]",
        "__data_loc char[] name",
        "__data_loc char[][2] names",
        "__rel_loc u8[] x",
        "const char * s",
        "u32 b[]",
    ] {
        assert_eq!(field(declaration).to_string(), declaration);
    }
}

#[test]
fn event_without_own_fields_or_print_fmt() {
    let format = Format::parse(&format!("name: bare\nID: 1\nformat:\n{COMMON}\n")).unwrap();
    assert_eq!((format.common.len(), format.fields.len(), format.print_fmt.as_str()), (4, 0, ""));
}

#[test]
fn print_fmt_of_several_lines() {
    assert_eq!(parse("", "\"a\n\", REC->x,\n\tREC->y").print_fmt, "\"a\n\", REC->x,\n\tREC->y");
    let no_line_end = text("", "\"x\"");
    assert_eq!(Format::parse(no_line_end.trim_end()).unwrap().print_fmt, "\"x\"");
}

#[test]
fn symbols_in_the_format_string() {
    for print_fmt in [
        "\"%pS\", x",
        "\"at %ps\"",
        "\"%pB\"",
        "\"%pF\"",
        "\"%pf\"",
        "\"%-10pS\"",
        "\"\\\"%pS\"",
        "\"%d\" \"%ps\"",
    ] {
        assert!(parse("", print_fmt).prints_symbols(), "{print_fmt}");
    }
    for print_fmt in
        ["\"%%pS\"", "\"%p\", S", "\"%pI4\"", "\"%d\", a %ps", "\"100%%%px\"", "", "\"%", "\"\\", "\"%p"]
    {
        assert!(!parse("", print_fmt).prints_symbols(), "{print_fmt}");
    }
    assert!(parse("", "\"%%%pS\"").prints_symbols());
}

#[test]
fn errors_tell_the_line() {
    let error = |text: &str| Format::parse(text).unwrap_err();
    let in_field = |line: &str| error(&text(line, ""));
    assert_eq!(error(""), FormatError { line: 0, kind: FormatErrorKind::Missing("name:") });
    assert_eq!(error("name: x\n"), FormatError { line: 1, kind: FormatErrorKind::Missing("ID:") });
    assert_eq!(error("name: x\nID: 1\n"), FormatError { line: 2, kind: FormatErrorKind::Missing("format:") });
    assert_eq!(error("name: x y\n").kind, FormatErrorKind::Name("x y".into()));
    for id in ["65536", "-1", "", "x", "99999999999999999999"] {
        let kind = FormatErrorKind::Number { keyword: "ID:", text: id.into() };
        assert_eq!(error(&format!("name: x\nID: {id}\n")), FormatError { line: 2, kind });
    }
    assert_eq!(error("name: x\nfield:int a;\n").kind, FormatErrorKind::Missing("format:"));
    assert_eq!(
        in_field("what is this\n"),
        FormatError { line: 9, kind: FormatErrorKind::Unexpected("what is this".into()) }
    );
    assert_eq!(in_field("field:int a;\n").kind, FormatErrorKind::Missing("offset:"));
    assert_eq!(in_field("field:int a;\toffset:8;\n").kind, FormatErrorKind::Missing("size:"));
    assert_eq!(in_field("field:a;\toffset:8;\tsize:4;\n").kind, FormatErrorKind::Declaration("a".into()));
    for declaration in
        ["", "int", "]", "int a]", "int a[2", "[3] a", "int *", "int a[1][2]", "char[2][3] a", "ä"]
    {
        assert!(
            matches!(
                in_field(&format!("field:{declaration};\toffset:8;\tsize:4;\tsigned:0;\n")).kind,
                FormatErrorKind::Declaration(_)
            ),
            "{declaration}"
        );
    }
    assert_eq!(
        in_field("field:int a;\toffset:65535;\tsize:2;\n").kind,
        FormatErrorKind::FieldEnd("a".into())
    );
    assert_eq!(
        in_field("field:int a;\toffset:4294967295;\tsize:4294967295;\n").kind,
        FormatErrorKind::FieldEnd("a".into())
    );
}

/// smbus of Linux 5.15 to 6.1, `ftrace:branch`, and constants that kernels before 6.2 do not calculate.
#[test]
fn bounds_of_arrays_may_be_expressions() {
    for (declaration, bound, size, element) in [
        ("__u8 buf[32 + 2]", "32 + 2", 34, Some(1)),
        ("char func[30+1]", "30+1", 31, Some(1)),
        ("u32 regs[(2 * N_REGS)]", "(2 * N_REGS)", 16, Some(4)),
        ("struct pair p[1 << 1]", "1 << 1", 16, None),
    ] {
        let field = Field::parse(&format!("{declaration};\toffset:8;\tsize:{size};\tsigned:0;")).unwrap();
        assert_eq!(field.array, Array::Constant(bound.to_owned()));
        assert_eq!((field.element_size(), field.size), (element, size), "{declaration}");
        assert_eq!(field.to_string(), declaration);
    }
    let field = parse("\tfield special:char buf;\toffset:8;\tsize:0;\tsigned:0;\n", "").fields.remove(0);
    assert!(field.is_open() && field.name == "buf");
}

#[test]
fn fields_of_one_name_are_told_apart() {
    // regcache_sync, and a call of kernels before 4.6 whose number is called as one of its arguments.
    let own = "\tfield:__data_loc char[] type;\toffset:8;\tsize:4;\tsigned:0;
\tfield:int type_2;\toffset:12;\tsize:4;\tsigned:1;
\tfield:int type;\toffset:16;\tsize:4;\tsigned:1;
\tfield:int nr;\toffset:20;\tsize:4;\tsigned:1;
\tfield:long nr;\toffset:24;\tsize:8;\tsigned:1;
\tfield:int common_pid;\toffset:32;\tsize:4;\tsigned:1;";
    let format = parse(own, "");
    let names: Vec<_> =
        format.fields.iter().map(|field| (field.name.as_str(), field.declared_name())).collect();
    let expected = [
        ("type", "type"),
        ("type_2", "type_2"),
        ("type_3", "type"),
        ("nr", "nr"),
        ("nr_2", "nr"),
        ("common_pid_2", "common_pid"),
    ];
    assert_eq!(names, expected);
    assert_eq!(format.fields[2].to_string(), "int type");
    let member = |name, dynamic| format.member(name, dynamic).map(|field| field.offset);
    assert_eq!((member("type", true), member("type", false)), (Some(8), Some(16)));
    assert_eq!((member("nr", false), member("nr", true)), (Some(24), Some(20)));
    assert_eq!(format.field("nr").map(|field| field.offset), Some(20));
    assert_eq!((member("common_pid", false), member("nothing", false)), (Some(32), None));
}

#[test]
fn error_texts_stay_short() {
    let error = Format::parse(&"x".repeat(1 << 20)).unwrap_err();
    assert!(error.to_string().len() < 200, "{error}");
}

#[test]
fn any_cut_and_any_changed_byte_is_survived() {
    let whole = text("\tfield:__data_loc char[] n[2];\toffset:8;\tsize:4;\tsigned:0;\n", "\"%pS\\\" %%\", x");
    for at in 0..whole.len() {
        let _ = Format::parse(&whole[..at]);
        for byte in [0, b'\n', b';', b'[', b']', b'9', b'"', b'%', b' '] {
            let mut bytes = whole.clone().into_bytes();
            bytes[at] = byte;
            if let Ok(format) = Format::parse(&String::from_utf8(bytes).unwrap()) {
                format.prints_symbols();
                format.record_layout();
            }
        }
    }
}

#[test]
fn name_and_number_alone() {
    assert_eq!(name_and_id("name: x\nID: 70000\nformat:\nID: 3\n"), Some(("x", 70000)));
    assert_eq!(name_and_id("name: x\nformat:\nID: 3\n"), None);
}
