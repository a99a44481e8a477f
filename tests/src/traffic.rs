//! Senders that keep a pace and know what they really sent, and receivers that count on the wire.

mod connection;
mod pace;
mod packet_socket;
mod receiver;
mod sender;
mod service;
mod stream;

pub use self::{
    connection::{Connection, connect_from},
    pace::{Pace, Stop},
    receiver::{Arrivals, Count, Flow, Receiver},
    sender::{Sender, Sent, send_together},
    service::Service,
    stream::{datagrams, storm, transfer},
};
