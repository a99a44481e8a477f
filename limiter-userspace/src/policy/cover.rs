//! Finds which of many prefixes contains a prefix.

use ipnet::IpNet;

/// The widest of many prefixes, each with a value.
pub(super) struct Cover<T> {
    /// Sorted; no prefix is within another.
    widest: Vec<(IpNet, T)>,
}

impl<T> Cover<T> {
    pub(super) fn new(mut prefixes: Vec<(IpNet, T)>) -> Self {
        // A prefix sorts before those within it, and of equal ones the first stays first.
        prefixes.sort_by_key(|&(prefix, _)| prefix);
        let mut widest: Vec<(IpNet, T)> = Vec::with_capacity(prefixes.len());
        for (prefix, what) in prefixes {
            if !widest.last().is_some_and(|(outer, _)| outer.contains(&prefix)) {
                widest.push((prefix, what));
            }
        }
        Self { widest }
    }

    /// The prefixes, sorted.
    pub(super) fn widest(&self) -> impl ExactSizeIterator<Item = IpNet> {
        self.widest.iter().map(|&(prefix, _)| prefix)
    }

    /// The prefix of the cover that contains `prefix`, with its value.
    pub(super) fn around(&self, prefix: IpNet) -> Option<&(IpNet, T)> {
        let after = self.widest.partition_point(|&(outer, _)| outer <= prefix);
        self.widest[..after].last().filter(|(outer, _)| outer.contains(&prefix))
    }
}

impl Cover<()> {
    /// The union of prefixes; those that make up a wider one are merged to it.
    pub(super) fn of(prefixes: Vec<IpNet>) -> Self {
        let widest = merged(prefixes).into_iter().map(|prefix| (prefix, ())).collect();
        Self { widest }
    }
}

/// The fewest prefixes with the same addresses, sorted.
fn merged(mut prefixes: Vec<IpNet>) -> Vec<IpNet> {
    prefixes.sort_unstable();
    let mut merged: Vec<IpNet> = Vec::with_capacity(prefixes.len());
    for mut prefix in prefixes {
        if merged.last().is_some_and(|outer| outer.contains(&prefix)) {
            continue;
        }
        while let Some(wide) = prefix.supernet()
            && merged.last().is_some_and(|last| *last != prefix && last.supernet() == Some(wide))
        {
            merged.pop();
            prefix = wide;
        }
        merged.push(prefix);
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_widest(
            outers in proptest::collection::vec((any::<u8>(), 24_u8..=32), 0..20),
            inner in (any::<u8>(), 24_u8..=32),
        ) {
            let prefix = |(last, length): (u8, u8)| {
                IpNet::new([192, 0, 2, last].into(), length).unwrap().trunc()
            };
            let outers: Vec<_> = outers.into_iter().map(prefix).collect();
            let inner = prefix(inner);
            let expected = outers
                .iter()
                .copied()
                .filter(|outer| outer.contains(&inner))
                .min_by_key(IpNet::prefix_len);
            let cover = Cover::new(outers.iter().map(|&outer| (outer, ())).collect());
            prop_assert_eq!(cover.around(inner).map(|&(outer, ())| outer), expected);
        }
    }
}
