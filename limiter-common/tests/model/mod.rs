//! How the model checker is run, and the order of the instructions that BPF has.

use loom::{
    model::Builder,
    sync::atomic::{AtomicU64, Ordering, fence},
};

/// Runs `model` in every order of its steps that takes the processor from a thread `preemptions` times at most, or as
/// often as `LOOM_MAX_PREEMPTIONS` says if that is less.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    let most = builder.preemption_bound.unwrap_or(preemptions);
    builder.preemption_bound = Some(preemptions.min(most));
    builder.max_branches = 10_000;
    builder.check(model);
}

/// The compare-and-exchange of BPF: a full barrier if it stores, and a load-acquire if not.
pub(crate) fn compare_exchange(word: &AtomicU64, current: u64, new: u64) -> u64 {
    match word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(found) => {
            // The exchange of the model checker is no barrier for loads of other words.
            fence(Ordering::SeqCst);
            found
        }
        Err(found) => found,
    }
}
