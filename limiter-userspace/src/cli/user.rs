//! The user of a command.

use crate::policy::units::printable;
use std::env;

/// The user who gives the command: the caller of `sudo`, or else the real user. The name is fit for
/// a terminal.
pub(super) fn user() -> Option<String> {
    // SAFETY: `getuid` has no precondition.
    let user = unsafe { libc::getuid() };
    let by_sudo = env::var("SUDO_USER").ok().filter(|name| user == 0 && !name.is_empty());
    Some(match (by_sudo, user) {
        (Some(name), _) => printable(&name, 32),
        (None, 0) => "root".to_owned(),
        (None, user) => format!("user {user}"),
    })
}
