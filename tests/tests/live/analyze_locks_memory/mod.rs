//! `analyze locks` and `analyze memory` of recordings of the running kernel: against programs that hold locks
//! for a known time, and against stock trace-cmd's text of the same file.
//!
//! | file | subject |
//! |---|---|
//! | `programs` | programs whose locks and pages are known |
//! | `stock` | events of stock's text |
//! | `told` | answers as JSON and as tables |
//! | `locks`, `memory` | the tests |
//! | `group` | a control group with little memory |

mod group;
mod locks;
mod memory;
mod programs;
mod stock;
mod told;
