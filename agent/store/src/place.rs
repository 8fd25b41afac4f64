//! From an address to a store, what it can do, and where in it names begin.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, BackoffConfig, ClientOptions, GetOptions, ObjectMeta, ObjectStore,
    ObjectStoreScheme, RetryConfig,
};
use url::Url;

use super::config::ConfigError;
use super::credentials;
use super::failure::StoreError;
use super::http::Connector;
use super::secret::{Filter, Secret};

/// The user-defined attribute of objects that has the SHA-256 of their content. Azure allows no hyphens in
/// it.
pub(super) const SHA256: &str = "sha256";
/// A connection that takes longer to be made is none.
const CONNECT: Duration = Duration::from_secs(10);
/// How long commands that read try again.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// Words in names of the environment's variables whose values are secrets.
const SECRET_NAMES: [&str; 5] = ["KEY", "SECRET", "TOKEN", "PASSWORD", "SAS"];
/// What the names of variables for stores begin with.
const OF_STORES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// How a store is reached; the address says which it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The address of the service where it is not the provider's own.
    pub endpoint: Option<String>,
    /// The region of the bucket.
    pub region: Option<String>,
    /// Whether requests may go over connections without encryption.
    pub allow_http: bool,
    /// A file with credentials.
    pub credentials_file: Option<PathBuf>,
    /// How long one request may take, with its answer.
    pub timeout: Duration,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            allow_http: false,
            credentials_file: None,
            timeout: Duration::from_mins(2),
        }
    }
}

/// Who tries again what has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retries {
    /// The store's client, for half a minute.
    Client,
    /// Whoever calls.
    Caller,
}

/// How objects are written that are larger than a part.
#[derive(Clone)]
pub(super) enum Parts {
    /// In parts that another process can go on with.
    Resumable(Arc<dyn MultipartStore>),
    /// In parts, all by the same process.
    Streamed,
    /// Not at all.
    Whole,
}

/// A store, and what names in it begin with.
#[derive(Clone)]
pub struct Place {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) parts: Parts,
    /// The same store, where lists have pages.
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    /// Whether objects have attributes of users.
    pub(super) has_attributes: bool,
    pub(super) filter: Arc<Filter>,
    prefix: Path,
    /// What comes before the path in addresses of objects.
    origin: String,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.url(&self.prefix)).finish()
    }
}

/// What a store has of an object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its size and times.
    pub meta: ObjectMeta,
    /// The SHA-256 that whoever stored it says that it has.
    pub sha256: Option<String>,
}

/// Whether this names an object in a store, and not a file.
pub fn is_url(text: &str) -> bool {
    ["s3://", "s3a://", "gs://", "az://", "https://", "http://", "file://"]
        .iter()
        .any(|one| text.starts_with(one))
}

fn parse_url(text: &str) -> Result<(ObjectStoreScheme, Url, Path), ConfigError> {
    // The text is not repeated: it may have credentials.
    let wrong = |why: &str| ConfigError::new("url", why);
    let url = Url::parse(text).map_err(|error| wrong(&format!("it is no address: {error}")))?;
    if url.password().is_some() || (!url.username().is_empty() && !matches!(url.scheme(), "az")) {
        return Err(wrong("credentials do not belong into it; use the environment or credentials_file"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it has a query or a fragment, which names of objects have not"));
    }
    let known = "begin it with s3://BUCKET, gs://BUCKET, az://CONTAINER, https://HOST or file:///DIRECTORY";
    let (scheme, path) = ObjectStoreScheme::parse(&url).map_err(|_| wrong(known))?;
    match scheme {
        ObjectStoreScheme::Memory => Err(wrong(known)),
        scheme => Ok((scheme, url, path)),
    }
}

fn check_encrypted(field: &'static str, url: &Url, allow_http: bool) -> Result<(), ConfigError> {
    if url.scheme() == "http" && !allow_http {
        let why = "http:// has no encryption: use https://, or allow it (allow_http, --allow-http)";
        return Err(ConfigError::new(field, why));
    }
    Ok(())
}

/// Checks the address of a store.
pub(super) fn check_url(text: &str, allow_http: bool) -> Result<(), ConfigError> {
    let (_, url, _) = parse_url(text)?;
    check_encrypted("url", &url, allow_http)
}

/// Checks the address of a service.
pub(super) fn check_endpoint(text: &str, allow_http: bool) -> Result<(), ConfigError> {
    let wrong = |why: String| ConfigError::new("endpoint", why);
    let url = Url::parse(text).map_err(|error| wrong(format!("it is no address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("it does not begin with https:// or http://".to_owned()));
    }
    if url.password().is_some() || !url.username().is_empty() || url.query().is_some() {
        return Err(wrong("credentials do not belong into it".to_owned()));
    }
    check_encrypted("endpoint", &url, allow_http)
}

/// A store as its kind makes it.
struct Built {
    store: Arc<dyn ObjectStore>,
    parts: Parts,
    pages: Option<Arc<dyn PaginatedListStore>>,
}

/// What a configuration or an environment says, by name.
type Settings = Vec<(String, Secret)>;

/// The environment's variables for stores.
fn environment() -> Settings {
    let of_stores = |name: &String| OF_STORES.iter().any(|start| name.starts_with(start));
    let vars = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let vars = vars.filter(|(name, _)| of_stores(name));
    vars.filter_map(|(name, value)| Some((name, Secret::new(value.into_string().ok()?)))).collect()
}

fn is_secret(name: &str) -> bool {
    !name.ends_with("_FILE") && SECRET_NAMES.iter().any(|part| name.contains(part))
}

impl Place {
    /// The place that an address names.
    ///
    /// # Errors
    /// The address or an option is wrong, or the file with credentials cannot be used. No request is made.
    pub fn open(url: &str, access: &Access, retries: Retries) -> Result<Self, ConfigError> {
        let (scheme, url, path) = parse_url(url)?;
        check_encrypted("url", &url, access.allow_http)?;
        let mut settings = match &access.credentials_file {
            // What the environment has besides may belong to other credentials.
            Some(file) => credentials::read(file)?,
            None => environment(),
        };
        let secrets = settings.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.clone());
        let filter = Arc::new(Filter::new(secrets.collect::<Vec<_>>()));
        if access.credentials_file.is_some() {
            let kept = |name: &str| matches!(name, "AWS_REGION" | "AWS_DEFAULT_REGION" | "AWS_ENDPOINT_URL");
            settings.extend(environment().into_iter().filter(|(name, _)| kept(name)));
        }
        if access.endpoint.is_none()
            && let Some((_, of_environment)) =
                settings.iter().find(|(name, _)| name.starts_with("AWS_ENDPOINT"))
        {
            check_endpoint(of_environment.reveal(), access.allow_http)?;
        }
        if let Some(endpoint) = &access.endpoint {
            check_endpoint(endpoint, access.allow_http)?;
        }
        let failed = |error: object_store::Error| ConfigError::new("url", filter.clean(&error.to_string()));
        let made = Self::build(&scheme, &url, &path, access, settings, retry(retries));
        let Built { store, parts, pages } = made.map_err(failed)?;
        let (prefix, origin) = match scheme {
            ObjectStoreScheme::Local => (path, "file://".to_owned()),
            _ => (path, url[..url::Position::BeforePath].to_owned()),
        };
        let has_attributes = !matches!(scheme, ObjectStoreScheme::Local | ObjectStoreScheme::Http);
        Ok(Self { store, parts, pages, has_attributes, filter, prefix, origin })
    }

    fn build(
        scheme: &ObjectStoreScheme,
        url: &Url,
        path: &Path,
        access: &Access,
        settings: Settings,
        retry: RetryConfig,
    ) -> object_store::Result<Built> {
        let connector = Connector { connect: CONNECT.min(access.timeout), timeout: access.timeout };
        let client =
            ClientOptions::new().with_allow_http(access.allow_http).with_connect_timeout(connector.connect);
        /// Gives a builder what settings say that it knows.
        macro_rules! configured {
            ($builder:expr) => {{
                let known = settings.into_iter().filter_map(|(name, value)| {
                    Some((name.to_ascii_lowercase().parse().ok()?, value.reveal().to_owned()))
                });
                known.fold($builder, |builder, (key, value)| builder.with_config(key, value))
            }};
        }
        let with = |text: &Option<String>| text.clone();
        match scheme {
            ObjectStoreScheme::AmazonS3 => {
                let mut builder = configured!(AmazonS3Builder::new()).with_url(url.as_str());
                if let Some(endpoint) = with(&access.endpoint) {
                    builder = builder.with_endpoint(endpoint);
                }
                if let Some(region) = with(&access.region) {
                    builder = builder.with_region(region);
                }
                let builder = builder.with_checksum_algorithm(Checksum::SHA256).with_retry(retry);
                let store = builder.with_client_options(client).with_http_connector(connector).build()?;
                let store = Arc::new(store);
                let parts = Parts::Resumable(store.clone());
                Ok(Built { store: store.clone(), parts, pages: Some(store) })
            }
            ObjectStoreScheme::GoogleCloudStorage => {
                let mut builder = configured!(GoogleCloudStorageBuilder::new()).with_url(url.as_str());
                if let Some(endpoint) = with(&access.endpoint) {
                    builder = builder.with_base_url(&endpoint);
                }
                let builder = builder.with_retry(retry).with_client_options(client);
                let store = Arc::new(builder.with_http_connector(connector).build()?);
                let parts = Parts::Resumable(store.clone());
                Ok(Built { store: store.clone(), parts, pages: Some(store) })
            }
            ObjectStoreScheme::MicrosoftAzure => {
                let mut builder = configured!(MicrosoftAzureBuilder::new()).with_url(url.as_str());
                if let Some(endpoint) = with(&access.endpoint) {
                    builder = builder.with_endpoint(endpoint);
                }
                let builder = builder.with_retry(retry).with_client_options(client);
                let store = Arc::new(builder.with_http_connector(connector).build()?);
                // Its resumable parts make objects without attributes.
                Ok(Built { store: store.clone(), parts: Parts::Streamed, pages: Some(store) })
            }
            ObjectStoreScheme::Http => {
                let origin = &url[..url::Position::BeforePath];
                let builder =
                    HttpBuilder::new().with_url(origin).with_retry(retry).with_client_options(client);
                let store = Arc::new(builder.with_http_connector(connector).build()?);
                Ok(Built { store, parts: Parts::Whole, pages: None })
            }
            // Objects of a file system are found from its root on, as addresses have them.
            _ => {
                let _ = path;
                let store = Arc::new(LocalFileSystem::new().with_fsync(true));
                Ok(Built { store, parts: Parts::Streamed, pages: None })
            }
        }
    }

    /// A store in memory, for tests.
    #[cfg(test)]
    pub(super) fn in_memory() -> (Self, Arc<object_store::memory::InMemory>) {
        let store = Arc::new(object_store::memory::InMemory::new());
        (Self::of(store.clone(), Parts::Resumable(store.clone())), store)
    }

    /// The same store, with another path.
    #[cfg(test)]
    pub(super) fn at(&self, prefix: Path) -> Self {
        Self { prefix, ..self.clone() }
    }

    #[cfg(test)]
    pub(super) fn of(store: Arc<dyn ObjectStore>, parts: Parts) -> Self {
        let prefix = Path::from("traces");
        Self {
            store,
            parts,
            pages: None,
            has_attributes: true,
            filter: Arc::default(),
            prefix,
            origin: "memory://".into(),
        }
    }

    /// What names begin with; the object itself where the address names one.
    pub fn path(&self) -> &Path {
        &self.prefix
    }

    /// The path of a name below the address. Empty parts and those that lead elsewhere are escaped.
    pub fn below(&self, name: &str) -> Path {
        self.prefix.parts().chain(Path::from(name).parts()).collect()
    }

    /// The address of an object.
    pub fn url(&self, path: &Path) -> String {
        format!("{}/{path}", self.origin)
    }

    /// What the store has at a path; `None` if there is nothing.
    ///
    /// # Errors
    /// The store does not say.
    pub async fn look(&self, path: &Path) -> Result<Option<Object>, StoreError> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.store.get_opts(path, options).await {
            Ok(found) => {
                let sha256 = found.attributes.get(&Attribute::Metadata(SHA256.into()));
                let sha256 = sha256.map(|value| value.as_ref().to_owned());
                Ok(Some(Object { meta: found.meta, sha256 }))
            }
            // That the bucket is missing shows when something is written to it.
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(StoreError::remote(format!("ask for {}", self.url(path)), &self.filter)(error)),
        }
    }

    /// The attributes of an object with this content.
    pub(super) fn attributes(&self, sha256: &str) -> Attributes {
        let attributes = self.has_attributes.then(|| (Attribute::Metadata(SHA256.into()), sha256.to_owned()));
        attributes.into_iter().collect()
    }
}

fn retry(retries: Retries) -> RetryConfig {
    match retries {
        Retries::Client => RetryConfig { retry_timeout: READ_AGAIN, ..RetryConfig::default() },
        Retries::Caller => {
            RetryConfig { max_retries: 0, backoff: BackoffConfig::default(), retry_timeout: Duration::ZERO }
        }
    }
}

/// Runs requests to their end, on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> std::io::Result<T> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
}
