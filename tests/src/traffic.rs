//! Senders that keep a pace and know what they really sent, and receivers that count on the wire.

mod pace;
mod packet_socket;
mod receiver;
mod sender;
mod stream;

pub use self::{
    pace::{Pace, Stop},
    receiver::{Arrivals, Count, Flow, Receiver},
    sender::{Sender, Sent, send_together},
    stream::{datagrams, storm, transfer},
};
