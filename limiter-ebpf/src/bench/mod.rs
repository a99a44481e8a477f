//! What the program of the benchmark is made of.

pub mod parts;
