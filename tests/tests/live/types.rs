//! What the kernel's type information offers: `list --types`, and the errors of typed probes.

use integration_tests::{agent, binaries};

#[track_caller]
fn list(args: &[&str]) -> String {
    let output = agent::run(["list", "--types"].iter().chain(args));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn functions_are_listed_with_their_arguments() {
    let text = list(&["vfs_r*"]);
    let expected = "ssize_t vfs_read(struct file *file, char *buf, size_t count, loff_t *pos);";
    assert!(text.lines().any(|line| line == expected), "{text}");
    assert!(text.lines().all(|line| line.contains("vfs_r") && line.ends_with(';')), "{text}");
}

#[test]
fn a_structure_has_the_members_and_places_that_a_compiler_gives_it() {
    // Structures of the kernel's interface to user space, which the C compiler knows too.
    let dir = tempfile::tempdir().unwrap();
    let source = "#include <stddef.h>\n#include <stdio.h>\n#include <linux/io_uring.h>\n#include <linux/bpf.h>\n\
        #define SHOW(type, member) printf(\"%s %s %zu\\n\", #type, #member, offsetof(struct type, member))\n\
        int main(void) { SHOW(bpf_insn, imm); SHOW(bpf_insn, off); SHOW(bpf_prog_info, name); \
        SHOW(bpf_prog_info, load_time); return 0; }\n";
    std::fs::write(dir.path().join("offsets.c"), source).unwrap();
    binaries::tool(dir.path(), "cc", &["-o", "offsets", "offsets.c"]);
    for line in binaries::tool(dir.path(), "./offsets", &[]).lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let text = list(&[words[0]]);
        let (member, place) = (format!(" {}", words[1]), format!("// {}", words[2]));
        let found = text.lines().any(|line| {
            let declaration = line.split(';').next().unwrap_or_default();
            (declaration.ends_with(&member) || declaration.contains(&format!("{member}[")))
                && line.ends_with(&place)
        });
        assert!(found, "{line}: {text}");
    }
}

#[test]
fn json_has_the_same() {
    let text = list(&["vfs_read", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let function = json.as_array().unwrap().iter().find(|one| one["kind"] == "function").unwrap();
    assert_eq!(function["name"], "vfs_read");
    assert_eq!(function["arguments"][2]["name"], "count");
    assert_eq!(function["arguments"][2]["type"], "size_t");
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_what_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    for (option, probe, texts) in [
        ("--fentry", "vfs_raed", ["no function vfs_raed", "did you mean vfs_read"]),
        ("--fentry", "vfs_read file->f_inod", ["no member f_inod; did you mean f_inode?", "\n        ^"]),
        ("--fentry", "vfs_read cuont", ["no argument cuont", "did you mean count?"]),
        ("--fexit", "vfs_read $retval+", ["ends too early", "\n          ^"]),
    ] {
        let output = agent::command(["record", option, probe, "-o"]).arg(&file).arg("true").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(texts.iter().all(|text| said.contains(text)), "{probe}: {said}");
        assert!(!file.exists());
    }
    let output = agent::run(["list", "--types", "vfs_raed"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no function or structure vfs_raed; did you mean vfs_read"), "{said}");
}
