//! `limiter watch`: what the limiter does, as it does it.
//!
//! [`session::run`] asks a [`DataSource`](data_source::DataSource) for a [`Reading`](view::Reading) per interval,
//! keeps what they amount to in a [`View`](view::View), and shows it: on a terminal as a [`screen`],
//! elsewhere as [`lines`]. Nothing here touches the kernel side: what keys ask for comes out of
//! [`controls`] as an [`Action`](action::Action), once it was confirmed, and is done by the subject.
//! Leaving a watch changes nothing.

pub mod action;
pub mod controls;
pub mod data_source;
mod display;
pub mod history;
pub mod lines;
mod observer;
pub mod opened;
pub mod options;
mod pace;
pub mod screen;
pub mod session;
pub mod standing;
mod stop;
pub mod talkers;
mod terminal;
pub mod view;
mod wake;
