//! What there is to record.

use serde::{Deserialize, Serialize};

use super::Instrumentation;

/// A place that events can come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct InstrumentationPoint {
    /// Its name.
    pub name: String,
    /// What it is.
    pub instrumentation: Instrumentation,
    /// The system or provider that it is part of, if there is one (`sched`).
    pub group: Option<String>,
    /// The fields of its records, if they were asked for.
    pub fields: Vec<FieldInfo>,
}

/// A field of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FieldInfo {
    /// Its name.
    pub name: String,
    /// Its type, as the kernel writes it.
    pub kind: String,
}
