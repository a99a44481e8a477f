//! How the model checker is run.

use loom::model::Builder;

/// Runs `model` in every order of its steps that takes the processor from a thread `preemptions` times at most, or as
/// often as `LOOM_MAX_PREEMPTIONS` says if that is less.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    let most = builder.preemption_bound.unwrap_or(preemptions);
    builder.preemption_bound = Some(preemptions.min(most));
    builder.max_branches = 10_000;
    builder.check(model);
}
