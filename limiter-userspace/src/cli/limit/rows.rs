//! The limits of a policy, for the output.

use crate::{
    output::limits::{
        LayerEntry, LimitEntry, LimitRow, LimitRows, NOTHING, OverrideEntry, written,
    },
    policy::{
        Layered, List, Policy,
        document::key_name,
        model::{Allowance, Limit, Mode, Override},
    },
};

/// The entry of a limit in a list.
pub(in crate::cli) fn entry(policy: &Policy, limit: &Limit) -> LimitEntry {
    let key = key_name(&limit.key, policy.key_prefix);
    let live = layers(policy, limit, limit.layers.iter().map(|layer| layer.allowance));
    let of_override = |entry: &Override| {
        let own = layers(policy, limit, entry.layers.iter().flatten().copied());
        OverrideEntry::new(entry.whom.to_string(), own)
    };
    let overrides = limit.overrides.iter().map(of_override).collect();
    LimitEntry::new(limit, key, live, overrides)
}

/// The entries of layers with these allowances, in their order.
fn layers(
    policy: &Policy,
    limit: &Limit,
    allowances: impl Iterator<Item = Allowance>,
) -> Vec<LayerEntry> {
    let layer = |(place, allowance): (usize, Allowance)| {
        let key = key_name(limit.key_of_layer(place), policy.key_prefix);
        LayerEntry::new(key, &limit.count, allowance)
    };
    allowances.enumerate().map(layer).collect()
}

/// The rows of all limits beside statistics: one for each layer and one for the candidate. `now` is
/// in seconds of Unix time.
pub(in crate::cli) fn rows(layered: Layered<'_>, now: u64) -> LimitRows {
    LimitRows {
        rows: layered.policy.listed_limits().iter().flat_map(rows_of).collect(),
        lists: [List::Deny, List::Penalty].iter().any(|list| layered.listed(*list, now) > 0),
    }
}

fn rows_of(limit: &Limit) -> Vec<LimitRow> {
    let row = |name, allowance: Option<Allowance>, overrides, mode| {
        let written = allowance.map(|allowance| written(&limit.count, allowance));
        let [rate, burst] = written.map_or([None, None], |written| written.map(Some));
        let limit = limit.name.clone();
        LimitRow { name, limit, rate, burst, overrides, mode, candidate: false, used: None }
    };
    let live = limit.mode;
    if live == Mode::Drop {
        let row = row(limit.name.clone(), None, limit.overrides.len(), live);
        return vec![LimitRow { rate: Some(NOTHING[0].to_owned()), ..row }];
    }
    let mut rows: Vec<LimitRow> = (0..limit.layers.len().max(1))
        .map(|layer| {
            let allowance = limit.layers.get(layer).map(|layer| layer.allowance);
            let overrides = if layer == 0 { limit.overrides.len() } else { 0 };
            row(limit.name_of_layer(layer), allowance, overrides, live)
        })
        .collect();
    rows.extend(limit.candidate.map(|candidate| {
        let row = row(limit.name_of_candidate(), Some(candidate), 0, limit.mode_of_candidate());
        LimitRow { candidate: true, ..row }
    }));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::document::parse;

    fn policy(text: &str) -> Policy {
        let text = format!("version: 1\n{text}");
        parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap()
    }

    /// The rows of the limits in a text: name, rate, burst and mode.
    fn shown(text: &str) -> Vec<String> {
        let policy = policy(text);
        let built_in = policy.listed_limits().len() - policy.limits.len();
        let rows = rows((&policy).into(), 0).rows.into_iter().skip(built_in);
        rows.map(|LimitRow { name, rate, burst, mode, .. }| {
            let [rate, burst] = [rate, burst].map(|text| text.unwrap_or_else(|| "none".into()));
            format!("{name}: {rate}, {burst}, {}", mode.name())
        })
        .collect()
    }

    #[test]
    fn amounts_are_in_the_words_of_what_is_counted() {
        for (text, row) in [
            ("rate: 10kpps, burst: 2k", "10 kpps, 2,000, enforce"),
            ("count: bytes, rate: 2Mbit/s, burst: 64kB", "250kB/s, 64kB, enforce"),
            ("count: syns, rate: 5/min", "5/min, 1, enforce"),
            ("algorithm: fixed_window, rate: 100/min", "100/min, 100, enforce"),
            (
                "algorithm: concurrent, count: connections, limit: 20, idle: 60s",
                "20 open, , enforce",
            ),
        ] {
            let found = shown(&format!("limits: [{{name: some, key: source, {text}}}]"));
            assert_eq!(found, [format!("some: {row}")], "{text}");
        }
    }

    #[test]
    fn layers_and_candidates_have_rows_and_modes() {
        let layers = "layers: [{rate: 10/s}, {rate: 100/min, burst: 100}], candidate: {rate: 5/s}";
        let limit = |more: &str| format!("limits: [{{name: a, key: source, {layers}{more}}}]");
        let rows = |live: &str, candidate: &str| {
            vec![
                format!("a: 10 pps, 10, {live}"),
                format!("a (layer 2): 100/min, 100, {live}"),
                format!("a (candidate): 5 pps, 5, {candidate}"),
            ]
        };
        assert_eq!(shown(&limit("")), rows("enforce", "monitor"));
        assert_eq!(shown(&limit(", action: monitor")), rows("monitor", "monitor"));
        assert_eq!(shown(&limit(", action: off")), rows("off", "off"));
        // The mode of the whole policy is not shown in the rows.
        assert_eq!(shown(&format!("mode: monitor\n{}", limit(""))), rows("enforce", "monitor"));
    }

    #[test]
    fn lists_drop_without_a_limit_as_long_as_they_hold() {
        for (text, lists) in [
            ("", false),
            ("allow: [203.0.113.9]", false),
            ("deny: [203.0.113.9]", true),
            ("deny: [{src: 203.0.113.9, until: 2027-01-15T08:00:00Z}]", false),
            ("deny: [{src: 203.0.113.9, until: 2027-01-15T08:00:01Z}]", true),
            ("penalties: [{src: 203.0.113.9, until: 2027-01-15T08:00:01Z}]", true),
        ] {
            assert_eq!(rows((&policy(text)).into(), 1_800_000_000).lists, lists, "{text}");
        }
    }

    #[test]
    fn an_entry_has_each_layer_and_the_overrides() {
        let policy = policy(
            "limits: [{name: some, key: source, count: bytes, rate: 1MB/s, burst: 10kB, overrides: \
             [{src: 203.0.113.9, rate: 2MB/s, burst: 20kB}, {src: 192.0.2.0/24, unlimited: true}]}]",
        );
        let entry = entry(&policy, &policy.limits[0]);
        assert_eq!((entry.count, entry.algorithm), ("bytes", Some("token_bucket")));
        assert_eq!((entry.rate_per_second, entry.burst), (Some(1_000_000.into()), Some(10_000)));
        assert_eq!(entry.layers[0].written, ["1MB/s", "10kB"]);
        let whom: Vec<&str> = entry.overrides.iter().map(|entry| entry.src.as_str()).collect();
        assert_eq!(whom, ["203.0.113.9/32", "192.0.2.0/24"]);
        assert_eq!(entry.overrides[0].layers[0].written, ["2MB/s", "20kB"]);
        assert_eq!((entry.overrides[1].burst, entry.overrides[1].layers.len()), (None, 0));
    }

    #[test]
    fn a_layer_has_the_key_that_is_in_the_document() {
        let policy = policy(
            "limits: [{name: some, key: source/24, layers: [{rate: 1/h, burst: 20}, {rate: 10/s, key: \
             [source, destination_port]}, {rate: 50/s, key: source/48}, {rate: 90/s, key: {source: \
             {ipv4: 16, ipv6: 48}}}, {rate: 99/s, key: all}]}]",
        );
        let entry = entry(&policy, &policy.limits[0]);
        let told: Vec<_> =
            entry.layers.iter().map(|it| (it.key.as_str(), it.written[0].as_str())).collect();
        assert_eq!(
            told,
            [
                ("source/24", "1/h"),
                ("[source, destination_port]", "10 pps"),
                ("source/48", "50 pps"),
                ("{source: {ipv4: 16, ipv6: 48}}", "90 pps"),
                ("all", "99 pps"),
            ]
        );
        assert_eq!((entry.key.as_str(), entry.burst), ("source/24", Some(20)));
    }
}
