//! Man pages and completions, against the programs that read them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The output of a program, which must end well and not complain.
fn quiet(program: &str, args: &[&str], file: &Path) -> String {
    let mut command = Command::new(program);
    command
        .args(args)
        .arg(file)
        .env("LC_ALL", "C.UTF-8")
        .env("MANWIDTH", "100")
        .env_remove("MAN_KEEP_FORMATTING");
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.is_empty(), "{program} {}: {complaint}", file.display());
    String::from_utf8(output.stdout).unwrap()
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_command_has_a_page_that_man_shows() {
    let dir = tempfile::tempdir().unwrap();
    manuals::write(dir.path()).unwrap();
    let command = manuals::command();
    let mut expected = BTreeSet::from(["tracer-agent.1".to_owned()]);
    expected.extend(command.get_subcommands().map(|of| format!("tracer-agent-{}.1", of.get_name())));
    assert!(expected.len() > 14, "{expected:?}");
    expected.insert("tracer-agent.toml.5".to_owned());
    let pages = dir.path().join("man");
    assert_eq!(names(&pages), expected);
    expected.remove("tracer-agent.toml.5");
    for page in &expected {
        let page = pages.join(page);
        quiet("groff", &["-man", "-Tutf8", "-ww", "-z"], &page);
        let shown = quiet("man", &["--warnings", "-P", "cat", "-l"], &page);
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "SEE ALSO"] {
            assert!(shown.lines().any(|line| line == section), "{section}: {shown}");
        }
        assert!(shown.lines().count() > 30, "{shown}");
        assert!(shown.contains("  User Commands  ") && shown.contains(env!("CARGO_PKG_VERSION")), "{shown}");
        // The name, for apropos.
        let name = page.file_stem().unwrap().to_str().unwrap();
        let line = shown.lines().skip_while(|line| *line != "NAME").nth(1).unwrap();
        assert!(line.split_whitespace().take(2).eq([name, "-"]), "{line}");
        let description = shown.lines().skip_while(|line| *line != "DESCRIPTION").nth(1).unwrap();
        assert!(description.starts_with("       "), "{shown}");
    }
    let record = quiet("man", &["-P", "cat", "-l"], &pages.join("tracer-agent-record.1"));
    assert!(record.contains("tracer-agent record -e sched sleep 5\n"), "{record}");
    assert!(record.contains("--duration"), "{record}");
}

#[test]
fn the_configuration_has_a_page_that_man_shows() {
    let dir = tempfile::tempdir().unwrap();
    manuals::write(dir.path()).unwrap();
    let page = dir.path().join("man/tracer-agent.toml.5");
    quiet("groff", &["-man", "-Tutf8", "-ww", "-z"], &page);
    let shown = quiet("man", &["--warnings", "-P", "cat", "-l"], &page);
    for text in ["File Formats", "THE WHOLE FILE", "sessions: table of SessionConfig", "ring_bytes: integer"]
    {
        assert!(shown.contains(text), "{text}: {shown}");
    }
}

#[test]
fn the_documents_have_the_keys_of_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    manuals::write(dir.path()).unwrap();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let made = |name: &str| fs::read_to_string(dir.path().join("reference").join(name)).unwrap();
    let kept = |name: &str| fs::read_to_string(docs.join(name)).unwrap();
    let says = "`cargo xtask docs` writes what is to be there to target/manuals/reference";
    assert_eq!(made("agent.schema.json"), kept("agent.schema.json"), "{says}");
    assert!(kept("configuration.md").ends_with(&made("configuration.md")), "{says}");
}

/// The subcommand of a command line, which the program takes.
fn subcommand(line: &str) -> Option<String> {
    // The shell itself takes the quotes away.
    let script = format!("printf '%s\\0' tracer-agent {line}");
    let words = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(words.status.success());
    let words = String::from_utf8(words.stdout).unwrap();
    let words: Vec<&str> = words.trim_end_matches('\0').split('\0').collect();
    let parsed = manuals::command().try_get_matches_from(&words);
    let parsed = parsed.unwrap_or_else(|error| panic!("{line}: {error}"));
    parsed.subcommand_name().map(str::to_owned)
}

#[test]
fn every_example_is_a_command_line_of_the_program() {
    let command = manuals::command();
    let mut seen = 0;
    for of in command.get_subcommands().chain([&command]) {
        let help = of.get_after_help().map(ToString::to_string).unwrap_or_default();
        let (_, examples) = help.split_once("EXAMPLES\n").unwrap_or_else(|| panic!("{}", of.get_name()));
        for line in examples.lines() {
            let pipeline = line.strip_prefix("  ").unwrap_or_else(|| panic!("{line}"));
            let ours = pipeline.split(" | ").filter_map(|part| part.strip_prefix("tracer-agent "));
            let named: Vec<Option<String>> = ours.map(subcommand).collect();
            assert!(pipeline.starts_with("tracer-agent "), "{line}");
            assert!(
                of.get_name() == "tracer-agent"
                    || named.iter().any(|named| named.as_deref() == Some(of.get_name())),
                "{line}"
            );
            seen += 1;
        }
    }
    assert!(seen >= 30, "{seen}");
}

#[test]
fn completions_are_what_their_shells_understand() {
    let dir = tempfile::tempdir().unwrap();
    manuals::write(dir.path()).unwrap();
    let completions = dir.path().join("completions");
    let files = ["_tracer-agent", "tracer-agent.bash", "tracer-agent.fish"];
    assert_eq!(names(&completions), files.map(str::to_owned).into());
    for ((shell, args), file) in
        [("zsh", &["-n"][..]), ("bash", &["-n"]), ("fish", &["--no-execute"])].into_iter().zip(files)
    {
        quiet(shell, args, &completions.join(file));
    }
    // What bash then offers.
    let complete = |words: &str, last: usize| {
        let script = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={last}; \
             set -- $(complete -p tracer-agent); while [ \"$1\" != -F ]; do shift; done; \
             $2 tracer-agent \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            completions.join("tracer-agent.bash").display()
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete("tracer-agent rec", 1), ["record", "recover"]);
    assert_eq!(complete("tracer-agent report --first", 2), ["--first-event"]);
}

#[test]
fn the_table_of_metrics_is_in_the_documents() {
    let dir = tempfile::tempdir().unwrap();
    manuals::write(dir.path()).unwrap();
    let table = fs::read_to_string(dir.path().join("reference/metrics.md")).unwrap();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let text = fs::read_to_string(docs).unwrap();
    assert!(
        text.ends_with(&format!("\n\n{table}")),
        "docs/metrics.md does not end with what `cargo xtask docs` writes to target/manuals/reference/metrics.md:\n{table}"
    );
}
