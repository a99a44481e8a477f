//! The places of entries, and their marks `shadowed: true`.

use super::{fault::Findings, fields::Fields, scalar::flag, source::Place};

/// The remedy for a limit or an override without effect for what a file has. Its removal is not suggested: it
/// would be missing when the file changes.
pub(super) const FILE_CHANGES: &str =
    "it may stay: that changes with the file; add `shadowed: true` to be told no more";
/// The same for an entry of a list.
pub(super) const FILE_CHANGES_LIST: &str = "it may stay: that changes with the file; write \
                                            `{src: ..., shadowed: true}` to be told no more";

/// The place of an entry, and whether it may be without effect.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) at: Place,
    /// Whether the entry has `shadowed: true`.
    pub(super) shadowed: bool,
    /// Whether the entry is left out of the policy, for what a file has.
    pub(super) left_out: bool,
}

impl Spot {
    /// An entry at a place; `fields` are its keys, if it is a mapping.
    pub(super) fn new(
        at: Place,
        fields: Option<&Fields<'_, '_>>,
        findings: &mut Findings<'_>,
    ) -> Self {
        let node = fields.and_then(|fields| fields.get("shadowed"));
        let shadowed = node.and_then(|node| flag(node, findings)) == Some(true);
        Self { at, shadowed, left_out: false }
    }
}
