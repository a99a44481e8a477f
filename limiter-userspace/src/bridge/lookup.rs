//! What a running bridge tells a command.

use std::{net::IpAddr, path::Path, time::Duration};

use hyper::{Method, body::Bytes};
use serde::Deserialize;
use tokio::runtime;

use super::{
    answer::RequestFill,
    client::{Client, accepted},
};

/// How long the bridge may take.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
struct Told {
    requests: Vec<RequestFill>,
}

/// Asks the bridge at a socket what its limits have left for a source. `None` if no bridge answers there, or not to this user.
pub fn requests_of(socket: &Path, source: IpAddr) -> Option<Vec<RequestFill>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let client = Client::new(socket);
    let target = format!("/v1/source/{source}");
    let answer = runtime.block_on(client.ask(Method::GET, &target, Bytes::new(), PATIENCE)).ok()?;
    let told: Told = serde_json::from_slice(&accepted(answer).ok()?).ok()?;
    Some(told.requests)
}
