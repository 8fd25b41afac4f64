//! Archives below an address.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use futures_util::StreamExt as _;
use object_store::ObjectMeta;
use object_store::list::PaginatedListOptions;
use serde::Serialize;

use super::failure::{Cause, StoreError};
use super::name::Name;
use super::place::{Access, Place, Retries, block_on};
use stdx::input::glob;

/// What a list may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Bytes of memory of the archives that are found.
    memory: usize,
    /// Pages, of up to 5000 objects each.
    pages: usize,
    /// The time of all pages together.
    time: Duration,
}

const LIMITS: Limits = Limits { memory: 128 << 20, pages: 50_000, time: Duration::from_mins(30) };

/// Which archives are wanted; all, where nothing is said.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Wildcards for the machine.
    pub host: Option<String>,
    /// Wildcards for the session.
    pub session: Option<String>,
    /// Those that end at this time or later, in nanoseconds since 1970.
    pub since: Option<u64>,
    /// Those that begin before this time.
    pub until: Option<u64>,
}

/// An archive in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Its address.
    pub url: String,
    /// Its bytes.
    pub bytes: u64,
    /// The machine.
    pub host: String,
    /// The session.
    pub session: String,
    /// When it begins, in nanoseconds since 1970.
    pub begin: u64,
    /// When it ends.
    pub end: u64,
}

impl Wanted {
    fn takes(&self, name: &Name) -> bool {
        let fits = |pattern: &Option<String>, text: &str| {
            pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, text))
        };
        fits(&self.host, &name.host)
            && fits(&self.session, &name.session)
            && self.since.is_none_or(|since| name.end >= since)
            && self.until.is_none_or(|until| name.begin < until)
    }
}

/// The archives below an address, by their begin. Other objects are left out.
///
/// # Errors
/// The address is wrong, or the store cannot be reached or does not allow it. The list takes more than half
/// an hour, or is longer than 50 000 pages or 128 MiB of archives (some 400 000).
pub fn list(url: &str, access: &Access, wanted: &Wanted) -> Result<Vec<Found>, StoreError> {
    let place = Place::open(url, access, Retries::Client)?;
    block_on(list_at(&place, wanted, LIMITS)).map_err(StoreError::local("make requests"))?
}

/// The archives of a list that grows.
struct List<'a> {
    place: &'a Place,
    wanted: &'a Wanted,
    limits: Limits,
    found: Vec<Found>,
    /// Bytes of what was found.
    memory: usize,
}

async fn list_at(place: &Place, wanted: &Wanted, limits: Limits) -> Result<Vec<Found>, StoreError> {
    let mut list = List { place, wanted, limits, found: Vec::new(), memory: 0 };
    let ended = tokio::time::timeout(limits.time, list.fill()).await;
    ended.unwrap_or_else(|_| {
        Err(StoreError::Remote {
            what: list.what(),
            cause: Cause::Timeout,
            missing: false,
            why: format!("the list has no end after {} s", limits.time.as_secs_f64()),
        })
    })?;
    list.found.sort_by(|a, b| (a.begin, &a.url).cmp(&(b.begin, &b.url)));
    Ok(list.found)
}

impl List<'_> {
    fn what(&self) -> String {
        format!("list {}", self.place.url(self.place.path()))
    }

    fn failed(&self) -> impl FnOnce(object_store::Error) -> StoreError + use<'_> {
        StoreError::remote(self.what(), &self.place.filter)
    }

    fn limit(&self, why: String) -> StoreError {
        StoreError::Limit { what: self.what(), why }
    }

    async fn fill(&mut self) -> Result<(), StoreError> {
        if let Some(store) = self.place.pages.clone() {
            let prefix = Some(self.place.path()).filter(|path| !path.as_ref().is_empty());
            let prefix = prefix.map(|path| format!("{path}/"));
            let (state, mut seen) = (RandomState::new(), HashSet::new());
            let mut options = PaginatedListOptions::default();
            loop {
                let page = store.list_paginated(prefix.as_deref(), options.clone()).await;
                let page = page.map_err(self.failed())?;
                for object in &page.result.objects {
                    self.add(object)?;
                }
                let Some(token) = page.page_token else { return Ok(()) };
                if !seen.insert(state.hash_one(&token)) {
                    return Err(self.limit("the store refers to a page again that it has given".to_owned()));
                }
                if seen.len() >= self.limits.pages {
                    return Err(self.limit(format!("the list has more than {} pages", self.limits.pages)));
                }
                options.page_token = Some(token);
            }
        }
        let mut objects = self.place.store.list(Some(self.place.path()));
        while let Some(object) = objects.next().await {
            self.add(&object.map_err(self.failed())?)?;
        }
        Ok(())
    }

    /// Adds an object, if it is an archive that is wanted and is where it was looked for.
    fn add(&mut self, object: &ObjectMeta) -> Result<(), StoreError> {
        let path = &object.location;
        let name = Name::parse(path.as_ref()).filter(|name| self.wanted.takes(name));
        let Some(name) = name.filter(|_| path.prefix_matches(self.place.path())) else { return Ok(()) };
        let found = Found {
            url: self.place.url(path),
            bytes: object.size,
            host: name.host,
            session: name.session,
            begin: name.begin,
            end: name.end,
        };
        self.memory += size_of::<Found>() + found.url.len() + found.host.len() + found.session.len();
        if self.memory > self.limits.memory {
            let why = format!(
                "more than {} archives; name a longer prefix, or use --host, --session, --since or --until",
                self.found.len()
            );
            return Err(self.limit(why));
        }
        self.found.push(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::hostile::{Server, page};
    use super::super::http::LONGEST_ANSWER;
    use super::*;

    const KEY: &str = "x/lab/2026-03-02/n/s/20260302T101500.250Z-20260302T101501.000Z-0123456789abcdef.dat";

    fn listed(server: &Server, limits: Limits) -> Result<Vec<Found>, StoreError> {
        block_on(list_at(&server.place("x"), &Wanted::default(), limits)).unwrap()
    }

    #[test]
    fn a_list_has_the_archives_below_its_prefix_only() {
        let server = Server::start(|request, stream| {
            let keys = [
                KEY,
                "y/lab/2026-03-02/n/s/20260302T101500.250Z-20260302T101501.000Z-0123456789abcdef.dat",
                "x/lab/2026-03-02/n/\u{9b}2J/20260302T101500.250Z-20260302T101501.000Z-0123456789abcdef.dat",
            ];
            assert!(request.starts_with("GET /bucket?") && request.contains("prefix=x%2F"));
            page(stream, &keys, None);
        });
        let found = listed(&server, LIMITS).unwrap();
        let found: Vec<_> = found.iter().map(|found| (found.url.as_str(), found.bytes)).collect();
        assert_eq!(found, [(format!("s3://bucket/{KEY}").as_str(), 7)]);
    }

    #[test]
    fn a_page_that_refers_to_itself_ends_a_list() {
        let server = Server::start(|_, stream| page(stream, &[KEY], Some("again")));
        assert!(matches!(listed(&server, LIMITS), Err(StoreError::Limit { .. })));
        assert_eq!(server.requests(), 2);
    }

    #[test]
    fn pages_and_archives_without_end_end_a_list() {
        let number = AtomicUsize::new(0);
        let server = Server::start(move |_, stream| {
            let token = number.fetch_add(1, Ordering::SeqCst).to_string();
            page(stream, &[KEY], Some(&token));
        });
        assert!(matches!(listed(&server, Limits { pages: 5, ..LIMITS }), Err(StoreError::Limit { .. })));
        assert_eq!(server.requests(), 5);
        assert!(matches!(listed(&server, Limits { memory: 1, ..LIMITS }), Err(StoreError::Limit { .. })));
        assert_eq!(server.requests(), 6);
    }

    #[test]
    fn a_page_without_end_is_not_kept() {
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&sent);
        let server = Server::start(move |_, stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<ListBucketResult>");
            let block = [b' '; 1 << 12];
            while stream.write_all(&block).is_ok() && counter.load(Ordering::SeqCst) < 1 << 30 {
                counter.fetch_add(block.len(), Ordering::SeqCst);
            }
        });
        let error = listed(&server, LIMITS).unwrap_err();
        assert!(matches!(error, StoreError::Limit { .. }), "{error}");
        // The rest is in the buffers of the connection.
        assert!((sent.load(Ordering::SeqCst) as u64) < 2 * LONGEST_ANSWER);
        assert_eq!(server.requests(), 1);
    }

    #[test]
    fn a_list_that_does_not_come_ends_in_time() {
        let server = Server::start(|_, stream| {
            // Until the client has gone.
            let _ = std::io::Read::read(stream, &mut [0]);
        });
        let limits = Limits { time: Duration::from_millis(100), ..LIMITS };
        assert_eq!(listed(&server, limits).unwrap_err().cause(), Cause::Timeout);
    }
}
