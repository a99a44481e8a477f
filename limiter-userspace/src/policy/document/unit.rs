//! What the amounts of an allowance are of.

use limiter_common::algorithm::rate::Rate;

use crate::policy::{
    model::Count,
    units::{
        Burst, ValueError, default_burst, format_request_rate, parse_request_burst,
        parse_request_rate,
    },
};

/// What the amounts of an allowance are of.
#[derive(Clone, Copy)]
pub(super) enum Unit<'c> {
    /// What a limit on packets counts.
    Packets(&'c Count),
    /// Requests. The dearest one costs `dearest`, at least 1.
    Requests { dearest: u64 },
}

impl Unit<'_> {
    pub(super) fn is_bytes(self) -> bool {
        matches!(self, Self::Packets(Count::Bytes))
    }

    /// What costs: a packet or a request.
    pub(super) const fn event(self) -> &'static str {
        match self {
            Self::Packets(_) => "packet",
            Self::Requests { .. } => "request",
        }
    }

    /// A rate as an example.
    pub(super) fn example(self) -> &'static str {
        match self {
            Self::Packets(Count::Bytes) => "2Mbit/s",
            Self::Packets(_) => "10k pps",
            Self::Requests { .. } => "100/min",
        }
    }

    pub(super) fn parse_rate(self, text: &str) -> Result<Rate, ValueError> {
        match self {
            Self::Packets(count) => count.parse_rate(text),
            Self::Requests { .. } => parse_request_rate(text),
        }
    }

    pub(super) fn parse_burst(self, text: &str) -> Result<Burst, ValueError> {
        match self {
            Self::Packets(count) => count.parse_burst(text),
            Self::Requests { .. } => parse_request_burst(text),
        }
    }

    /// The burst of an allowance that was written without one.
    pub(super) fn default_burst(self, rate: Rate) -> u64 {
        match self {
            Self::Packets(count) => count.default_burst(rate),
            Self::Requests { dearest } => default_burst(rate).max(dearest),
        }
    }

    /// The least that has to be admitted at once for the dearest to pass.
    pub(super) fn room(self) -> u64 {
        match self {
            Self::Packets(count) => count.room(),
            Self::Requests { dearest } => dearest,
        }
    }

    /// A rate in the syntax of [`parse_rate`](Self::parse_rate).
    pub(super) fn rate(self, rate: Rate) -> String {
        match self {
            Self::Packets(count) => count.rate(rate),
            Self::Requests { .. } => format_request_rate(rate),
        }
    }

    /// An amount in the syntax of [`parse_burst`](Self::parse_burst).
    pub(super) fn amount(self, amount: u64) -> String {
        match self {
            Self::Packets(count) => count.amount(amount),
            Self::Requests { .. } => amount.to_string(),
        }
    }
}
