//! The columns of tables as Arrow's types.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};

use super::super::about::About;
use super::super::value::{Column, Type};

/// The zone of moments.
pub(super) const UTC: &str = "UTC";

/// How texts are written of which there are few different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// By their places in a dictionary, which each chunk has anew.
    Dictionary,
    /// As they are. A file of Arrow's has one dictionary for all chunks, which would have to be in memory, or
    /// additions to it, which some readers do not know.
    Plain,
}

/// The metadata of each file: which recording it is of.
pub(super) fn metadata(about: &About) -> Vec<(String, String)> {
    let facts = [
        ("recording", Some(&about.id)),
        ("host", about.hostname.as_ref()),
        ("boot_id", about.boot_id.as_ref()),
        ("clock", Some(&about.clock)),
        ("recorder", about.recorder.as_ref()),
    ];
    let known = facts.into_iter().filter_map(|(name, text)| Some((name, text?)));
    known.map(|(name, text)| (format!("tracer.{name}"), text.clone())).collect()
}

/// The schema of a table.
pub(super) fn of(columns: &[Column], names: Names, metadata: &[(String, String)]) -> SchemaRef {
    let fields: Vec<Field> =
        columns.iter().map(|(name, ty)| Field::new(name.as_ref(), data_type(*ty, names), true)).collect();
    let metadata: HashMap<String, String> = metadata.iter().cloned().collect();
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

/// The elements of a list.
pub(super) fn item(ty: Type, names: Names) -> FieldRef {
    Arc::new(Field::new_list_field(data_type(ty, names), true))
}

pub(super) fn data_type(ty: Type, names: Names) -> DataType {
    match ty {
        Type::Signed(1) => DataType::Int8,
        Type::Signed(2) => DataType::Int16,
        Type::Signed(4) => DataType::Int32,
        Type::Signed(_) | Type::Time | Type::Wall => DataType::Int64,
        Type::Unsigned(1) => DataType::UInt8,
        Type::Unsigned(2) => DataType::UInt16,
        Type::Unsigned(4) => DataType::UInt32,
        Type::Unsigned(_) | Type::Address => DataType::UInt64,
        Type::Bool => DataType::Boolean,
        Type::Name if names == Names::Dictionary => {
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
        }
        Type::Text | Type::Name => DataType::Utf8,
        Type::Moment => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        Type::List(element) => DataType::List(item(element.ty(), names)),
    }
}
