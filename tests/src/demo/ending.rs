//! The result of the demonstration.

/// What the process tells by its exit code.
pub(crate) enum Ending {
    /// Every sender and client got what its limit admits.
    Exact,
    /// At least one did not.
    Off,
    /// The user pressed Ctrl-C.
    Interrupted,
}
