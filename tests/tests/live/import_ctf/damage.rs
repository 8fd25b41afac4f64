//! Traces that are damaged, or made to do harm: an error says where, and nothing is left behind.

use super::*;

/// A small trace of LTTng's layout, and the path of its metadata and of a stream.
fn a_trace(dir: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let (file, trace) = (dir.join("t.dat"), dir.join("trace"));
    let mut made = MadeUp::new(&["sched"]);
    for time in 0..2000 {
        made.at((1000 + time, 0), 5, "sched_waking", &[("pid", Is::Number(7)), ("comm", Is::Text(b"name"))]);
    }
    made.write(&file);
    export(&file, "lttng", &trace);
    let kernel = trace.join("kernel");
    (trace, kernel.join("metadata"), kernel.join("channel0_0"))
}

/// The import is refused with these texts, and leaves nothing.
#[track_caller]
fn refused(trace: &Path, texts: &[&str]) {
    let back = trace.parent().unwrap().join("back.dat");
    let ended = import(trace, &back);
    assert_ne!(ended.code(), 0, "{}", ended.err);
    let ended = ended.says(texts);
    assert!(!ended.err.contains("panicked") && !back.exists(), "{}", ended.err);
}

/// Metadata of plain text with one event of these fields.
fn plain(fields: &str) -> String {
    format!(
        "/* CTF 1.8 */\ntrace {{ major = 1; minor = 8; byte_order = le; }};\n\
         typealias integer {{ size = 8; }} := u8;\ntypealias integer {{ size = 32; }} := u32;\n\
         event {{ name = e; fields := struct {{ {fields} }}; }};\n"
    )
}

#[test]
fn damage_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, metadata, stream) = a_trace(dir.path());
    let (text, bytes) = (fs::read(&metadata).unwrap(), fs::read(&stream).unwrap());
    let back = dir.path().join("kept.dat");

    fs::write(&stream, &bytes[..bytes.len() - 100]).unwrap();
    refused(&trace, &["channel0_0", "byte 0", "it is cut off"]);
    let mut wrong = bytes.clone();
    wrong[0] ^= 1;
    fs::write(&stream, &wrong).unwrap();
    refused(&trace, &["channel0_0", "byte 0", "0xc1fc1fc0"]);
    wrong = bytes.clone();
    wrong[5] ^= 1;
    fs::write(&stream, &wrong).unwrap();
    refused(&trace, &["channel0_0", "UUID"]);
    // The first event's number.
    wrong = bytes.clone();
    wrong[84] = wrong[84] & !0x1f | 0x1e;
    fs::write(&stream, &wrong).unwrap();
    refused(&trace, &["channel0_0", "byte 84", "number 30"]);
    // Somewhere behind it: what is before can be kept.
    let mut again = bytes.clone();
    let second = bytes.len() as u64;
    again.extend_from_slice(&bytes);
    again[second as usize] ^= 1;
    fs::write(&stream, &again).unwrap();
    refused(&trace, &["channel0_0", &format!("byte {second}")]);
    let kept = run(agent("/".as_ref(), ["import", "--keep-going", "-o"]).arg(&back).arg(&trace)).expect(0);
    assert!(kept.err.contains("not carried over"), "{}", kept.err);
    is_whole(&back, 2000);

    fs::write(&stream, &bytes).unwrap();
    fs::write(&metadata, &text[..1000]).unwrap();
    refused(&trace, &["metadata", "packet at byte 0 is cut off"]);
    fs::write(&metadata, b"trace {").unwrap();
    refused(&trace, &["metadata", "neither with the magic number"]);
    fs::write(&metadata, "\u{1e}{\"type\": \"preamble\"}").unwrap();
    refused(&trace, &["metadata", "fragment 1", "version"]);
    fs::write(&metadata, "/* CTF 1.8 */\n\nfoo {").unwrap();
    refused(&trace, &["metadata", "line 3", "`foo`"]);
    fs::write(&metadata, "/* CTF 1.8 */").unwrap();
    refused(&trace, &["has no trace block"]);
}

#[test]
fn metadata_that_would_do_harm_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    fs::create_dir(&trace).unwrap();
    let put = |fields: &str, stream: &[u8]| {
        fs::write(trace.join("metadata"), plain(fields)).unwrap();
        fs::write(trace.join("stream"), stream).unwrap();
    };
    put("u32 n; u8 a[n];", &[0xff; 64]);
    refused(&trace, &["stream", "event.fields.a goes beyond the end"]);
    put("u8 a[18446744073709551615];", &[0; 64]);
    refused(&trace, &["goes beyond the end"]);
    put("u32 n; struct { } a[n];", &[0xff; 64]);
    refused(&trace, &["more than 1048576 values"]);
    put("", &[0; 64]);
    refused(&trace, &["takes no space"]);
    put("string a;", &[b'x'; 64]);
    refused(&trace, &["event.fields.a goes beyond the end"]);
    let deep = format!("{} u8 x; {}", "struct { ".repeat(100_000), "} y; ".repeat(100_000));
    put(&deep, &[0; 64]);
    refused(&trace, &["metadata", "nested in more than 32 levels"]);
    put("unknown x;", &[0; 64]);
    refused(&trace, &["metadata", "line 5", "no type unknown"]);
    put("variant <tag> { u8 a; } v;", &[0; 64]);
    refused(&trace, &["event.fields.v is chosen by tag, which is not before it"]);
    // Structures that become very many fields are one text.
    let mut wide = String::from("struct s0 { u8 x; };");
    for level in 1..25 {
        wide += &format!("struct s{level} {{ struct s{} a; struct s{} b; }};", level - 1, level - 1);
    }
    let back = dir.path().join("wide.dat");
    let text = plain("struct s10 x;").replace("event {", &format!("{wide} event {{"));
    fs::write(trace.join("metadata"), text).unwrap();
    fs::write(trace.join("stream"), [7; 3 << 10]).unwrap();
    import(&trace, &back).expect(0);
    is_whole(&back, 3);
    let event = &reported(&back)[0];
    assert!(event["fields"]["x"].as_str().unwrap().matches("x = 7").count() == 1 << 10, "{event}");
    let text = plain("struct s24 x;").replace("event {", &format!("{wide} event {{"));
    fs::write(trace.join("metadata"), text).unwrap();
    fs::write(trace.join("stream"), vec![7; 16 << 20]).unwrap();
    refused(&trace, &["more than 1048576 values"]);
}

#[test]
fn what_is_no_trace_or_several_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, metadata, _) = a_trace(dir.path());
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    refused(&empty, &["empty"]);
    // Two recordings below a directory.
    let both = dir.path().join("both");
    for name in ["one", "two"] {
        fs::create_dir_all(both.join(name)).unwrap();
        run(&mut program(
            "/".as_ref(),
            "cp",
            ["-r".as_ref(), trace.as_os_str(), both.join(name).as_os_str()],
        ))
        .expect(0);
    }
    refused(&both, &["has 2 traces", "name one of them"]);
    let one = both.join("one");
    import(&one, &dir.path().join("one.dat")).expect(0);
    // A link is not followed.
    fs::remove_file(&metadata).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &metadata).unwrap();
    refused(&trace, &[]);
}
