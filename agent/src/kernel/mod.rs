//! What the running kernel offers.
