//! Reads and writes `control`, the budgets of the link's own control traffic, and `non_ip`, that of frames
//! that are not IP.

use super::{
    fault::Findings,
    fields::{Fields, list},
    matching::interfaces,
    names::{ALL_PROTOCOLS, Algorithm, ordinary},
    scalar, shape,
    source::ticked,
    terms::Terms,
    text::{Written, mapping, one_or_list, scalar as quoted},
    tree::{Node, Value},
};
use crate::policy::{
    control::{all, bits_of, names},
    model::{Allowance, Control, ControlBudgets, ControlOverride, Count},
};

/// The word for no budgets, in place of the mapping.
const OFF: &str = "off";

/// Reads `control`.
pub(super) fn control(node: &Node<'_>, findings: &mut Findings<'_>) -> Control {
    let mut control = Control::default();
    if let Value::Text(_) = node.value {
        if scalar::word(node, "value of `control`", &[(OFF, ())], findings).is_some() {
            control.budgets.ordinary = all();
        }
        return control;
    }
    let Some(fields) = Fields::read(node, &shape::CONTROL, findings) else { return control };
    control.budgets = budgets(&fields, &control.budgets, findings);
    let Some(node) = fields.get("overrides") else { return control };
    for node in list(node, findings) {
        let Some(fields) = Fields::read(node, &shape::CONTROL_OVERRIDE, findings) else { continue };
        let Some(named) = fields.get("interface") else { continue };
        let interfaces = interfaces(named, findings);
        for one in &control.overrides {
            if let Some(twice) = interfaces.iter().find(|name| one.interfaces.contains(name)) {
                let message = format!("interface {} has an override already", ticked(twice));
                findings.add(named.at, message, "write one for each interface");
            }
        }
        let budgets = budgets(&fields, &control.budgets, findings);
        control.overrides.push(ControlOverride { interfaces, budgets });
    }
    control
}

/// Reads budgets; those that are missing are as in `others`.
fn budgets(
    fields: &Fields<'_, '_>,
    others: &ControlBudgets,
    findings: &mut Findings<'_>,
) -> ControlBudgets {
    let mut read = |key: &str, other: Allowance| {
        fields.get(key).and_then(|node| budget(node, findings)).unwrap_or(other)
    };
    let budget = read("budget", others.budget);
    let per_source = read("per_source", others.per_source);
    let far = read("far", others.far);
    let ordinary = match fields.get("ordinary") {
        Some(node) => protocols(node, findings),
        None => others.ordinary,
    };
    ControlBudgets { budget, per_source, far, ordinary }
}

/// Reads a budget.
pub(super) fn budget(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<Allowance> {
    terms().read(&Fields::read(node, &shape::BUDGET, findings)?, findings)
}

/// A budget as it is written.
pub(super) fn budget_text(budget: &Allowance) -> String {
    mapping(terms().written(budget))
}

fn protocols(node: &Node<'_>, findings: &mut Findings<'_>) -> u64 {
    let table: Vec<(&str, u64)> = ordinary().into_iter().map(|word| (word, bits(word))).collect();
    let nodes = scalar::up_to(scalar::ENTRIES, node, findings).iter();
    let found = nodes.filter_map(|node| scalar::word(node, "control protocol", &table, findings));
    found.fold(0, |all, bits| all | bits)
}

fn bits(word: &str) -> u64 {
    if word == ALL_PROTOCOLS { all() } else { bits_of(word) }
}

fn terms() -> Terms<'static> {
    Terms::new(Algorithm::TokenBucket, &Count::Packets)
}

/// The keys of `control` and their values, without those that are as by default.
pub(super) fn control_entries(control: &Control) -> Vec<(&'static str, Written)> {
    let base = &control.budgets;
    let own = budget_entries(base, &ControlBudgets::default()).into_iter();
    let mut entries: Vec<_> = own.map(|(key, value)| (key, Written::One(value))).collect();
    if !control.overrides.is_empty() {
        let overrides = control.overrides.iter().map(|one| {
            let interfaces = one_or_list(one.interfaces.iter().map(|name| quoted(name)));
            let own = budget_entries(&one.budgets, base);
            mapping([("interface", interfaces)].into_iter().chain(own))
        });
        entries.push(("overrides", Written::Many(overrides.collect())));
    }
    entries
}

/// The keys and values of the budgets that differ from `others`.
fn budget_entries(
    budgets: &ControlBudgets,
    others: &ControlBudgets,
) -> Vec<(&'static str, String)> {
    let ControlBudgets { budget, per_source, far, ordinary } = budgets;
    let each = [
        ("budget", budget, others.budget),
        ("per_source", per_source, others.per_source),
        ("far", far, others.far),
    ];
    let differing = each.into_iter().filter(|(_, one, other)| *one != other);
    let mut entries: Vec<_> = differing.map(|(key, one, _)| (key, budget_text(one))).collect();
    if *ordinary != others.ordinary {
        let named: Vec<_> =
            names().into_iter().filter(|name| ordinary & bits_of(name) != 0).collect();
        let words = if *ordinary == all() { vec![ALL_PROTOCOLS] } else { named };
        entries.push(("ordinary", one_or_list(words.into_iter().map(str::to_owned))));
    }
    entries
}
