//! The trace.dat version 7 file format.
