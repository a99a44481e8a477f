//! The keys of attributes, and of limits on requests.

use super::{
    AMOUNT, COST, DURATION, Kind,
    Kind::{ByText, Flag, List, Map, Name, OneOrMore, Open, Text, TextOrMap, Whole, Word},
    LENGTHS, PREFIX, RATE, Shape, WHOM, key, needed,
};
use crate::policy::document::names;

const PATTERN: Kind = Text(&["POST", "/v1/*", "login"]);
const PATTERNS: Kind = OneOrMore(&PATTERN);
const FIELD: Kind = Text(&["method", "user"]);
const METHOD_DOC: &str = "The method.";
const HOST_DOC: &str = "The host that was asked for, without the port.";
const PATH_DOC: &str = "The path, without the query.";
const DOMAIN_DOC: &str = "The domain of Envoy; HTTP has none.";
const KEY: Kind =
    OneOrMore(&TextOrMap(&["source", "source/24", "tenant", "all", "user", "method"], &KEY_SOURCE));

/// An attribute.
pub(in crate::policy::document) static ATTRIBUTE: Shape = Shape {
    what: "an attribute",
    keys: &[
        key("header", Text(&["x-user-id"]), "The value of this header; of several, the first."),
        key("cookie", Text(&["sid"]), "The value of this cookie."),
        key(
            "path",
            ByText(&Text(&["login"])),
            "Paths, or beginnings of them with a `*`, each with the value that it stands for; the first that fits counts.",
        ),
        key(
            "descriptor",
            Flag,
            "`true`: an entry of Envoy's descriptors with the name of the attribute, and nothing of a request of HTTP.",
        ),
        key("digest", Flag, "`true`: a secret; only a keyed digest of it is kept and shown."),
    ],
};

/// A limit on requests.
pub(in crate::policy::document) static LIMIT: Shape = Shape {
    what: "a limit on requests",
    keys: &[
        needed("name", Name, "The name of the limit, unique in the policy."),
        needed(
            "on",
            Word(names::requests),
            "What it limits: requests, which the bridge is asked about.",
        ),
        key("match", Open(&MATCH, &PATTERNS), "Which requests; all that is given must hold."),
        key("key", KEY, "What requests must share to be counted together; a list joins."),
        key(
            "missing",
            Word(names::missing),
            "What becomes of requests that lack an attribute of the key: `pass` (the default) or `refuse`.",
        ),
        key("cost", TextOrMap(&["5"], &COSTS), "What a request costs; 1 by default."),
        key(
            "action",
            Word(names::modes),
            "`monitor` counts what it would refuse; `drop` refuses all that matches; `off` nothing.",
        ),
        key("algorithm", Word(names::algorithms), "How it decides; token_bucket by default."),
        key("rate", RATE, "What is admitted in the long run."),
        key("burst", AMOUNT, "token_bucket: what is admitted at once after a rest."),
        key("depth", AMOUNT, "leaky_bucket: what the queue holds."),
        key("tolerance", AMOUNT, "gcra: how early requests may come, or how many at once."),
        key(
            "limit",
            AMOUNT,
            "Windows: what one admits; concurrent: requests that are open at once.",
        ),
        key("window", DURATION, "Windows: how long one is."),
        key(
            "idle",
            DURATION,
            "concurrent: a request whose end nobody tells is open for so long; 5m by default.",
        ),
        key("layers", List(&Map(&LAYER)), "Several rates, all of which must admit."),
        key("unlimited", Flag, "In place of a rate: only those with an override are limited."),
        key("candidate", Map(&ALLOWANCE), "Counted beside the live rate, never enforced."),
        key("penalty", Map(&PENALTY), "What becomes of peers whose requests stay over the limit."),
        key(
            "headers",
            OneOrMore(&Word(names::headers)),
            "The headers of answers that tell of it; `ietf` and `retry-after` by default.",
        ),
        key(
            "override",
            Word(names::override_words),
            "`allow`: a limit that Envoy tells with a descriptor is in place of the rate; `ignore` is the default.",
        ),
        key(
            "on_failure",
            Word(names::on_failure),
            "What becomes of requests while the bridge does not answer: `open` (the default) passes them, `closed` refuses.",
        ),
        key(
            "idempotency",
            Map(&IDEMPOTENCY),
            "Charges requests with the same header `Idempotency-Key` once.",
        ),
        key(
            "degrade",
            Map(&DEGRADE),
            "Tells the service to do less for requests that pass while little is left.",
        ),
        key(
            "delay",
            DURATION,
            "leaky_bucket: holds requests back until their turn in the queue, for so long at most.",
        ),
        key(
            "overrides",
            List(&Open(&OVERRIDE, &PATTERN)),
            "What it admits to some instead; the first that fits counts.",
        ),
    ],
};

/// `penalty` of a limit on requests.
pub(in crate::policy::document) static PENALTY: Shape = Shape {
    what: "`penalty` on requests",
    keys: &[
        needed("after", DURATION, "How long over the limit until the kernel blocks a peer."),
        needed("block", DURATION, "How long it is blocked the first time."),
        key("backoff", Whole(1, 10), "How many times as long each next time; 2 by default."),
        key("max", DURATION, "The longest block; 1h by default."),
        key(
            "proxied",
            Word(names::proxied),
            "Whether requests count that have the fields of another proxy: `spare` (the default) or `block`.",
        ),
    ],
};

/// `idempotency` of a limit on requests.
pub(in crate::policy::document) static IDEMPOTENCY: Shape = Shape {
    what: "`idempotency`",
    keys: &[needed("window", DURATION, "How long a request is known; 1s to 24h.")],
};

/// `degrade` of a limit on requests.
pub(in crate::policy::document) static DEGRADE: Shape = Shape {
    what: "`degrade`",
    keys: &[needed("at", Text(&["20%"]), "The share of the quota that is left; 1% to 99%.")],
};

/// `match` of a limit on requests.
pub(in crate::policy::document) static MATCH: Shape = Shape {
    what: "`match` on requests",
    keys: &[
        key("method", PATTERNS, METHOD_DOC),
        key("host", PATTERNS, HOST_DOC),
        key("path", PATTERNS, PATH_DOC),
        key("domain", PATTERNS, DOMAIN_DOC),
        key("source", OneOrMore(&WHOM), "Sets or prefixes with the source."),
        key("except", OneOrMore(&WHOM), "Sets or prefixes without the source."),
    ],
};

/// `cost` of a limit on requests.
pub(in crate::policy::document) static COSTS: Shape = Shape {
    what: "`cost` on requests",
    keys: &[
        key("default", COST, "Of requests of no other value; 1 by default."),
        key("by", FIELD, "The property by whose value requests cost something else."),
        key("values", ByText(&COST), "What they cost, by its value."),
    ],
};

/// `key: {source: ...}` of a limit on requests.
static KEY_SOURCE: Shape =
    Shape { what: "a key", keys: &[needed("source", Map(&LENGTHS), "Prefix lengths of its own.")] };

/// An allowance where nothing else is given.
pub(in crate::policy::document) static ALLOWANCE: Shape = Shape {
    what: "a rate of requests",
    keys: &[
        key("rate", RATE, "See the limit's."),
        key("burst", AMOUNT, "See the limit's."),
        key("depth", AMOUNT, "See the limit's."),
        key("tolerance", AMOUNT, "See the limit's."),
        key("limit", AMOUNT, "See the limit's."),
        key("window", DURATION, "See the limit's."),
        key("idle", DURATION, "See the limit's."),
    ],
};

/// A layer of a limit on requests.
pub(in crate::policy::document) static LAYER: Shape = Shape {
    what: "a layer on requests",
    keys: &[
        key("key", KEY, "A key of its own, in a ladder."),
        key("algorithm", Word(names::algorithms), "That of the limit by default."),
        key("rate", RATE, "See the limit's."),
        key("burst", AMOUNT, "See the limit's."),
        key("depth", AMOUNT, "See the limit's."),
        key("tolerance", AMOUNT, "See the limit's."),
        key("limit", AMOUNT, "See the limit's."),
        key("window", DURATION, "See the limit's."),
        key("idle", DURATION, "See the limit's."),
    ],
};

/// An override of a limit on requests.
pub(in crate::policy::document) static OVERRIDE: Shape = Shape {
    what: "an override on requests",
    keys: &[
        key("src", PREFIX, "Sources within a prefix."),
        key("tenant", Name, "Sources of a tenant."),
        key("method", PATTERN, METHOD_DOC),
        key("host", PATTERN, HOST_DOC),
        key("path", PATTERN, PATH_DOC),
        key("domain", PATTERN, DOMAIN_DOC),
        key("unlimited", Flag, "Not limited at all."),
        key("layers", List(&Map(&ALLOWANCE)), "One for each layer of the limit."),
        key("rate", RATE, "See the limit's."),
        key("burst", AMOUNT, "See the limit's."),
        key("depth", AMOUNT, "See the limit's."),
        key("tolerance", AMOUNT, "See the limit's."),
        key("limit", AMOUNT, "See the limit's."),
        key("window", DURATION, "See the limit's."),
        key("idle", DURATION, "See the limit's."),
    ],
};
