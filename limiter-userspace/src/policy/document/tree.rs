//! Parses YAML to a tree of values with their places.

use std::borrow::Cow;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span};

use super::{fault::Findings, source::Place};
use crate::policy::units::printable;

/// The deepest nesting of lists and mappings.
pub(super) const DEPTH: usize = 16;
/// The most values in a document. The most prefixes that a policy may have are half as many.
pub(super) const VALUES: usize = 1 << 21;

/// A value with its place.
#[derive(Debug)]
pub(super) struct Node<'t> {
    pub(super) at: Place,
    pub(super) value: Value<'t>,
}

/// The kinds of values.
#[derive(Debug)]
pub(super) enum Value<'t> {
    /// Nothing, `~` or `null`.
    Empty,
    Text(Cow<'t, str>),
    List(Vec<Node<'t>>),
    Map(Vec<(Word<'t>, Node<'t>)>),
}

/// A key with its place.
#[derive(Debug)]
pub(super) struct Word<'t> {
    pub(super) text: Cow<'t, str>,
    pub(super) at: Place,
}

impl Node<'_> {
    /// The kind of value, for a message.
    pub(super) const fn kind(&self) -> &'static str {
        match self.value {
            Value::Empty => "nothing",
            Value::Text(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The values of a list, or the single value.
    pub(super) fn each(&self) -> &[Self] {
        match &self.value {
            Value::List(nodes) => nodes,
            _ => std::slice::from_ref(self),
        }
    }
}

/// Parses a text; `None` if that is a fault.
pub(super) fn tree<'t>(text: &'t str, findings: &mut Findings<'_>) -> Option<Node<'t>> {
    let options = granit_parser::options! {
        strict_indentation: true,
        disallow_directives: true,
        emit_unresolved_aliases: true,
        emit_anchor_events: true,
        // Deeper than the check below, whose message is better.
        flow_nesting_limit: 2 * DEPTH,
        block_nesting_limit: 2 * DEPTH,
    };
    let mut events = Events {
        parser: Parser::new_from_str_with_options(text, options),
        values: 0,
        length: text.len(),
        text,
    };
    match events.document() {
        Ok(node) => Some(node),
        Err(Refused { at, message, remedy }) => {
            findings.add(at, message, remedy);
            None
        }
    }
}

struct Refused {
    at: Place,
    message: String,
    remedy: &'static str,
}

struct Events<'t> {
    parser: Parser<'t, granit_parser::StrInput<'t>>,
    values: usize,
    length: usize,
    text: &'t str,
}

impl<'t> Events<'t> {
    /// The next event that concerns the content; `None` at the end. Aliases, anchors and tags are refused.
    fn next(&mut self) -> Result<Option<(Event<'t>, Place)>, Refused> {
        let Some(event) = self.parser.next_event() else { return Ok(None) };
        let (event, span) = event.map_err(|error| self.unreadable(&error))?;
        let at = self.place(span);
        let aliases = "write it out in each place; prefixes that are needed in several are a set";
        match &event {
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                return refused(at, "aliases have no meaning here", aliases);
            }
            Event::Anchor(..) => return refused(at, "anchors have no meaning here", aliases),
            _ if event.tag().is_some() => {
                let at = span.tag_span().map_or(at, |span| self.place(span));
                return refused(at, "tags have no meaning here", "remove it");
            }
            // The event of the anchor itself comes next, with the place of the anchor; it is refused there.
            _ if event.anchor_id().is_some() => return self.next(),
            _ => {}
        }
        if event.is_node() {
            self.values += 1;
            if self.values > VALUES {
                let message = format!("the document has more than {VALUES} values");
                return refused(at, &message, "move long lists of prefixes to files of sets");
            }
        }
        Ok(Some((event, at)))
    }

    fn document(&mut self) -> Result<Node<'t>, Refused> {
        let mut documents = 0;
        let mut root = None;
        while let Some((event, at)) = self.next()? {
            match event {
                Event::DocumentStart(..) if documents == 1 => {
                    return refused(at, "a second document begins", "one file is one policy");
                }
                Event::DocumentStart(..) => documents += 1,
                _ if event.is_node() => root = Some(self.node(event, at, 0)?),
                _ => {}
            }
        }
        let at = Place::default();
        Ok(root.unwrap_or(Node { at, value: Value::Empty }))
    }

    fn node(&mut self, event: Event<'t>, at: Place, depth: usize) -> Result<Node<'t>, Refused> {
        let value = match event {
            Event::Scalar(text, style, ..) => {
                let plain = matches!(style, ScalarStyle::Plain);
                match &*text {
                    "" | "~" | "null" if plain => Value::Empty,
                    _ => Value::Text(text),
                }
            }
            _ if depth == DEPTH => {
                let message = format!("lists and mappings are nested deeper than {DEPTH}");
                return refused(at, &message, "no part of a policy is nested so deep");
            }
            Event::SequenceStart(..) => {
                let mut nodes = Vec::new();
                while let Some((event, at)) = self.within(at)? {
                    nodes.push(self.node(event, at, depth + 1)?);
                }
                Value::List(nodes)
            }
            _ => {
                let mut pairs = Vec::new();
                while let Some((event, at)) = self.within(at)? {
                    let key = self.key(event, at)?;
                    let Some((event, at)) = self.within(at)? else { break };
                    pairs.push((key, self.node(event, at, depth + 1)?));
                }
                Value::Map(pairs)
            }
        };
        Ok(Node { at, value })
    }

    /// The next node of a list or mapping that began at `begun`; `None` at its end.
    fn within(&mut self, begun: Place) -> Result<Option<(Event<'t>, Place)>, Refused> {
        loop {
            match self.next()? {
                Some((Event::SequenceEnd | Event::MappingEnd, _)) => return Ok(None),
                Some((event, at)) if event.is_node() => return Ok(Some((event, at))),
                Some(_) => {}
                None => return refused(begun, "this never ends", ""),
            }
        }
    }

    fn key(&self, event: Event<'t>, at: Place) -> Result<Word<'t>, Refused> {
        match event {
            Event::Scalar(text, ..) => Ok(Word { text, at }),
            _ => refused(at, "a key has to be a single word", "write KEY: VALUE"),
        }
    }

    fn unreadable(&self, error: &ScanError) -> Refused {
        let start = error.marker().byte_offset().unwrap_or_default().min(self.length);
        let at = Place { start, end: start + 1 };
        match error.kind() {
            ErrorKind::RecursionLimitExceeded => Refused {
                at,
                message: format!("lists and mappings are nested deeper than {DEPTH}"),
                remedy: "no part of a policy is nested so deep",
            },
            ErrorKind::DirectiveDisallowed => Refused {
                at,
                message: "directives have no meaning here".into(),
                remedy: "remove it",
            },
            _ => {
                let ends = if start == self.length { ", where the text ends" } else { "" };
                let cause = printable(&error.info().replace('\'', "`"), 200);
                let message = format!("this is not YAML{ends}: {cause}");
                Refused { at, message, remedy: "check the indentation, brackets and quotes here" }
            }
        }
    }

    fn place(&self, span: Span) -> Place {
        let Place { start, mut end } = span.byte_range().map_or(Place::default(), |range| Place {
            start: range.start.min(self.length),
            end: range.end.min(self.length),
        });
        // The parser counts the line breaks after a block scalar as part of it.
        let text = self.text.get(start..end).unwrap_or_default();
        end = start + text.trim_end().len();
        Place { start, end }
    }
}

fn refused<T>(at: Place, message: &str, remedy: &'static str) -> Result<T, Refused> {
    Err(Refused { at, message: message.to_owned(), remedy })
}
