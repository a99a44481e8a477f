//! What becomes of requests to begin and end blocks.

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::agent) enum PushResult {
    /// The source is blocked.
    Blocked,
    /// A block that was pushed before lasts longer.
    Shorter,
    /// No connection proves it.
    Unproven,
    /// The source sends nothing to this host.
    NotAPeer,
    /// The list `allow` has it.
    Allowed,
    /// It is an address of this host.
    Own,
    /// It is a gateway of this host.
    Gateway,
    /// There were too many pushes.
    TooMany,
    /// Its set in the table of offences has no room.
    Full,
    /// The system failed to do it.
    Failed,
}

impl PushResult {
    pub(super) const ALL: [Self; 10] = [
        Self::Blocked,
        Self::Shorter,
        Self::Unproven,
        Self::NotAPeer,
        Self::Allowed,
        Self::Own,
        Self::Gateway,
        Self::TooMany,
        Self::Full,
        Self::Failed,
    ];

    /// Its name in answers and metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Shorter => "shorter",
            Self::Unproven => "unproven",
            Self::NotAPeer => "not_a_peer",
            Self::Allowed => "allowed",
            Self::Own => "own",
            Self::Gateway => "gateway",
            Self::TooMany => "too_many",
            Self::Full => "full",
            Self::Failed => "failed",
        }
    }
}

/// What became of the wish to end a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LiftResult {
    /// It is ended.
    Lifted,
    /// No push blocks the source.
    NotBlocked,
    /// Another user pushed it, or it was pushed before this process began.
    NotYours,
}

impl LiftResult {
    pub(super) const ALL: [Self; 3] = [Self::Lifted, Self::NotBlocked, Self::NotYours];

    /// Its name in answers and metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lifted => "lifted",
            Self::NotBlocked => "not_blocked",
            Self::NotYours => "not_yours",
        }
    }
}
