//! A sample of a sequence whose length is not known before its end.

/// A systematic sample: every `step`-th element of a sequence, from an offset chosen by chance.
pub(super) struct Thinned<T> {
    kept: Vec<(u64, T)>,
    most: usize,
    seen: u64,
    /// Always a power of two; it doubles when the sample is full.
    step: u64,
    chance: u64,
}

impl<T> Thinned<T> {
    /// An empty sample. It keeps at most `most` elements, and at least half as many of a sequence
    /// that is that long. The low bits of `chance` choose the offset.
    pub(super) const fn new(most: usize, chance: u64) -> Self {
        Self { kept: Vec::new(), most, seen: 0, step: 1, chance }
    }

    /// Takes the next element of the sequence, which is only made if it is kept.
    pub(super) fn offer(&mut self, make: impl FnOnce() -> T) {
        let place = self.seen;
        self.seen += 1;
        if !self.is_kept(place) {
            return;
        }
        if self.kept.len() >= self.most {
            self.step *= 2;
            let (mask, chance) = (self.step - 1, self.chance);
            self.kept.retain(|(place, _)| (place ^ chance) & mask == 0);
            if !self.is_kept(place) {
                return;
            }
        }
        self.kept.push((place, make()));
    }

    const fn is_kept(&self, place: u64) -> bool {
        (place ^ self.chance) & (self.step - 1) == 0
    }

    /// The number of elements offered so far.
    pub(super) const fn seen(&self) -> u64 {
        self.seen
    }

    /// The sample, in the order of the sequence.
    pub(super) fn kept(&self) -> impl ExactSizeIterator<Item = &T> {
        self.kept.iter().map(|(_, one)| one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_over_the_whole_row() {
        for chance in [0, 1, 12_345, u64::MAX] {
            for length in [0, 1, 63, 64, 65, 1_000, 100_000] {
                let mut sample = Thinned::new(64, chance);
                (0..length).for_each(|place: u64| sample.offer(|| place));
                assert_eq!(sample.seen(), length);
                let kept: Vec<u64> = sample.kept().copied().collect();
                let (least, most) = (length.min(31), length.min(64));
                let number = kept.len() as u64;
                assert!((least..=most).contains(&number), "{number} of {length}");
                let step = kept.get(1).map_or(1, |second| second - kept[0]);
                assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == step), "{kept:?}");
                assert!(kept.first().is_none_or(|first| *first < step), "{kept:?}");
                assert!(kept.last().is_none_or(|last| length - last <= step), "{kept:?}");
            }
        }
    }
}
