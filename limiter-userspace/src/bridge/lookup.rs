//! What a running bridge tells a command.

use std::{net::IpAddr, path::Path, thread, time::Duration};

use hyper::{Method, body::Bytes};
use serde::Deserialize;
use tokio::runtime;

use super::{
    answer::RequestFill,
    client::{Client, accepted},
};
use crate::policy::units::printable;

/// How long the bridge may take.
const PATIENCE: Duration = Duration::from_millis(200);
/// The longest text of it that is shown, in characters.
const LONGEST: usize = 256;

#[derive(Deserialize)]
struct Told {
    requests: Vec<RequestFill>,
}

/// Asks the bridge at a socket what its limits have left for a source. `None` if no bridge answers there, or not to this user.
pub fn requests_of(socket: &Path, source: IpAddr) -> Option<Vec<RequestFill>> {
    let ask = || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let client = Client::new(socket);
        let target = format!("/v1/source/{source}");
        let answer = client.ask(Method::GET, &target, Bytes::new(), PATIENCE);
        accepted(runtime.block_on(answer).ok()?).ok()
    };
    // Elsewhere: `watch` asks from within a runtime, which lets no other one be waited for in its threads.
    let body = thread::scope(|scope| scope.spawn(ask).join());
    read(&body.ok()??)
}

/// Reads what a bridge told. Who answers at the socket may be anybody, so its texts are made fit for a terminal.
fn read(body: &[u8]) -> Option<Vec<RequestFill>> {
    let told: Told = serde_json::from_slice(body).ok()?;
    let fit = |fill: RequestFill| RequestFill {
        name: printable(&fill.name, LONGEST),
        key: printable(&fill.key, LONGEST),
        mode: printable(&fill.mode, LONGEST),
        ..fill
    };
    Some(told.requests.into_iter().map(fit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_from_within_a_runtime_too() {
        let runtime = runtime::Builder::new_current_thread().build().unwrap();
        let asked = async { requests_of(Path::new("/nowhere"), [192, 0, 2, 1].into()) };
        assert!(runtime.block_on(asked).is_none());
    }

    #[test]
    fn texts_of_a_bridge_are_made_fit_for_a_terminal() {
        let body = br#"{"requests": [{
            "name": "\u001b[2Jlogin", "key": "\u001bsource", "mode": "\u0007", "quota": 5, "window": 60.0, "left": 5,
            "wait": null, "refills": 0.0
        }]}"#;
        let fill = read(body).unwrap().remove(0);
        assert_eq!(
            (&*fill.name, &*fill.key, &*fill.mode),
            (r"\u{1b}[2Jlogin", r"\u{1b}source", r"\u{7}")
        );
    }
}
