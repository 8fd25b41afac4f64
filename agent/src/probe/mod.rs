//! Programs and events out of what a user asks for.

pub mod context;
pub mod dynamic;
pub mod fast;
pub mod filter;
pub(crate) mod generic;
pub mod hook;
pub mod plan;
pub mod scope;
pub mod shape;
pub mod slot;
pub mod typed;
