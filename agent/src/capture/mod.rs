//! A recording, from start to finished file.
