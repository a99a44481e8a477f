//! The end of conversations, of which those who have them are told.

use std::time::Duration;

use tokio::{sync::watch, time::sleep};

/// How long connections and requests are taken still once the end began. The runtime may not have seen yet what was sent
/// before.
const GRACE: Duration = Duration::from_millis(10);

/// Waits until `end` is true, and a little longer.
pub(super) async fn ended(mut end: watch::Receiver<bool>) {
    // Nobody is left to say so, which is an end too.
    let _: Result<_, _> = end.wait_for(|end| *end).await;
    sleep(GRACE).await;
}
