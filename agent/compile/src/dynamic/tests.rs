//! From the text of a probe to its record and its program.

use super::{
    FreeNames,
    compile::{self, CompileError, compile},
    fetch::{Fetch, Kind, Style},
    layout::Layout,
    spec::{At, Side, Spec, SpecError, SpecErrorKind, behind_path, name_from, number, parse, quoted},
    stage::Stage,
};
use crate::context::Contexts;
use crate::filter::Facts;
use crate::probe_filter::{ProbeFilterError, ProbeRule};
use crate::shape::FieldClash;
use bpf::preemption::Preemption;
use ftrace_event::Format;
use ftrace_event::context::Context as Known;
use ftrace_event::filter::{Dialect, Filter};
use spec::Context;
use spec::TraceClock;

const KERNEL: At = At { side: Side::Kernel, returns: false };

fn spec(text: &str) -> Spec {
    parse(text, KERNEL, &Contexts::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// What goes with a probe.
struct Wanted {
    filter: Option<Filter>,
    contexts: Contexts,
    facts: Facts,
}

impl Wanted {
    fn new(filter: &str, contexts: &[Context]) -> Self {
        let filter = (!filter.is_empty()).then(|| Filter::parse_expression(filter, Dialect::Ftrace).unwrap());
        let mut wanted =
            Self { filter, contexts: Contexts::default(), facts: Facts::new(TraceClock::Mono, None) };
        wanted.contexts.add(contexts);
        wanted
    }

    fn rule(&self) -> ProbeRule<'_> {
        let Self { filter, contexts, facts } = self;
        ProbeRule { filter: filter.as_ref(), question: None, contexts, facts, id: 20_000, force: false }
    }
}

fn layout(text: &str, wanted: &Wanted) -> Layout {
    Layout::new("kprobes", "probe", (false, false), &spec(text).arguments, &wanted.rule()).unwrap()
}

#[test]
fn a_text_is_taken_apart() {
    let text = "grp/name=do_it+0x10 n=%di:s32 +8(+u4($arg2)):u16[3] who=$comm path=+0(%si):ustring \
        low=%cx:b4@4/32 five=\\-5:s8 said=\\\"a:b\" slot=$stack2";
    let Spec { group, name, point, arguments, .. } = spec(text);
    assert_eq!(
        (group.as_deref(), name.as_deref(), point.as_str()),
        (Some("grp"), Some("name"), "do_it+0x10")
    );
    let number = |size, style| Kind::Number { size, style };
    let shapes: Vec<_> = arguments.iter().map(|one| (one.name.as_str(), one.kind, one.count)).collect();
    assert_eq!(
        shapes,
        [
            ("n", number(4, Style::Signed), None),
            ("arg2", number(2, Style::Unsigned), Some(3)),
            ("who", Kind::Text { user: false }, None),
            ("path", Kind::Text { user: true }, None),
            ("low", Kind::Bits { width: 4, offset: 4, size: 4, signed: false }, None),
            ("five", number(1, Style::Signed), None),
            ("said", Kind::Text { user: false }, None),
            ("slot", number(8, Style::Hexadecimal), None),
        ]
    );
    let Fetch::Memory { offset: 8, user: false, of } = &arguments[1].fetch else { panic!("{arguments:?}") };
    assert!(matches!(**of, Fetch::Memory { offset: 4, user: true, .. }), "{of:?}");
    assert_eq!(arguments[5].fetch, Fetch::Constant(5_u64.wrapping_neg()));
    assert_eq!(arguments[6].fetch, Fetch::Text("a:b".to_owned()));
    assert_eq!(arguments[7].fetch, Fetch::StackSlot(2));
    // Names of C++ have blanks, and paths may have a `=`.
    assert_eq!(
        spec("std::map<int, long>::at(int const&) n=%di").point,
        "std::map<int, long>::at(int const&)"
    );
    assert_eq!(spec("/opt/a=b:main").point, "/opt/a=b:main");
}

#[test]
fn a_mistake_is_told_with_its_location() {
    let mut different = Vec::new();
    for (text, part, said) in [
        ("", "", "an attach point is missing"),
        ("name=", "name=", "an attach point is missing"),
        ("1st=do_it", "1st", "a name consists of"),
        ("g-1/name=do_it", "g-1", "a name consists of"),
        ("do_it a=%di a=%si", "a=%si", "another argument with this name"),
        ("do_it a=%dj", "%dj", "no such register"),
        ("do_it a=$nothing", "$nothing", "no such variable"),
        ("do_it a=$retval", "$retval", "--kretprobe"),
        ("do_it a=$arg9", "$arg9", "only arguments 1 to 6"),
        ("do_it a=%di:u33", "u33", ""),
        ("do_it a=%di:string", "a=%di:string", "is in memory"),
        ("do_it a=+0(%di):u8[65]", "65]", "1 to 64 elements"),
        ("do_it a=+0(%di):string[2]", "a=+0(%di):string[2]", "arrays of strings"),
        ("do_it a=$comm:u32", "a=$comm:u32", "only type for it is string"),
        ("do_it a=+0(%di", "", "bracket"),
        ("do_it a=+x(%di)", "x", "a number is expected"),
        ("do_it a=\\x", "x", "a number is expected"),
        ("do_it a=@+16", "", "@ADDRESS or @SYMBOL"),
        ("do_it what", "what", ""),
    ] {
        let error = parse(text, KERNEL, &Contexts::default()).unwrap_err();
        if !text[error.at.clone()].contains(part) || !error.kind.to_string().contains(said) {
            different.push(error.to_string());
        }
    }
    assert!(different.is_empty(), "{different:#?}");
    let deep = format!("do_it a={}%di{}", "+0(".repeat(20), ")".repeat(20));
    assert!(parse(&deep, KERNEL, &Contexts::default()).unwrap_err().to_string().contains("nested too deep"));
    let many = format!("do_it {}", (0..200).map(|at| format!("a{at}=%di")).collect::<Vec<_>>().join(" "));
    assert!(parse(&many, KERNEL, &Contexts::default()).unwrap_err().to_string().contains("at most"));
    let back = At { side: Side::User, returns: true };
    assert!(
        parse("p:f a=$arg1", back, &Contexts::default())
            .unwrap_err()
            .to_string()
            .contains("arguments are no longer available")
    );
}

#[test]
fn no_argument_has_the_name_of_another_field() {
    let counter: Context = "perf:cpu-clock".parse().unwrap();
    let wanted = Wanted::new("", &[Context::Known(Known::Uid), counter]);
    let clash = |text: &str, side| {
        let at = At { side, returns: false };
        match parse(text, at, &wanted.contexts) {
            Err(SpecError { kind: SpecErrorKind::Field(clash), at, .. }) => {
                Some((clash, text[at].to_owned()))
            }
            Err(error) => panic!("{error}"),
            Ok(_) => None,
        }
    };
    for side in [Side::Kernel, Side::User, Side::Marker] {
        for name in [
            "common_type",
            "common_flags",
            "common_preempt_count",
            "common_pid",
            "common_tgid",
            "__probe_ip",
            "__probe_func",
            "__probe_ret_ip",
        ] {
            let argument = format!("{name}=%di");
            let expected = (FieldClash::Record(name.to_owned()), argument.clone());
            assert_eq!(clash(&format!("/x:f a=%di {argument}"), side), Some(expected));
        }
        // Readers know the fields of contexts by their names.
        for name in ["ctx_uid", "ctx_comm"] {
            let expected = (FieldClash::Context(name.to_owned()), format!("{name}=%di"));
            assert_eq!(clash(&format!("/x:f {name}=%di"), side), Some(expected));
        }
        let same = (FieldClash::Argument("arg2".to_owned()), "%si".to_owned());
        assert_eq!(clash("/x:f arg2=%di %si", side), Some(same));
        assert_eq!(clash("/x:f common=%di uid=%di ip=%si ctx_mine=%si", side), None);
    }
}

#[test]
fn a_path_in_quotes_may_have_anything() {
    let at = At { side: Side::User, returns: false };
    let read = |text: &str| parse(text, at, &Contexts::default());
    for path in ["/opt/my app/x", "/a=b (c)/\"q\" \\ x", "name", "/opt/a<b", "/x:y"] {
        for name in ["", "name=", "grp/name="] {
            let spec = read(&format!("{name}{}:f<int, long>(int)+0x10 n=%di s=%si", quoted(path))).unwrap();
            let expected = if quoted(path).starts_with('"') { "" } else { "name:" };
            assert_eq!(spec.path.as_deref().unwrap_or("name"), path, "{name}");
            assert_eq!(spec.point, format!("{expected}f<int, long>(int)+0x10"));
            assert_eq!((spec.arguments.len(), spec.name.is_some()), (2, !name.is_empty()));
        }
    }
    for text in ["\"/opt/x", "\"/opt/x\"", "\"/opt/x\":", "n=\"/opt/x\" :f", "\"/opt/x\\\":f"] {
        let error = read(text).unwrap_err();
        assert_eq!(error.kind, SpecErrorKind::Quote, "{text}");
    }
    // What is quoted later, or in the kernel, is not a path.
    assert_eq!(read("/x:operator\"\"_km").unwrap().point, "/x:operator\"\"_km");
    assert!(parse("\"f\"", KERNEL, &Contexts::default()).is_ok());
}

#[test]
fn what_follows_a_path_is_found() {
    for (text, expected) in [
        ("/usr/lib/x.so:prov:mark", Some("prov:mark")),
        ("/a:b/x.so:prov:mark a=arg1", Some("prov:mark a=arg1")),
        ("\"/a b/x=1\":prov:mark", Some("prov:mark")),
        ("name=/x:prov:mark", None),
        ("\"/a b", None),
        ("x", None),
        ("", None),
    ] {
        assert_eq!(behind_path(text), expected, "{text}");
    }
}

#[test]
fn what_is_written_for_tracefs_is_translated() {
    let ours = |text: &str, side| match parse(text, At { side, returns: false }, &Contexts::default()) {
        Err(SpecError { kind: SpecErrorKind::Tracefs { option, text }, .. }) => format!("{option} {text}"),
        Err(error) => format!("{:?}", error.kind),
        Ok(spec) => spec.point,
    };
    for (text, side, expected) in [
        ("p:grp/name /bin/bash:0x123 a=%di", Side::User, "--uprobe grp/name=/bin/bash:0x123 a=%di"),
        ("p:grp.name /bin/bash:0x123", Side::User, "--uprobe grp/name=/bin/bash:0x123"),
        ("r:name /bin/bash:0x123 $retval", Side::User, "--uretprobe name=/bin/bash:0x123 $retval"),
        ("p /bin/bash:0x123", Side::User, "--uprobe /bin/bash:0x123"),
        ("p:grp/ /bin/bash:0x1%return", Side::Marker, "--uretprobe /bin/bash:0x1"),
        ("p:name do_sys_open dfd=%ax", Side::Kernel, "--kprobe name=do_sys_open dfd=%ax"),
        ("r5:name vfs_read $retval", Side::Kernel, "--kretprobe name=vfs_read $retval"),
        ("f:name vfs_read count", Side::Kernel, "--fentry name=vfs_read count"),
        ("f vfs_read%return", Side::Kernel, "--fexit vfs_read"),
        // A function of a program called p, and one of a module.
        ("p:f a=+0(%di):string", Side::User, "p:f"),
        ("p:f $arg1", Side::User, "p:f"),
        ("p:f \\\"/a:b", Side::User, "p:f"),
        ("p:f %di", Side::Kernel, "p:f"),
        ("r", Side::Kernel, "r"),
    ] {
        assert_eq!(ours(text, side), expected, "{text}");
    }
}

#[test]
fn names_of_a_patterns_events_are_numbered() {
    let taken = |group: &str, name: &str| group == "uprobes" && name == "malloc";
    let mut names = FreeNames::new(&taken);
    let long = "x".repeat(64);
    let given = [("uprobes", "malloc"), ("uprobes", "malloc"), ("other", "malloc"), ("uprobes", &long)]
        .map(|(group, name)| names.take(group, name));
    assert_eq!(given, ["malloc_1", "malloc_2", "malloc", &long].map(str::to_owned));
    assert_eq!(names.take("uprobes", &long), format!("{}_1", "x".repeat(62)));
}

#[test]
fn names_and_numbers() {
    assert_eq!(
        (number("0x1f"), number("17"), number("0x"), number("+1"), number("")),
        (Some(31), Some(17), None, None, None)
    );
    assert_eq!(
        (name_from("a::b<c>"), name_from("9p"), name_from("")),
        ("a__b_c_".into(), "_9p".into(), "_".into())
    );
}

#[test]
fn records_are_laid_out_as_the_kernel_does() {
    let none = Wanted::new("", &[]);
    let layout = layout("do_it byte=%di:u8 n=%si:s64 path=+0(%dx):string three=+0(%cx):u16[3]", &none);
    // Without gaps, and the text after them.
    assert_eq!((layout.offsets.as_slice(), layout.fixed), (&[16, 17, 25, 29][..], 35));
    let text = layout.recorded_shape().text(20_000);
    for line in [
        "\tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;\n",
        "\tfield:u8 byte;\toffset:16;\tsize:1;\tsigned:0;\n",
        "\tfield:s64 n;\toffset:17;\tsize:8;\tsigned:1;\n",
        "\tfield:__data_loc char[] path;\toffset:25;\tsize:4;\tsigned:1;\n",
        "\tfield:u16 three[3];\toffset:29;\tsize:6;\tsigned:0;\n",
        "print fmt: \"(%lx) byte=%u n=%Ld path=\\\"%s\\\" three={%u,%u,%u}\", REC->__probe_ip, REC->byte, REC->n, \
         __get_str(path), REC->three[0], REC->three[1], REC->three[2]\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let strings = (0..100).map(|at| format!("t{at}=+0(%di):string")).collect::<Vec<_>>().join(" ");
    let spec = spec(&format!("do_it {strings}"));
    assert!(Layout::new("g", "n", (false, false), &spec.arguments, &none.rule()).is_none());
}

#[test]
fn contexts_stand_between_arguments_and_texts() {
    let wanted = Wanted::new("", &[Known::Comm, Known::Pid].map(Context::Known));
    let layout = layout("do_it byte=%di:u8 path=+0(%dx):string", &wanted);
    assert_eq!(layout.fixed, 8 + 8 + 1 + 4 + 16 + 4);
    let format = Format::parse(&layout.recorded_shape().text(20_000)).unwrap();
    let point = |name: &str| format.field(name).map(|field| (field.offset, field.size));
    assert_eq!((point("ctx_comm"), point("ctx_pid")), (Some((21, 16)), Some((37, 4))));
    let text = layout.recorded_shape().print_fmt;
    assert!(text.contains("path=\\\"%s\\\" ctx_comm=%s ctx_pid=%d\", "), "{text}");
    assert!(text.ends_with("__get_str(path), REC->ctx_comm, REC->ctx_pid"), "{text}");
}

#[test]
fn a_filter_sees_only_what_it_asks_for() {
    let text = "do_it byte=%di:u8 n=%si:s64 path=+0(%dx):string more=+0(%cx):string small=%di:u16 last=+0(%cx):string";
    let wanted = Wanted::new("n > 1 && path == \"x\" && small != 3", &[]);
    let layout_of_all = layout(text, &wanted);
    let stage = Stage::new(&layout_of_all, &wanted.rule(), false).unwrap().unwrap();
    let points: Vec<_> = stage.arguments.iter().map(|one| (one.index, one.offset)).collect();
    // At multiples of their sizes, as the stack is accessed.
    assert_eq!((points, stage.addresses.len()), (vec![(1, 8), (2, 16), (4, 20)], 0));
    assert_eq!((stage.arguments[1].text_at, stage.size % 8), (22, 0));
    let all = Wanted::new("t0 ~ \"*a*\" && t1 ~ \"*a*\" && t2 ~ \"*a*\" && t3 ~ \"*a*\"", &[]);
    let many = layout("do_it t0=+0(%di):string t1=+0(%di):string t2=+0(%di):string t3=+0(%di):string", &all);
    assert!(matches!(Stage::new(&many, &all.rule(), false), Err(ProbeFilterError::Room(_))));
}

#[test]
fn every_fetch_becomes_code_but_what_was_not_looked_up() {
    let wanted = Wanted::new("n == 1 && text ~ \"*a\"", &[Known::Tid, Known::Comm].map(Context::Known));
    let code = |text: &str| {
        let spec = spec(text);
        let layout = layout(text, &wanted);
        let stage = Stage::new(&layout, &wanted.rule(), false).unwrap();
        let program = compile::Program {
            layout: &layout,
            arguments: &spec.arguments,
            preemption: Preemption::Off,
            user: false,
            address: compile::ProbeAddress::Instruction,
            touch: true,
            function: compile::FunctionAddress::Helper,
            stage: stage.as_ref(),
        };
        compile(&program).map(drop)
    };
    let known = "do_it n=%di:u32 text=+0(%si):string a=+8(+u4($arg2)):u16[3] b=$comm c=\\5 d=\\\"text\" e=%cx:b4@4/32 f=$stack1 \
        g=@0xffffffff81000000 h=$stack i=%dx:symbol j=%dx:char k=-8(%bp):ustring";
    assert_eq!(code(known), Ok(()));
    assert_eq!(code("do_it n=%di:u32 text=+0(%si):string a=@jiffies"), Err(CompileError::Unresolved));
}
