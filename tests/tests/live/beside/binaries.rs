//! What the agent finds in user-space binaries is what binutils finds there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use elf::BinaryError;
use elf::symbols::{Functions, LookupError, SymbolTable};
use elf::usdt::{Markers, Operand};
use integration_tests::binaries::{Link, code_of, compile, nm, tool};
use integration_tests::harness::{Ended, agent, run};
use tempfile::tempdir;

const LINKS: [(Link, &str); 3] = [(Link::Pie, "pie"), (Link::Fixed, "fixed"), (Link::Library, "library.so")];

fn list(dir: &Path, args: &[&str]) -> Ended {
    run(&mut agent(dir, [&["list"], args].concat()))
}

/// Panics unless every function's offset holds the code that objdump shows for it.
fn assert_code(dir: &Path, name: &str, functions: &Functions, wanted: &[&str]) {
    let file = fs::read(functions.path()).unwrap();
    for function in wanted {
        let found = functions.find(function).unwrap();
        assert_eq!(found.len(), 1, "{function}");
        let code = code_of(dir, name, &found[0].name);
        assert!(code.len() > 4, "objdump shows no code of {function}");
        let offset = usize::try_from(found[0].offset).unwrap();
        assert_eq!(&file[offset..offset + code.len()], code, "{function} in {name}");
    }
}

#[test]
fn functions_are_those_of_nm_at_the_offsets_of_their_code() {
    let dir = tempdir().unwrap();
    for (link, name) in LINKS {
        let path = compile(dir.path(), name, link);
        let functions = Functions::of(&path).unwrap();
        // Labels without a type are in nm's list and no functions: what the C library's start files bring.
        let of_nm = nm(dir.path(), &[name]);
        let ours: BTreeMap<String, u64> =
            functions.all().iter().map(|function| (function.name.clone(), function.address)).collect();
        for (function, address) in &ours {
            assert_eq!(of_nm.get(function), Some(address), "{function} in {name}");
        }
        for wanted in ["work", "alias", "hidden", "entry", "_ZN5outer5inner6memberEi"] {
            assert!(ours.contains_key(wanted), "{wanted} is missing in {name}");
        }
        // objdump shows the code of `work` under its alias.
        assert_code(dir.path(), name, &functions, &["alias", "hidden", "entry"]);
        assert!(!functions.is_stripped());
        // An alias is another name of one place.
        assert_eq!(functions.find("work").unwrap()[0].offset, functions.find("alias").unwrap()[0].offset);
        assert_eq!(
            functions.find("*").unwrap().iter().filter(|f| f.name == "work" || f.name == "alias").count(),
            1
        );
    }
}

#[test]
fn mangled_names_are_found_by_the_names_that_people_write() {
    let dir = tempdir().unwrap();
    let functions = Functions::of(&compile(dir.path(), "program", Link::Pie)).unwrap();
    for name in ["outer::inner::member", "outer::inner::member(int)", "outer::*", "_ZN5outer5inner6memberEi"]
    {
        let found = functions.find(name).unwrap();
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(found[0].demangled(), "outer::inner::member(int)");
    }
    assert_eq!(functions.find("test::rusty").unwrap()[0].name, "_ZN4test5rusty17h0123456789abcdefE");
    let listed = list(dir.path(), &["--symbols", "program", "--match", "outer::*"]).expect(0).out;
    assert!(listed.contains("_ZN5outer5inner6memberEi  outer::inner::member(int)"), "{listed}");
}

#[test]
fn what_strip_took_away_is_found_in_debug_files() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    compile(dir, "full", Link::Pie);
    let complete = nm(dir, &["full"]);
    tool(dir, "objcopy", &["--only-keep-debug", "full", "full.debug"]);
    tool(dir, "strip", &["-o", "bare", "full"]);

    let bare = Functions::of(&dir.join("bare")).unwrap();
    assert!(bare.is_stripped());
    let error = bare.find("work").unwrap_err().to_string();
    assert!(error.contains("has no function work") && error.contains("stripped"), "{error}");

    tool(dir, "objcopy", &["--add-gnu-debuglink=full.debug", "bare", "linked"]);
    let linked = Functions::of(&dir.join("linked")).unwrap();
    assert_eq!(linked.debug_file().unwrap().file_name().unwrap(), "full.debug");
    let hidden = linked.find("hidden").unwrap()[0];
    assert_eq!((hidden.address, hidden.table), (complete["hidden"], SymbolTable::DebugFile));
    let file = fs::read(dir.join("linked")).unwrap();
    let code = code_of(dir, "full", "hidden");
    assert_eq!(&file[hidden.offset as usize..][..code.len()], code);

    // Somebody else's debug file of the same name is not taken: its checksum differs.
    fs::write(dir.join("full.debug"), fs::read(dir.join("full")).unwrap()).unwrap();
    assert_eq!(Functions::of(&dir.join("linked")).unwrap().debug_file(), None);

    // As Fedora makes it: the functions that .dynsym lacks, compressed, in a section of the binary.
    tool(
        dir,
        "objcopy",
        &["-S", "--remove-section", ".comment", "--keep-symbol=hidden", "--keep-symbol=work", "full", "mini"],
    );
    tool(dir, "xz", &["-k", "mini"]);
    tool(dir, "objcopy", &["--add-section", ".gnu_debugdata=mini.xz", "bare", "small"]);
    let small = Functions::of(&dir.join("small")).unwrap();
    let hidden = small.find("hidden").unwrap()[0];
    assert_eq!((hidden.address, hidden.table), (complete["hidden"], SymbolTable::MiniDebugInfo));
    assert!(!small.is_stripped());
}

#[test]
fn markers_are_those_of_readelf() {
    let dir = tempdir().unwrap();
    for (link, name) in LINKS {
        let path = compile(dir.path(), name, link);
        let markers = Markers::of(&path).unwrap();
        let notes = tool(dir.path(), "readelf", &["-nW", name]);
        let value = |line: &str, key: &str| {
            line.split(&format!("{key}: "))
                .nth(1)
                .map(|rest| rest.split([',', '\n']).next().unwrap().trim().to_owned())
        };
        let number =
            |text: Option<String>| u64::from_str_radix(text.unwrap().trim_start_matches("0x"), 16).unwrap();
        let mut expected = Vec::new();
        let mut lines = notes.lines().map(str::trim);
        while let Some(line) = lines.next() {
            let Some(provider) = value(line, "Provider") else { continue };
            let marker = value(lines.next().unwrap(), "Name").unwrap();
            let places = lines.next().unwrap();
            let (address, semaphore) =
                (number(value(places, "Location")), number(value(places, "Semaphore")));
            let arguments = lines.next().unwrap().strip_prefix("Arguments:").unwrap().trim().to_owned();
            expected.push((provider, marker, address, semaphore, arguments));
        }
        expected.sort();
        let ours: Vec<_> = markers
            .all()
            .iter()
            .map(|marker| {
                let semaphore = marker.semaphore.map_or(0, |semaphore| semaphore.address);
                (
                    marker.provider.clone(),
                    marker.name.clone(),
                    marker.address,
                    semaphore,
                    marker.arguments.clone(),
                )
            })
            .collect();
        assert!(ours.len() >= 3, "{ours:?}");
        assert_eq!(ours, expected, "{name}");

        let file = fs::read(&path).unwrap();
        for marker in markers.all() {
            assert_eq!(file[marker.offset as usize], 0x90, "a marker stands on a nop");
            let semaphore = marker.semaphore.unwrap();
            assert_eq!(&file[semaphore.offset as usize..][..2], [0, 0], "nobody listens yet");
            let arguments = marker.parse_arguments(markers.machine()).unwrap();
            match (marker.name.as_str(), arguments.as_slice()) {
                ("plain", []) => {}
                ("plain", [depth, text, far]) => {
                    assert_eq!([depth.size, text.size, far.size], [4, 8, 8]);
                    assert!(depth.signed && !text.signed && far.signed);
                }
                ("guarded", [seven, byte, element, negative]) => {
                    assert_eq!(seven.operand, Operand::Constant(7));
                    assert!(!byte.signed && byte.size == 1 && element.signed && negative.signed);
                }
                other => panic!("an unknown marker: {other:?}"),
            }
        }
        let listed = list(dir.path(), &["--usdt", name]).expect(0).out;
        assert_eq!(listed.lines().count(), ours.len());
        assert!(listed.contains(" tests:guarded  -4@$7 "), "{listed}");
        let json = list(dir.path(), &["--usdt", name, "--json", "--match", "guarded"]).expect(0).out;
        assert!(json.contains("\"types\":[\"s32\",\"u8\",\"s32\",\"s64\"]"), "{json}");
    }
}

#[test]
fn what_cannot_be_probed_is_refused_with_the_reason() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let path = compile(dir, "program", Link::Pie);
    let functions = Functions::of(&path).unwrap();
    let message = |name: &str| functions.find(name).unwrap_err().to_string();
    assert!(message("wrok").ends_with("did you mean work?"), "{}", message("wrok"));
    assert!(
        message("table").contains("is in section .data, which is not executable"),
        "{}",
        message("table")
    );
    assert!(matches!(
        functions.find("__cxa_finalize").unwrap_err(),
        LookupError::Undefined { .. } | LookupError::NotFound { .. }
    ));

    tool(dir, "cc", &["-c", "program.c", "-o", "program.o"]);
    list(dir, &["--symbols", "program.o"]).expect(1).says(&["an object file", "name the program"]);
    fs::write(dir.join("script"), "#!/bin/sh\necho\n").unwrap();
    list(dir, &["--symbols", "script"]).expect(1).says(&["not an ELF binary", "a script for /bin/sh"]);
    list(dir, &["--symbols", "missing"]).expect(1).says(&["cannot read missing", "No such file"]);
    list(dir, &["--usdt", "."]).expect(1).says(&["not a regular file"]);
    list(dir, &["--symbols", "program", "--match", "wrok"]).expect(112).says(&["did you mean work?"]);
    list(dir, &["--match", "work"]).expect(2).says(&["--match applies to --symbols and --usdt"]);

    // The machine of another processor: 21 is 64-bit PowerPC.
    let mut foreign = fs::read(&path).unwrap();
    foreign[18] = 21;
    fs::write(dir.join("foreign"), foreign).unwrap();
    list(dir, &["--symbols", "foreign"])
        .expect(1)
        .says(&["is for another processor (ELF machine 21)", "x86-64"]);
}

#[test]
fn damaged_binaries_are_errors_and_nothing_worse() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let whole = fs::read(compile(dir, "program", Link::Pie)).unwrap();
    let path = dir.join("damaged");
    let mut refused = 0;
    let mut look = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        match (Functions::of(&path), Markers::of(&path)) {
            (Ok(_), Ok(_)) => {}
            (Err(BinaryError::Io { source, .. }), _) => panic!("{source}"),
            _ => refused += 1,
        }
    };
    for step in 0..200 {
        look(&whole[..whole.len() * step / 200]);
    }
    // A small generator of its own (xorshift) keeps every run the same.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..1500 {
        let mut bytes = whole.clone();
        for _ in 0..8 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Headers and tables are at both ends of the file.
            let place = state as usize % 4096;
            let place = if state >> 63 == 0 { place % 1024 } else { bytes.len() - 1 - place };
            bytes[place] = (state >> 32) as u8;
        }
        look(&bytes);
    }
    assert!(refused > 200, "{refused}");
}

#[test]
fn libraries_are_found_by_name_and_files_without_markers_say_so() {
    let dir = tempdir().unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6")).unwrap();
    let by_path = list(dir.path(), &["--symbols", libc, "--match", "mall*"]).expect(0).out;
    assert!(by_path.contains(" malloc"), "{by_path}");
    assert_eq!(list(dir.path(), &["--symbols", "libc.so.6", "--match", "mall*"]).expect(0).out, by_path);
    assert_eq!(
        list(dir.path(), &["--usdt", "libc.so.6"]).expect(0).out,
        list(dir.path(), &["--usdt", libc]).expect(0).out
    );
    // A file of that name in the directory is meant first.
    fs::write(dir.path().join("libc.so.6"), "nothing").unwrap();
    list(dir.path(), &["--symbols", "libc.so.6"]).expect(1);
    let plain = list(dir.path(), &["--usdt", "true"]).expect(0);
    assert_eq!(plain.out, "");
    plain.says(&["/true has no USDT markers"]);
    list(dir.path(), &["--symbols", "no-such-library.so"]).expect(1).says(&["no-such-library.so"]);
}
