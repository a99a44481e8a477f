//! Who gives a command.

use crate::policy::units::printable;
use std::env;

/// The user who gives the command, as far as that is known: by `sudo`, the one who called it.
pub(super) fn user() -> Option<String> {
    // SAFETY: it has no precondition.
    let user = unsafe { libc::getuid() };
    let by_sudo = env::var("SUDO_USER").ok().filter(|name| user == 0 && !name.is_empty());
    Some(match (by_sudo, user) {
        (Some(name), _) => printable(&name, 32),
        (None, 0) => "root".to_owned(),
        (None, user) => format!("user {user}"),
    })
}
