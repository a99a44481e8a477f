//! Scenarios that need no kernel: they compare the decision core with independent models.

mod bucket;
mod classify;
mod parser;
