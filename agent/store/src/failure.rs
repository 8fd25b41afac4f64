//! Why something with a store failed, and whether it may go better later.

use std::error::Error;
use std::io;

use object_store::client::{HttpError, HttpErrorKind};
use serde::Serialize;

use super::config::ConfigError;
use super::http::{Redirected, TooLong, Unavailable};
use super::secret::Filter;
use stdx::terminal::name;

/// The cause of a failure, for counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No connection, or it was cut.
    Connect,
    /// No answer in time.
    Timeout,
    /// The store does not allow it, or has no such bucket (4xx).
    Refused,
    /// The store is overloaded or down (5xx, 429).
    Unavailable,
    /// What is stored is not what was sent.
    Checksum,
    /// The archive on this machine cannot be read, or was changed.
    LocalFile,
    /// Something else.
    Other,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 7] = [
        Self::Connect,
        Self::Timeout,
        Self::Refused,
        Self::Unavailable,
        Self::Checksum,
        Self::LocalFile,
        Self::Other,
    ];

    /// Its name in counts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Checksum => "checksum",
            Self::LocalFile => "local_file",
            Self::Other => "other",
        }
    }

    /// Whether it is the store's or the network's state, which changes without anybody's doing.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Connect | Self::Timeout | Self::Unavailable)
    }
}

/// Why something with a store failed. Its text has no secrets, and is one line without control characters:
/// names are chosen by whoever may write to the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An address or an option is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store, or the way to it.
    #[error("cannot {}: {}{}", name(.what), name(.why), hint(*.cause))]
    Remote {
        /// What was tried.
        what: String,
        /// The cause.
        cause: Cause,
        /// Whether the store says that there is no such object, or no such upload.
        missing: bool,
        /// The reason in words.
        why: String,
    },
    /// A file here.
    #[error("cannot {}: {source}", name(.what))]
    Local {
        /// What was tried.
        what: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The store answers with more than is taken of it.
    #[error("cannot {}: {}", name(.what), name(.why))]
    Limit {
        /// What was tried.
        what: String,
        /// Which limit.
        why: String,
    },
    /// What was stored or read is not what it should be.
    #[error("{}: {}; it is sent or read again", name(.what), name(.why))]
    Checksum {
        /// Which object.
        what: String,
        /// What differs.
        why: String,
    },
}

fn hint(cause: Cause) -> &'static str {
    match cause {
        Cause::Refused => {
            "; check the bucket, the credentials and what they permit (reading and writing objects)"
        }
        Cause::Connect => "; check the address and the network",
        _ => "",
    }
}

impl StoreError {
    /// For `map_err`: a failure of the store in `what`.
    pub(super) fn remote(
        what: impl Into<String>,
        filter: &Filter,
    ) -> impl FnOnce(object_store::Error) -> Self {
        let what = what.into();
        move |error| {
            let cause = cause(&error);
            let missing = matches!(error, object_store::Error::NotFound { .. });
            let why = filter.clean(&reasons(&error));
            if source_is::<TooLong>(&error) {
                return Self::Limit { what, why };
            }
            Self::Remote { what, cause, missing, why }
        }
    }

    /// For `map_err`: a failure of a file here.
    pub(super) fn local(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Local { what, source }
    }

    /// The cause, for counts.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Config(_) | Self::Limit { .. } => Cause::Other,
            Self::Remote { cause, .. } => *cause,
            Self::Local { .. } => Cause::LocalFile,
            Self::Checksum { .. } => Cause::Checksum,
        }
    }

    /// Whether it is of a file here, and of this kind.
    pub(super) fn is_local(&self, kind: io::ErrorKind) -> bool {
        matches!(self, Self::Local { source, .. } if source.kind() == kind)
    }

    /// Whether the store says that there is no such object.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Remote { missing: true, .. })
    }
}

/// The reasons behind an error. Most of them repeat those below them; those that do not say the rest.
fn reasons(error: &object_store::Error) -> String {
    // What is above an error of HTTP only repeats the request.
    let (mut text, mut source) = match http_error(error) {
        Some(error) => (String::new(), error.source()),
        None => (error.to_string(), error.source()),
    };
    while let Some(error) = source {
        let reason = error.to_string();
        if !text.contains(&reason) {
            let between = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{between}{reason}");
        }
        source = error.source();
    }
    text
}

/// The error of a request that had no answer, or none that is one.
fn http_error(error: &object_store::Error) -> Option<&HttpError> {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return Some(error);
        }
        source = error.source();
    }
    None
}

/// Whether the error of a request is this one.
fn source_is<T: Error + 'static>(error: &object_store::Error) -> bool {
    http_error(error).and_then(Error::source).is_some_and(<dyn Error>::is::<T>)
}

fn cause(error: &object_store::Error) -> Cause {
    use object_store::Error as E;
    if let Some(error) = http_error(error) {
        return match error.kind() {
            _ if error.source().is_some_and(<dyn Error>::is::<Unavailable>) => Cause::Unavailable,
            _ if error.source().is_some_and(<dyn Error>::is::<Redirected>) => Cause::Refused,
            HttpErrorKind::Timeout => Cause::Timeout,
            HttpErrorKind::Decode => Cause::Other,
            // Whatever else happens to a request without an answer is of its connection.
            _ => Cause::Connect,
        };
    }
    match error {
        E::NotFound { .. }
        | E::AlreadyExists { .. }
        | E::Precondition { .. }
        | E::PermissionDenied { .. }
        | E::Unauthenticated { .. } => Cause::Refused,
        // Other answers of 4xx are in the text only.
        _ if error.to_string().contains("status code: 4") => Cause::Refused,
        _ => Cause::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(kind: HttpErrorKind, source: impl Error + Send + Sync + 'static) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: Box::new(HttpError::new(kind, source)) }
    }

    #[test]
    fn a_text_is_one_line_without_control_characters() {
        let what = || "read x\n\u{1b}[31m".to_owned();
        let why = what;
        for error in [
            StoreError::Remote { what: what(), cause: Cause::Other, missing: false, why: why() },
            StoreError::Local { what: what(), source: io::ErrorKind::NotFound.into() },
            StoreError::Limit { what: what(), why: why() },
            StoreError::Checksum { what: what(), why: why() },
        ] {
            let text = error.to_string();
            assert!(text.contains("read x\\x0a\\x1b[31m"), "{text:?}");
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }

    #[test]
    fn causes_are_told_apart() {
        let io = || io::Error::other("SWORDFISH");
        let refused = object_store::Error::PermissionDenied { path: "x".into(), source: Box::new(io()) };
        for (error, expected) in [
            (generic(HttpErrorKind::Request, Unavailable(503)), Cause::Unavailable),
            (generic(HttpErrorKind::Connect, io()), Cause::Connect),
            (generic(HttpErrorKind::Timeout, io()), Cause::Timeout),
            (refused, Cause::Refused),
        ] {
            let filter = Filter::new([super::super::secret::Secret::new("SWORDFISH")]);
            let error = StoreError::remote("store x", &filter)(error);
            assert_eq!(error.cause(), expected);
            assert!(!format!("{error} {error:?}").contains("SWORDFISH"), "{error}");
        }
        assert_eq!(Cause::ALL.map(Cause::name).len(), 7);
    }
}
