//! What a configuration says of uploads, and of what is kept on this machine.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::place::Access;
use stdx::quantity::{Bytes, Period};

/// S3 takes no smaller parts but the last one (Amazon S3 User Guide, "Amazon S3 multipart upload limits").
pub const SMALLEST_PART: u64 = 5 << 20;
/// Two parts are in memory at a time, for each of the uploads that run.
pub const LARGEST_PART: u64 = 1 << 30;

/// Where archives go, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UploadConfig {
    /// The store and what all names in it begin with: `s3://bucket/prefix`, `gs://bucket/prefix`,
    /// `az://container/prefix`, `https://host/path` (WebDAV) or `file:///directory`.
    pub url: String,
    /// The address of the service where it is not the provider's own: `https://minio.example:9000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The region of the bucket. Default: that of the environment, else `us-east-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Whether requests may go over connections without encryption.
    #[serde(default)]
    pub allow_http: bool,
    /// A file with credentials, of lines `NAME = value` with the names that the environment has (`AWS_...`,
    /// `GOOGLE_...`, `AZURE_...`). It must belong to the user that runs this or to root, and nobody else may
    /// read it. Default: the environment, web identity, or the metadata service of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub credentials_file: Option<PathBuf>,
    /// The first part of the names: which fleet, cluster or place this machine belongs to. Default:
    /// `default`.
    #[serde(default = "default_site")]
    pub site: String,
    /// Bytes a second of all uploads together. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub bandwidth: Option<Bytes>,
    /// Archives that are larger are sent in parts of this size, 5 MiB at least; up to two of them are in
    /// memory. Default: `8M`.
    #[serde(default = "default_part_size")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub part_size: Bytes,
    /// The longest time between two attempts while the store is not reached. Default: `5m`.
    #[serde(default = "default_max_backoff")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub max_backoff: Period,
    /// How long one request may take, with the part that it sends. Default: `2m`.
    #[serde(default = "default_timeout")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub timeout: Period,
}

/// How long archives stay on this machine, and how much room they may take. What is not set limits nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RetentionConfig {
    /// Stored archives that ended longer ago are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub max_age: Option<Period>,
    /// The most bytes of all archives together; stored ones are deleted, the oldest first, until the rest
    /// fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub max_bytes: Option<Bytes>,
    /// The least free bytes on the file systems with archives.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub min_free_bytes: Option<Bytes>,
    /// The same in percent of the file system, 0 to 99. With both, the larger one counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_percent: Option<u8>,
    /// What happens to archives that are not in the store yet while too little of the disk is free: `keep`
    /// leaves them where they are, `delete-oldest` deletes the oldest ones when no stored one is left, and
    /// counts them. Default: `keep`.
    pub unsent: Unsent,
}

/// What happens to archives that are not in the store yet when the disk has too little room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Unsent {
    /// They stay, whatever becomes of the disk.
    #[default]
    Keep,
    /// The oldest ones are deleted when no stored one is left to be deleted, and counted.
    DeleteOldest,
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct ConfigError {
    /// The name of the field.
    pub field: &'static str,
    /// What is wrong with its value, and what it may be.
    pub why: String,
}

impl ConfigError {
    pub(super) fn new(field: &'static str, why: impl Into<String>) -> Self {
        Self { field, why: why.into() }
    }
}

fn default_site() -> String {
    "default".to_owned()
}

fn default_part_size() -> Bytes {
    Bytes(8 << 20)
}

fn default_max_backoff() -> Period {
    Period(Duration::from_mins(5))
}

fn default_timeout() -> Period {
    Period(Duration::from_mins(2))
}

impl UploadConfig {
    /// One with this address, and the defaults.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            endpoint: None,
            region: None,
            allow_http: false,
            credentials_file: None,
            site: default_site(),
            bandwidth: None,
            part_size: default_part_size(),
            max_backoff: default_max_backoff(),
            timeout: default_timeout(),
        }
    }

    /// Checks what the types do not say.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        super::place::check_url(&self.url, self.allow_http)?;
        if let Some(endpoint) = &self.endpoint {
            super::place::check_endpoint(endpoint, self.allow_http)?;
        }
        if super::name::component(&self.site) != self.site {
            let why = "it becomes a part of names: letters, digits, `.`, `-` and `_`, not beginning with `.`";
            return Err(ConfigError::new("site", why));
        }
        if self.bandwidth.is_some_and(|Bytes(bytes)| bytes < 1 << 10) {
            return Err(ConfigError::new("bandwidth", "less than 1KiB a second; leave it out for no limit"));
        }
        if !(SMALLEST_PART..=LARGEST_PART).contains(&self.part_size.0) {
            return Err(ConfigError::new("part_size", "it is not between 5MiB and 1GiB"));
        }
        if self.max_backoff.0 < Duration::from_secs(1) {
            return Err(ConfigError::new("max_backoff", "less than 1s would flood a store that is down"));
        }
        if self.timeout.0 < Duration::from_secs(1) {
            return Err(ConfigError::new("timeout", "it is less than 1s"));
        }
        Ok(())
    }

    /// How the store is reached.
    pub fn access(&self) -> Access {
        Access {
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            allow_http: self.allow_http,
            credentials_file: self.credentials_file.clone(),
            timeout: self.timeout.0,
        }
    }
}

impl RetentionConfig {
    /// Checks what the types do not say.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.min_free_percent {
            Some(percent) if percent > 99 => {
                Err(ConfigError::new("min_free_percent", "it is not between 0 and 99"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_with_its_defaults() {
        let text =
            r#"{"url": "s3://bucket/traces", "site": "lab", "part_size": "16MiB", "max_backoff": "30s"}"#;
        let config: UploadConfig = serde_json::from_str(text).unwrap();
        config.check().unwrap();
        assert_eq!((config.part_size, config.timeout), (Bytes(16 << 20), default_timeout()));
        let again: UploadConfig = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
        assert_eq!(again, config);
        assert!(serde_json::from_str::<UploadConfig>(r#"{"url": "s3://b", "sight": "x"}"#).is_err());
        let text = r#"{"max_age": "7d", "min_free_percent": 10, "unsent": "delete-oldest"}"#;
        let retention: RetentionConfig = serde_json::from_str(text).unwrap();
        assert_eq!(retention.unsent, Unsent::DeleteOldest);
        retention.check().unwrap();
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        let good = UploadConfig::new("s3://bucket/x");
        let cases: [(&str, UploadConfig); 9] = [
            ("url", UploadConfig::new("ftp://host/x")),
            ("url", UploadConfig::new("http://host/x")),
            ("url", UploadConfig::new("s3://user:password@bucket/x")),
            ("url", UploadConfig::new("s3://bucket/x?y=z")),
            ("endpoint", UploadConfig { endpoint: Some("http://host".into()), ..good.clone() }),
            ("site", UploadConfig { site: "../x".into(), ..good.clone() }),
            ("part_size", UploadConfig { part_size: Bytes(1), ..good.clone() }),
            ("bandwidth", UploadConfig { bandwidth: Some(Bytes(1)), ..good.clone() }),
            ("timeout", UploadConfig { timeout: Period(Duration::ZERO), ..good.clone() }),
        ];
        good.check().unwrap();
        for (field, config) in cases {
            assert_eq!(config.check().unwrap_err().field, field);
        }
        let retention = RetentionConfig { min_free_percent: Some(100), ..RetentionConfig::default() };
        assert_eq!(retention.check().unwrap_err().field, "min_free_percent");
    }
}
