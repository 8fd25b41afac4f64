//! Credentials, which nothing that is printed may have.

use std::fmt;

/// Shorter texts are no secrets that could be told from ordinary words.
const SHORTEST: usize = 6;
/// What stands for what was left out.
const HIDDEN: &str = "[hidden]";
/// The longest text of an error that is kept.
const LONGEST: usize = 600;

/// A text that is printed nowhere: neither `Debug` nor `Display` shows what it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for whoever sends it where it belongs.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// Takes secrets out of texts of others, which repeat requests: their addresses with signatures, and what a
/// store answers to a wrong signature.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    secrets: Vec<Secret>,
}

impl Filter {
    /// A filter that also knows these secrets themselves.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut secrets: Vec<_> = secrets.into_iter().filter(|one| one.0.len() >= SHORTEST).collect();
        // What has another one in it goes first, or its rest would stay.
        secrets.sort_by_key(|one| std::cmp::Reverse(one.0.len()));
        Self { secrets }
    }

    /// The text without secrets and without what acts on a terminal, on one line, and no longer than a
    /// message may be.
    pub fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(&secret.0, HIDDEN);
        }
        let text = without_elements(&text);
        let mut words = Vec::new();
        let mut hide_next = false;
        for word in text.split_whitespace() {
            let is_scheme = matches!(word.to_ascii_lowercase().as_str(), "bearer" | "basic");
            words.push(if hide_next { HIDDEN.to_owned() } else { clean_word(word) });
            hide_next = is_scheme;
        }
        let mut text = stdx::terminal::name(&words.join(" "));
        if text.len() > LONGEST {
            text.truncate(text.floor_char_boundary(LONGEST));
            text += "...";
        }
        text
    }
}

/// What an XML document says of an error: its code and its message. Other elements repeat the request, with
/// the key's name and the signature.
fn without_elements(text: &str) -> String {
    let Some(start) = text.find("<?xml").or_else(|| text.find("<Error")) else { return text.to_owned() };
    let (before, document) = text.split_at(start);
    let element = |name: &str| {
        let rest = document.split_once(&format!("<{name}>"))?.1;
        Some(rest.split_once('<')?.0)
    };
    let said: Vec<_> = ["Code", "Message"].into_iter().filter_map(element).collect();
    format!("{before}{}", said.join(": "))
}

/// A word without the query of an address, without its user, and without the value of what is a credential
/// by its name.
fn clean_word(word: &str) -> String {
    let mut word = word.to_owned();
    if let Some(start) = word.find("://") {
        let rest = &word[start + 3..];
        let host_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        if let Some(at) = rest[..host_end].rfind('@') {
            word = format!("{}{HIDDEN}{}", &word[..start + 3], &rest[at..]);
        }
    }
    if let Some(query) = word.find('?').filter(|query| word[*query..].contains('=')) {
        word.truncate(query);
        word = format!("{word}?{HIDDEN}");
    }
    let lower = word.to_ascii_lowercase();
    let names = ["signature", "credential", "token", "secret", "password", "accesskey", "access_key", "sig"];
    match lower.find(['=', ':']).filter(|_| !lower.contains("://")) {
        Some(at) if at + 1 < word.len() && names.iter().any(|name| lower[..at].contains(name)) => {
            format!("{}{HIDDEN}", &word[..=at])
        }
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nowhere() {
        let secret = Secret::new("SWORDFISH");
        assert_eq!(format!("{secret} {secret:?} {:#?}", Some(&secret)).matches("SWORDFISH").count(), 0);
        assert_eq!(secret.reveal(), "SWORDFISH");
    }

    #[test]
    fn requests_are_repeated_without_what_authorises_them() {
        let filter = Filter::new([Secret::new("SWORDFISH"), Secret::new("SWORDFISH+MORE")]);
        for text in [
            "error for https://host/key?X-Amz-Signature=SWORDFISH1&X-Amz-Credential=AKIA/SWORDFISH failed",
            "https://user:SWORDFISH@host/key",
            "Authorization: AWS4-HMAC-SHA256 Credential=AKSWORDFISH/2026, Signature=SWORDFISH",
            "Authorization: Bearer eySWORDFISH",
            "status 403: <?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>No</Message>\
             <AWSAccessKeyId>SWORDFISH</AWSAccessKeyId></Error>",
            "x-amz-security-token:SWORDFISH",
            "it was SWORDFISH+MORE",
        ] {
            let cleaned = filter.clean(text);
            assert!(!cleaned.contains("SWORDFISH") && !cleaned.contains("MORE"), "{cleaned}");
            // What is not known is found by its place.
            let unknown = Filter::default().clean(&text.replace("SWORDFISH", "HERRING"));
            assert!(!unknown.contains("HERRING") || text.starts_with("it was"), "{unknown}");
        }
        let kept = "error sending request for https://host:9000/bucket/key: connection refused";
        assert_eq!(filter.clean(kept), kept);
        let xml = "<Error><Code>NoSuchBucket</Code><Message>It is gone</Message></Error>";
        assert_eq!(filter.clean(&format!("404: {xml}")), "404: NoSuchBucket: It is gone");
        assert!(filter.clean(&"é".repeat(5000)).len() < 700);
    }
}
