//! Object stores on the command line: the options that say how they are reached, and files in them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use stdx::quantity::Period;
use store::Access;
use store::remote::RemoteFile;

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
    pub(super) fn access(&self) -> Access {
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
}

/// The address of an object, if the path is one.
pub(super) fn url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| store::is_url(text))
}

/// The object at an address, as the readers of trace files take it.
pub(super) fn open(url: &str, args: &AccessArgs) -> io::Result<RemoteFile> {
    RemoteFile::open(url, &args.access()).map_err(io::Error::other)
}
