//! Helpers of the tests that run the built agent.

pub mod harness;
