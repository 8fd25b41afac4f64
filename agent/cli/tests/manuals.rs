//! Man pages and completions, against the programs that read them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use cli::completions::{self, Shell};
#[cfg(not(feature = "daemon"))]
use cli::exit::ExitCode;
use cli::generate::{self, Document};

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
    let pages = dir.path().join("man");
    generate::man(&pages).unwrap();
    let command = generate::command_line();
    let mut expected = BTreeSet::from(["tracer-agent.1".to_owned()]);
    expected.extend(command.get_subcommands().map(|of| format!("tracer-agent-{}.1", of.get_name())));
    assert!(expected.len() > 14 && !expected.contains("tracer-agent-generate.1"), "{expected:?}");
    let mut found = names(&pages);
    assert_eq!(found.remove("tracer-agent.toml.5"), cfg!(feature = "daemon"));
    assert_eq!(found, expected);
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

#[cfg(feature = "daemon")]
#[test]
fn the_configuration_has_a_page_that_man_shows() {
    let dir = tempfile::tempdir().unwrap();
    generate::man(dir.path()).unwrap();
    let page = dir.path().join("tracer-agent.toml.5");
    quiet("groff", &["-man", "-Tutf8", "-ww", "-z"], &page);
    let shown = quiet("man", &["--warnings", "-P", "cat", "-l"], &page);
    for text in ["File Formats", "THE WHOLE FILE", "sessions: table of SessionConfig", "ring_bytes: integer"]
    {
        assert!(shown.contains(text), "{text}: {shown}");
    }
}

#[test]
fn the_same_pages_are_written_again() {
    let [one, other] = [(), ()].map(|()| {
        let dir = tempfile::tempdir().unwrap();
        generate::man(dir.path()).unwrap();
        let page = |name: String| (fs::read(dir.path().join(&name)).unwrap(), name);
        names(dir.path()).into_iter().map(page).collect::<Vec<_>>()
    });
    assert!(one == other && !one.is_empty());
}

#[cfg(feature = "daemon")]
#[test]
fn the_documents_have_the_keys_of_the_configuration_and_the_metrics() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let kept = |name: &str| fs::read_to_string(docs.join(name)).unwrap();
    let says = "`cargo xtask docs` writes what is to be there to target/manuals/reference";
    for (name, document) in [("configuration.md", Document::Config), ("metrics.md", Document::Metrics)] {
        let made = generate::text(document).unwrap();
        assert!(
            made.starts_with(['|', '#']) && kept(name).ends_with(&format!("\n\n{made}")),
            "{says}: {name}"
        );
    }
}

#[cfg(feature = "daemon")]
#[test]
fn the_requests_have_an_openapi_document() {
    let text = generate::text(Document::Openapi).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."), "{text}");
    assert!(document["paths"]["/v1/sessions"]["post"].is_object() && text.ends_with("}\n"), "{text}");
}

#[cfg(not(feature = "daemon"))]
#[test]
fn documents_about_the_daemon_need_its_feature() {
    for document in [Document::Config, Document::Metrics, Document::Openapi] {
        let error = generate::text(document).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Usage);
        assert!(error.to_string().contains("--features daemon"), "{error}");
    }
}

/// The subcommand of a command line, which the program takes.
fn subcommand(line: &str) -> Option<String> {
    // The shell itself takes the quotes away.
    let script = format!("printf '%s\\0' tracer-agent {line}");
    let words = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(words.status.success());
    let words = String::from_utf8(words.stdout).unwrap();
    let words: Vec<&str> = words.trim_end_matches('\0').split('\0').collect();
    let parsed = generate::command_line().try_get_matches_from(&words);
    let parsed = parsed.unwrap_or_else(|error| panic!("{line}: {error}"));
    parsed.subcommand_name().map(str::to_owned)
}

#[test]
fn every_example_is_a_command_line_of_the_program() {
    let command = generate::command_line();
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
    let file = |name: &str| dir.path().join(name);
    for (shell, name, program, check) in [
        (Shell::Zsh, "_tracer-agent", "zsh", "-n"),
        (Shell::Bash, "tracer-agent.bash", "bash", "-n"),
        (Shell::Fish, "tracer-agent.fish", "fish", "--no-execute"),
    ] {
        let script = completions::script(shell);
        assert!(script.contains("first-event"), "{script}");
        fs::write(file(name), script).unwrap();
        quiet(program, &[check], &file(name));
    }
    // What bash then offers.
    let complete = |words: &str, last: usize| {
        let script = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={last}; \
             set -- $(complete -p tracer-agent); while [ \"$1\" != -F ]; do shift; done; \
             $2 tracer-agent \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            file("tracer-agent.bash").display()
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete("tracer-agent rec", 1), ["record", "recover"]);
    assert_eq!(complete("tracer-agent report --first", 2), ["--first-event"]);
}
