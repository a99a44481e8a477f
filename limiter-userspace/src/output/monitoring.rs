//! The notice that nothing is dropped, with the reason.

use std::io::Write;

use super::stream::{Output, OutputError};
use crate::{datapath::monitoring::Monitoring, policy::model::GlobalMode};

/// The notice at the end of monitor mode.
pub const OVER: &str = "Limits are enforced, each by its `action`.";

/// The notice while nothing is dropped. If both the switch and the policy are the reason, it names
/// the switch.
pub const fn said(monitoring: Monitoring) -> Option<&'static str> {
    match monitoring {
        Monitoring { switch: true, .. } => {
            Some("Nothing is dropped, only counted, until: limiter monitor off")
        }
        Monitoring { policy: GlobalMode::Monitor, .. } => {
            Some("Nothing is dropped, only counted: the policy has `mode: monitor`")
        }
        Monitoring { policy: GlobalMode::Enforce, .. } => None,
    }
}

/// Prints the notice after a table, on a line of its own, while nothing is dropped. JSON has a
/// field for it instead.
///
/// # Errors
/// [`OutputError`], if it cannot be written.
pub fn print<W: Write>(output: &mut Output<W>, monitoring: Monitoring) -> Result<(), OutputError> {
    match said(monitoring) {
        Some(said) if !output.is_json() => writeln!(output, "\n{said}"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: bool, monitoring: Monitoring) -> String {
        let mut written = Vec::new();
        let mut output = Output::new(&mut written, json, false);
        print(&mut output, monitoring).unwrap();
        output.flush().unwrap();
        drop(output);
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn it_is_told_with_what_ends_it() {
        let of = |switch, policy| Monitoring { switch, policy };
        for (monitoring, end) in [
            (of(true, GlobalMode::Enforce), "until: limiter monitor off\n"),
            (of(true, GlobalMode::Monitor), "until: limiter monitor off\n"),
            (of(false, GlobalMode::Monitor), "the policy has `mode: monitor`\n"),
        ] {
            let said = text(false, monitoring);
            assert!(said.starts_with("\nNothing is dropped, ") && said.ends_with(end), "{said}");
            assert_eq!(text(true, monitoring), "");
        }
        assert_eq!(text(false, Monitoring::default()), "");
    }
}
