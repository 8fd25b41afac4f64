//! Files with credentials: lines of names and values, as the environment has them.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::config::ConfigError;
use super::secret::Secret;
use stdx::guard::Guard;
use stdx::output::{Links, own_user, resolve};

/// No credentials are longer; keys of service accounts have some 2400 bytes.
const LONGEST: u64 = 64 << 10;
/// Bits of a mode that let others than the owner do anything.
const OTHERS: u32 = 0o077;
/// What names begin with that object stores know.
const KNOWN: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];
const FIELD: &str = "credentials_file";

/// Reads such a file. It has to be of a user that is trusted with it, and of nobody else's to read.
pub(super) fn read(path: &Path) -> Result<Vec<(String, Secret)>, ConfigError> {
    let wrong = |why: String| ConfigError::new(FIELD, format!("{}: {why}", path.display()));
    let file = open(path)?;
    let meta = file.metadata().map_err(|error| wrong(format!("cannot look at it: {error}")))?;
    if meta.uid() != own_user() && meta.uid() != 0 {
        return Err(wrong(format!("it belongs to user {}, who could exchange it; `chown` it", meta.uid())));
    }
    if meta.mode() & OTHERS != 0 {
        return Err(wrong("others than its owner may read or write it; `chmod 600` it".to_owned()));
    }
    let mut text = String::new();
    // Errors of reading say nothing of the content.
    file.take(LONGEST + 1)
        .read_to_string(&mut text)
        .map_err(|error| wrong(format!("cannot read it: {error}")))?;
    if text.len() as u64 > LONGEST {
        return Err(wrong("it is longer than 64 KiB".to_owned()));
    }
    parse(&text).map_err(wrong)
}

/// Opens it. Root follows no path that others can change; other users read their own files.
fn open(path: &Path) -> Result<File, ConfigError> {
    let failed = |error: &dyn std::fmt::Display| ConfigError::new(FIELD, error.to_string());
    if own_user() == 0 {
        return Guard::default().open_file(path).map_err(|error| failed(&error));
    }
    let wrong = |why: &dyn std::fmt::Display| failed(&format_args!("{}: {why}", path.display()));
    let resolved = resolve(path, Links::Follow).map_err(|error| failed(&error))?;
    let name = resolved.name.ok_or_else(|| wrong(&"it is a directory"))?;
    resolved.dir.open_file(&name).map_err(|error| wrong(&format_args!("cannot open it: {error}")))
}

/// The names and values of a text. No error repeats what a line has: it may be a secret.
fn parse(text: &str) -> Result<Vec<(String, Secret)>, String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| format!("line {}: {why}", number + 1);
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("it is not NAME = value"))?;
        let name = name.trim().to_ascii_uppercase();
        if !KNOWN.iter().any(|known| name.starts_with(known)) {
            return Err(wrong("the name does not begin with AWS_, GOOGLE_ or AZURE_"));
        }
        let value = unquoted(value.trim()).ok_or_else(|| wrong("the quotation has no end"))?;
        found.push((name, Secret::new(value)));
    }
    if found.is_empty() { Err("nothing is in it".to_owned()) } else { Ok(found) }
}

/// A value as TOML and shells quote it; TOML's escapes are those of a key with line breaks.
fn unquoted(value: &str) -> Option<String> {
    if let Some(rest) = value.strip_prefix('\'') {
        return rest.strip_suffix('\'').map(str::to_owned);
    }
    let Some(rest) = value.strip_prefix('"') else { return Some(value.to_owned()) };
    let inner = rest.strip_suffix('"')?;
    let mut text = String::new();
    let mut chars = inner.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => text.push(match chars.next()? {
                'n' => '\n',
                't' => '\t',
                other => other,
            }),
            other => text.push(other),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn lines_of_toml_and_of_shells_are_read() {
        let text = "# of the lab\naws_access_key_id = \"AK\"\nexport AWS_SECRET_ACCESS_KEY='s=k'\n\nGOOGLE_SERVICE_ACCOUNT_KEY=\"a\\nb\"\n";
        let found = parse(text).unwrap();
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect();
        let expected = [
            ("AWS_ACCESS_KEY_ID", "AK"),
            ("AWS_SECRET_ACCESS_KEY", "s=k"),
            ("GOOGLE_SERVICE_ACCOUNT_KEY", "a\nb"),
        ];
        assert_eq!(found, expected);
        for wrong in ["", "SWORDFISH", "PATH=SWORDFISH", "AWS_X=\"SWORDFISH"] {
            let error = parse(wrong).unwrap_err();
            assert!(!error.contains("SWORDFISH"), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        fs::write(&path, "AWS_ACCESS_KEY_ID=AK\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.why.contains("chmod 600"), "{error}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        assert_eq!(read(&dir.path().join("none")).unwrap_err().field, "credentials_file");
    }
}
