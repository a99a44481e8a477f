//! The scenarios that need no kernel: the decision core beside independent models of it.

mod bucket;
mod classify;
mod parser;
