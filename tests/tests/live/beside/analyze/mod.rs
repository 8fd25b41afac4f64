//! `tracer-agent analyze` of recordings that are there already: made-up ones, and those of stock trace-cmd.

mod each;
mod hostile;
mod stock;
mod unknown;
