//! The policy document: fixtures, and what no document may do.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod edits;
mod files;
mod fixtures;
mod generated;
mod hostile;
mod meaning;
mod requests;

use proptest::prelude::ProptestConfig;

/// So many sixteenths of the usual number of cases, which `PROPTEST_CASES` sets and is 256.
fn sixteenths(count: u32) -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: (usual.cases * count / 16).max(1), ..usual }
}
