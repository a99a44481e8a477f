//! Which requests a proxy refuses while the bridge does not answer: those that a limit with `on_failure: closed` is about.

use super::refuses;
use crate::policy::{
    Policy,
    model::{AttributeSource, Field, OnFailure, Pattern, RequestLimit},
};

/// The requests that are refused while the bridge does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failing<'p> {
    /// None.
    Open,
    /// Those of one of these limits.
    Partly(Vec<Requests<'p>>),
    /// All.
    Closed {
        /// The limits of which a proxy cannot tell the requests.
        untold: Vec<&'p str>,
    },
}

impl<'p> Failing<'p> {
    /// By the limits of a policy that refuse requests.
    pub fn new(policy: &'p Policy) -> Self {
        let (mut told, mut untold) = (Vec::new(), Vec::new());
        let is_closed =
            |limit: &&RequestLimit| limit.on_failure == OnFailure::Closed && refuses(limit, policy);
        for limit in policy.on_requests.iter().filter(is_closed) {
            match Requests::of(limit, policy) {
                Some(requests) => told.push(requests),
                None => untold.push(&*limit.name),
            }
        }
        if !untold.is_empty() || told.contains(&Requests::default()) {
            Self::Closed { untold }
        } else if told.is_empty() {
            Self::Open
        } else {
            Self::Partly(told)
        }
    }

    /// What becomes of requests, and why, in a sentence.
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Open => {
                "Requests pass while the bridge does not answer: no limit that refuses any has `on_failure: closed`.".to_owned()
            }
            Self::Partly(_) => {
                "While the bridge does not answer, requests that a limit with `on_failure: closed` is about are refused, and others pass.".to_owned()
            }
            Self::Closed { untold } if untold.is_empty() => {
                "Requests are refused while the bridge does not answer: a limit on all of them has `on_failure: closed`.".to_owned()
            }
            Self::Closed { untold } => format!(
                "Requests are refused while the bridge does not answer: a proxy cannot tell which of them these limits with `on_failure: closed` are about: {}.",
                untold.join(", ")
            ),
        }
    }
}

/// The beginning of a target that is taken for one of every limit with a path, as a regular expression. The bridge or the service
/// may understand its path otherwise than the proxy. Such a path has one of these:
///
/// * a space, `%`, `;` or `\`, which is in the range from `[` to `^`, as configurations would have to escape it,
/// * `//`, or a segment that begins with a dot,
/// * no slash at its beginning.
pub(super) const UNPLAIN: &str = "[^/]|$|[^?# ]*([ %;[-^]|//|/[.])";

/// Requests that any proxy can tell: those that meet every condition. An empty list is no condition. No text has a character
/// that a configuration would have to escape, but for dots in regular expressions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests<'p> {
    pub(super) methods: Vec<&'p str>,
    pub(super) hosts: Vec<&'p str>,
    pub(super) paths: Vec<&'p Pattern>,
}

impl<'p> Requests<'p> {
    /// Those that a limit is about; `None` if a proxy cannot tell them.
    fn of(limit: &'p RequestLimit, policy: &'p Policy) -> Option<Self> {
        let matching = &limit.matching;
        if !matching.sources.is_empty() || !matching.except_sources.is_empty() {
            return None;
        }
        let mut requests = Self::default();
        for (field, patterns) in matching.fields.iter().filter(|(_, of)| !of.is_empty()) {
            let paths = match field {
                Field::Method => {
                    requests.methods = exact(patterns)?;
                    continue;
                }
                Field::Host => {
                    requests.hosts = exact(patterns)?;
                    continue;
                }
                Field::Path => patterns.iter().collect(),
                Field::Attribute(name) => match &policy.attributes.get(name)?.from {
                    AttributeSource::Path(all) => with_value(all, patterns)?,
                    _ => return None,
                },
                Field::Domain => return None,
            };
            if !requests.paths.is_empty() || !paths.iter().all(|path| is_plain(text(path))) {
                return None;
            }
            requests.paths = paths;
        }
        Some(requests)
    }

    /// The method, the host and the beginning of the target as regular expressions, with spaces between them. They are to be
    /// compared without case. Each has up to `most` bytes, and as many of the texts as fit. One text takes up to 768 bytes, so
    /// `most` is 3,072 or more.
    pub(super) fn expressions(&self, most: usize) -> Vec<String> {
        let literals = |texts: &[&str]| alternatives(texts.iter().map(|it| literal(it)), most / 3);
        let methods = conditions(&literals(&self.methods), any_of, "[^ ]*");
        let hosts = conditions(&literals(&self.hosts), host_expression, ".*");
        let longest = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or_default();
        let left = most.saturating_sub(longest(&methods) + longest(&hosts) + "^  ()".len());
        let paths = self.paths.iter().map(|path| match path {
            Pattern::Exact(path) => literal(path) + "([?#]|$)",
            Pattern::Prefix(path) => literal(path),
        });
        let unplain = (!self.paths.is_empty()).then(|| UNPLAIN.to_owned());
        let paths = conditions(&alternatives(paths.chain(unplain), left), any_of, ".*");
        let mut expressions = Vec::new();
        for method in &methods {
            for host in &hosts {
                expressions.extend(paths.iter().map(|path| format!("^{method} {host} {path}")));
            }
        }
        expressions
    }
}

/// Regular expressions with `|` between them: as many in each text as `most` bytes have room for, and at least one.
pub(super) fn alternatives(expressions: impl Iterator<Item = String>, most: usize) -> Vec<String> {
    let mut groups: Vec<String> = Vec::new();
    for expression in expressions {
        match groups.last_mut() {
            Some(group) if group.len() + 1 + expression.len() <= most => {
                *group += "|";
                *group += &expression;
            }
            _ => groups.push(expression),
        }
    }
    groups
}

/// Alternatives in a form, or what stands for no condition if there are none.
pub(super) fn conditions(
    alternatives: &[String],
    form: fn(&str) -> String,
    any: &str,
) -> Vec<String> {
    match alternatives.is_empty() {
        true => vec![any.to_owned()],
        false => alternatives.iter().map(|them| form(them)).collect(),
    }
}

/// One of these alternatives.
pub(super) fn any_of(alternatives: &str) -> String {
    format!("({alternatives})")
}

/// One of these hosts, as requests name it: with or without a dot at its end and a port, or not at all.
pub(super) fn host_expression(alternatives: &str) -> String {
    format!("(({alternatives})[.]*(:.*)?)?")
}

/// A text as a regular expression.
pub(super) fn literal(text: &str) -> String {
    text.replace('.', "[.]")
}

/// The paths whose value is one of those wanted; `None` if a pattern before has some of them.
fn with_value<'p>(all: &'p [(Pattern, String)], wanted: &[Pattern]) -> Option<Vec<&'p Pattern>> {
    let is_wanted = |value: &str| wanted.iter().any(|pattern| pattern.accepts(value));
    let mut paths = Vec::new();
    for (at, (path, _)) in all.iter().enumerate().filter(|(_, (_, value))| is_wanted(value)) {
        let others = all[..at].iter().filter(|(_, value)| !is_wanted(value));
        if others.clone().any(|(other, _)| overlap(other, path)) {
            return None;
        }
        paths.push(path);
    }
    // A limit on a value that no path has is about none, which a list cannot say.
    (!paths.is_empty()).then_some(paths)
}

/// Whether a text is of both patterns.
fn overlap(one: &Pattern, other: &Pattern) -> bool {
    let is_within = |one: &Pattern, other: &Pattern| match other {
        Pattern::Prefix(prefix) => text(one).starts_with(prefix.as_str()),
        Pattern::Exact(_) => one == other,
    };
    is_within(one, other) || is_within(other, one)
}

/// The texts of patterns that are plain ones.
fn exact(patterns: &[Pattern]) -> Option<Vec<&str>> {
    let texts = patterns.iter().map(|pattern| match pattern {
        Pattern::Exact(text) if is_plain(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn text(pattern: &Pattern) -> &str {
    let (Pattern::Exact(text) | Pattern::Prefix(text)) = pattern;
    text
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._~-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{document::parse, model::GlobalMode};

    fn failing<R>(limits: &str, check: impl Fn(Failing<'_>) -> R) -> R {
        let text = format!(
            "version: 1
attributes:
  route: {{ path: {{ /login: login, /a/b: ab, \"/a/*\": a, \"/v1*\": api, /v2: api, \"*\": other }} }}
  user: {{ header: x-user-id }}
limits: [{limits}]"
        );
        let policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
        check(Failing::new(&policy))
    }

    fn limit(name: &str, rest: &str) -> String {
        format!("{{ name: {name}, on: requests, key: source, rate: 5/s, burst: 5, {rest} }}")
    }

    #[test]
    fn requests_are_told_by_path_host_and_method() {
        let methods = ["A".repeat(40), "B".repeat(40)];
        for (matching, expression) in [
            ("path: /login", format!("[^ ]* .* (/login([?#]|$)|{UNPLAIN})")),
            (
                "path: [/a.b, \"/v1/*\"], method: POST",
                format!("(POST) .* (/a[.]b([?#]|$)|/v1/|{UNPLAIN})"),
            ),
            (
                "host: [a.example, b.example]",
                "[^ ]* ((a[.]example|b[.]example)[.]*(:.*)?)? .*".to_owned(),
            ),
            (
                &format!("method: [{}]", methods.join(", ")),
                format!("({}) .* .*", methods.join("|")),
            ),
            ("route: api", format!("[^ ]* .* (/v1|/v2([?#]|$)|{UNPLAIN})")),
            ("route: ab", format!("[^ ]* .* (/a/b([?#]|$)|{UNPLAIN})")),
        ] {
            let closed = limit("a", &format!("match: {{ {matching} }}, on_failure: closed"));
            failing(&format!("{closed}, {}", limit("b", "")), |failing| {
                let Failing::Partly(requests) = failing else { panic!("{matching}: {failing:?}") };
                let [requests] = &requests[..] else { panic!("{requests:?}") };
                assert_eq!(requests.expressions(3_072), [format!("^{expression}")]);
            });
        }
    }

    /// All pairs of many hosts and paths are told by few expressions, each of which a proxy takes.
    #[test]
    fn long_limits_have_few_expressions() {
        let texts = |form: fn(usize) -> String, count| (0..count).map(form).collect::<Vec<_>>();
        let few = texts(|at| format!("{at}.example"), 40);
        let many = texts(|at| format!("{at}.example"), 256);
        let long = texts(|at| format!("{at:03}{}", ".".repeat(253)), 3);
        for (list, [of_nginx, of_haproxy]) in [(&few, [1, 1]), (&many, [12, 4]), (&long, [27, 1])] {
            let paths: Vec<_> = list.iter().map(|it| Pattern::Exact(format!("/{it}"))).collect();
            let list: Vec<_> = list.iter().map(|it| &**it).collect();
            let methods = if *list == *many { Vec::new() } else { list.clone() };
            let requests = Requests { methods, hosts: list, paths: paths.iter().collect() };
            for (most, count) in [(3_072, of_nginx), (8_192, of_haproxy), (usize::MAX, 1)] {
                let expressions = requests.expressions(most);
                assert_eq!(expressions.len(), count, "{most}");
                assert!(expressions.iter().all(|it| it.len() <= most));
            }
        }
    }

    #[test]
    fn a_limit_whose_requests_a_proxy_cannot_tell_closes_it() {
        for matching in [
            "user: alice",
            "source: 192.0.2.0/24",
            "except: 192.0.2.0/24",
            "path: \"/a b\"",
            "path: /a, route: login",
            // Paths of theirs have another value, by a pattern before.
            "route: other",
            "route: a",
        ] {
            let closed = limit("a", &format!("match: {{ {matching} }}, on_failure: closed"));
            let told = limit("b", "match: { path: /b }, on_failure: closed");
            failing(&format!("{closed}, {told}"), |failing| {
                assert_eq!(failing, Failing::Closed { untold: vec!["a"] }, "{matching}");
                assert!(failing.in_words().ends_with(": a."));
            });
        }
        let all = limit("a", "on_failure: closed");
        failing(&all, |it| assert_eq!(it, Failing::Closed { untold: Vec::new() }));
        for action in ["monitor", "\"off\""] {
            let idle = limit("a", &format!("action: {action}, on_failure: closed"));
            failing(&idle, |failing| assert_eq!(failing, Failing::Open, "{action}"));
        }
        let mut monitored = Policy { mode: GlobalMode::Monitor, ..Policy::default() };
        monitored.on_requests = vec![RequestLimit::new("a", &[])];
        monitored.on_requests[0].on_failure = OnFailure::Closed;
        assert_eq!(Failing::new(&monitored), Failing::Open);
    }
}
