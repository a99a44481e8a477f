//! Which limits a packet is about, and how all of them are charged or none.

pub mod charge;
pub mod control;
pub mod limit;
pub mod matching;
pub mod penalty;
pub mod rest;
