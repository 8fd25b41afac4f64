//! The packages, against the programs that they are made for: dpkg, lintian, rpm, skopeo, umoci, systemd's
//! checks of units, and the schemas of Kubernetes. Nothing is installed on this machine: each test has a root
//! of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod debian;
mod image;
mod kubernetes;
mod place;
mod rpm;
mod units;
