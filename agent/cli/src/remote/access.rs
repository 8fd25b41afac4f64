//! The options that say how object stores are reached.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use stdx::quantity::Period;
use store::Access;
use store::remote::RemoteFile;

use crate::input::Opened;

/// Heading of the options in help texts.
const STORES: &str = "Object stores";

/// How an object store is reached.
#[derive(Args, Clone, Debug, Default)]
pub struct AccessArgs {
    /// The address of the service where it is not the provider's own, such as `https://minio.example:9000`.
    /// Default: the variable AWS_ENDPOINT_URL
    #[arg(long, value_name = "URL", help_heading = STORES)]
    pub endpoint: Option<String>,

    /// The region of the bucket. Default: the variables AWS_REGION and AWS_DEFAULT_REGION
    #[arg(long, value_name = "NAME", help_heading = STORES)]
    pub region: Option<String>,

    /// Allow connections without encryption (http://)
    #[arg(long, help_heading = STORES)]
    pub allow_http: bool,

    /// A file with lines NAME = value in place of the variables AWS_..., GOOGLE_... and AZURE_...; only its
    /// owner may read it
    #[arg(long, value_name = "FILE", help_heading = STORES)]
    pub credentials_file: Option<PathBuf>,

    /// How long one request may take: 500ms, 30s, 5m. Default: 2m
    #[arg(long, value_name = "TIME", help_heading = STORES)]
    pub request_timeout: Option<Period>,
}

impl AccessArgs {
    /// The same for the readers and writers of stores.
    pub(crate) fn access(&self) -> Access {
        let default = Access::default();
        Access {
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            allow_http: self.allow_http,
            credentials_file: self.credentials_file.clone(),
            timeout: self
                .request_timeout
                .map_or(default.timeout, |Period(time)| time.max(Duration::from_millis(1))),
        }
    }

    pub(super) fn open(&self, url: &str) -> io::Result<Opened> {
        Ok(Box::new(RemoteFile::open(url, &self.access()).map_err(io::Error::other)?))
    }
}

/// The address of an object, if the path is one.
pub(crate) fn url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| store::is_url(text))
}
