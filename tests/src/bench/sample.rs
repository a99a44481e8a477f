//! Statistics of samples: a figure and its spread.

/// The median of a set of samples without outliers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    /// The median.
    pub(crate) median: f64,
    /// The interquartile range of the kept samples.
    pub(crate) spread: f64,
    /// The number of kept samples.
    pub(crate) kept: usize,
    /// The number of discarded samples: those more than 1.5 interquartile ranges outside the quartiles.
    pub(crate) outliers: usize,
}

impl Figure {
    /// Computes the figure; all zeros if there are no samples.
    pub(crate) fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (quantile(&sorted, 0.25), quantile(&sorted, 0.75));
        let reach = 1.5 * (high - low);
        let kept: Vec<f64> = sorted
            .iter()
            .copied()
            .filter(|sample| (low - reach..=high + reach).contains(sample))
            .collect();
        Self {
            median: quantile(&kept, 0.5),
            spread: quantile(&kept, 0.75) - quantile(&kept, 0.25),
            kept: kept.len(),
            outliers: sorted.len() - kept.len(),
        }
    }
}

/// The median of the samples; 0 if there are none.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// The quantile `share` (0 to 1) of sorted samples, interpolated linearly.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * sorted.len().saturating_sub(1) as f64;
    let sample = |at: f64| sorted.get(at as usize).copied().unwrap_or(0.0);
    let (low, high) = (sample(at.floor()), sample(at.ceil()));
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_do_not_move_the_figure() {
        let mut samples: Vec<f64> = (0..=40).map(f64::from).collect();
        let calm = Figure::of(&samples);
        assert_eq!((calm.median, calm.spread, calm.kept, calm.outliers), (20.0, 20.0, 41, 0));
        samples.extend([1e6, -1e6]);
        let disturbed = Figure::of(&samples);
        assert_eq!((disturbed.median, disturbed.kept, disturbed.outliers), (20.0, 41, 2));
    }

    #[test]
    fn few_samples_have_a_median() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
    }
}
