//! ABI.
#![no_std]
