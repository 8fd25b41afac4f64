//! Archives below an address.

use futures_util::StreamExt as _;
use serde::Serialize;

use super::failure::StoreError;
use super::name::Name;
use super::place::{Access, Place, Retries, block_on};
use stdx::input::glob;

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
/// The address is wrong, or the store cannot be reached or does not allow it.
pub fn list(url: &str, access: &Access, wanted: &Wanted) -> Result<Vec<Found>, StoreError> {
    let place = Place::open(url, access, Retries::Client)?;
    block_on(list_at(&place, wanted)).map_err(StoreError::local("make requests"))?
}

async fn list_at(place: &Place, wanted: &Wanted) -> Result<Vec<Found>, StoreError> {
    let mut objects = place.store.list(Some(place.path()));
    let mut found = Vec::new();
    while let Some(object) = objects.next().await {
        let what = format!("list {}", place.url(place.path()));
        let object = object.map_err(StoreError::remote(what, &place.filter))?;
        let Some(name) = Name::parse(object.location.as_ref()).filter(|name| wanted.takes(name)) else {
            continue;
        };
        found.push(Found {
            url: place.url(&object.location),
            bytes: object.size,
            host: name.host,
            session: name.session,
            begin: name.begin,
            end: name.end,
        });
    }
    found.sort_by(|a, b| (a.begin, &a.url).cmp(&(b.begin, &b.url)));
    Ok(found)
}
