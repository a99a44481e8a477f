//! The dropped packets that a watch has seen since it was asked to show them.

use std::collections::VecDeque;

use crate::{output::drops::Tops, query::dropped::Dropped};

/// The most packets that are kept: more than any screen has rows.
const KEPT: usize = 256;

/// Dropped packets.
#[derive(Clone, Debug, Default)]
pub struct Drops {
    latest: VecDeque<Dropped>,
    tops: Tops,
}

impl Drops {
    /// Takes in packets, in the order in which they came.
    pub fn record(&mut self, packets: Vec<Dropped>) {
        for packet in packets {
            self.tops.add(&packet);
            if self.latest.len() == KEPT {
                self.latest.pop_back();
            }
            self.latest.push_front(packet);
        }
    }

    /// The packets that came last, the last one first.
    pub fn latest(&self) -> impl Iterator<Item = &Dropped> {
        self.latest.iter()
    }

    /// What all of them have in common.
    pub const fn tops(&self) -> &Tops {
        &self.tops
    }
}
