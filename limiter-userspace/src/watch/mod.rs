//! `limiter watch`: the live view of a limiter.
//!
//! [`session::run`] makes a [`Reading`](view::Reading) of a [`DataSource`](data_source::DataSource)
//! in each interval, collects them in a [`View`](view::View), and shows that: on a terminal as a
//! [`screen`], elsewhere as [`lines`].
//!
//! Nothing here accesses the kernel. A change that the user has confirmed leaves [`controls`] as an
//! [`Action`](action::Action), and the data source makes it. The end of a watch changes nothing.

pub mod action;
pub mod controls;
pub mod data_source;
mod display;
pub mod drops;
pub mod history;
pub mod limit_order;
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
