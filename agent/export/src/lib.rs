//! Recordings in the layouts of other tracers: directories, or a file.
//!
//! | module | what |
//! |---|---|
//! | [`perfetto`] | format `perfetto` |
//! | [`perf_script`] | format `perf-script` |
//! | [`ltt2008`] | LTTng of 2008 |
//! | [`eventdefs`] | LTT of 2003 |
//! | [`recognise`] | the layout of a directory |
//! | [`blocks`] | headers of the blocks of both historic layouts |

pub mod blocks;
pub mod eventdefs;
pub mod ltt2008;
mod payload;
pub mod perf_script;
pub mod perfetto;
pub mod recognise;
mod state;
