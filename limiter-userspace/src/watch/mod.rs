//! `limiter watch`: what the limiter does, as it does it.
//!
//! [`session::run`] asks a reader for a [`Reading`](view::Reading) per interval, keeps what they
//! amount to in a [`View`](view::View), and shows it: on a terminal as a [`screen`], elsewhere as
//! [`lines`]. Nothing here touches the kernel side, and leaving a watch changes nothing.

pub mod history;
pub mod lines;
mod pace;
pub mod screen;
pub mod session;
pub mod talkers;
mod terminal;
pub mod view;
mod wake;
