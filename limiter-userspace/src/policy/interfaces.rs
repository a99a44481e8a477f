//! Names of interfaces, and which interfaces a word of an operator stands for.
//!
//! All commands, the agent, policies and metrics call [`select`], so a word means the same everywhere. The
//! first of these that fits applies:
//!
//! 1. the name or an alternative name (`altname` of ip-link(8)) of an interface;
//! 2. `ifN`: the interface with the index N, as ip(8) and tc(8) write it;
//! 3. a pattern of names: `*` stands for any characters, `?` for one.

use super::units::printable;

/// Bytes of the longest alternative name: `ALTIFNAMSIZ` of Linux without the final zero.
pub const LONGEST_NAME: usize = 127;

/// Something with the names and the index of an interface.
pub trait Named {
    /// The interface name.
    fn name(&self) -> &str;
    /// The alternative names.
    fn alternatives(&self) -> &[String];
    /// The interface index; 0 if the interface is not in this network namespace.
    fn index(&self) -> u32;
}

/// An attached interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The number of the interface in the tables, from 0.
    pub slot: u32,
    /// The interface name; the one at the time of the attach if the interface is not in this network
    /// namespace.
    pub name: String,
    /// The alternative names; empty if the interface is not in this network namespace.
    pub alternatives: Vec<String>,
    /// The interface index; 0 if the interface is not in this network namespace.
    pub index: u32,
}

impl Port {
    /// An interface of this network namespace without alternative names.
    pub fn new(slot: u32, name: &str, index: u32) -> Self {
        Self { slot, name: name.to_owned(), alternatives: Vec::new(), index }
    }

    /// Whether the interface is in this network namespace, so that all its names are known.
    pub const fn is_here(&self) -> bool {
        self.index != 0
    }
}

impl Named for Port {
    fn name(&self) -> &str {
        &self.name
    }

    fn alternatives(&self) -> &[String] {
        &self.alternatives
    }

    fn index(&self) -> u32 {
        self.index
    }
}

/// Returns the interfaces that a word stands for, by the rules of this [module](self).
///
/// ```
/// use limiter_userspace::policy::interfaces::{Port, select};
///
/// let ports = [Port::new(0, "eth0", 2), Port::new(1, "veth1", 7)];
/// assert_eq!(select("if7", &ports), [&ports[1]]);
/// assert_eq!(select("*eth*", &ports).len(), 2);
/// ```
pub fn select<'a, T: Named>(word: &str, interfaces: &'a [T]) -> Vec<&'a T> {
    let names =
        |it: &'a T| std::iter::once(it.name()).chain(it.alternatives().iter().map(String::as_str));
    let called: Vec<_> =
        interfaces.iter().filter(|it| names(it).any(|name| name == word)).collect();
    if !called.is_empty() {
        return called;
    }
    if let Some(index) = index(word) {
        return interfaces.iter().filter(|it| it.index() == index).collect();
    }
    if is_pattern(word) {
        return interfaces.iter().filter(|it| names(it).any(|name| fits(word, name))).collect();
    }
    Vec::new()
}

/// Whether a word is a pattern. A pattern may stand for several interfaces, or for none yet.
pub fn is_pattern(word: &str) -> bool {
    word.contains(['*', '?'])
}

/// The index N of a word `ifN`; `None` for leading zeros and numbers above 32 bits.
fn index(word: &str) -> Option<u32> {
    let digits = word.strip_prefix("if")?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}

/// Checks that a word can stand for an interface: its length and characters.
///
/// # Errors
/// A message that says what is wrong.
pub fn check(word: &str) -> Result<(), String> {
    let wrong =
        |byte: char| byte.is_whitespace() || byte.is_control() || matches!(byte, '/' | ':' | ',');
    if word.is_empty() {
        Err("an interface has a name".to_owned())
    } else if word.contains(',') {
        Err("no interface has a comma in its name; write several as words of their own".to_owned())
    } else if word.contains(wrong) || matches!(word, "." | "..") {
        Err("no interface has such a name".to_owned())
    } else if word.len() > LONGEST_NAME {
        Err(format!("a name of an interface has at most {LONGEST_NAME} bytes"))
    } else {
        Ok(())
    }
}

/// Joins names for one line of output. Of more than 12, only the first are shown.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    const MOST: usize = 12;
    let names: Vec<_> = names.into_iter().collect();
    let shown: Vec<_> = names.iter().take(MOST).map(|name| printable(name, LONGEST_NAME)).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Whether a name matches a pattern.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut seen) = (0, 0);
    // The last `*` and the end of what it stands for; on a mismatch, it takes one character more.
    let mut star = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == name[seen] => {
                at += 1;
                seen += 1;
            }
            _ => match &mut star {
                Some((place, end)) => {
                    *end += 1;
                    (at, seen) = (*place + 1, *end);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(word: &str) -> Vec<u32> {
        let long = "l".repeat(LONGEST_NAME);
        let with = |port: Port, names: &[&str]| Port {
            alternatives: names.iter().map(|name| (*name).to_owned()).collect(),
            ..port
        };
        let ports = [
            with(Port::new(0, "eth0", 2), &["enp175s0f1np1-uplink-a", &long]),
            Port::new(1, "veth1", 7),
            with(Port::new(2, "veth22", 8), &["if2"]),
            // In another network namespace.
            Port::new(3, "veth3", 0),
        ];
        select(word, &ports).iter().map(|port| port.slot).collect()
    }

    #[test]
    fn a_word_is_a_name_or_else_an_index_or_else_a_pattern() {
        let long = "l".repeat(LONGEST_NAME);
        for (word, slots) in [
            ("eth0", &[0][..]),
            ("enp175s0f1np1-uplink-a", &[0]),
            (&long, &[0]),
            (&long[1..], &[]),
            ("if7", &[1]),
            ("if2", &[2]),
            ("if07", &[]),
            ("if+7", &[]),
            ("if0", &[]),
            ("if4294967296", &[]),
            ("veth*", &[1, 2, 3]),
            ("veth?", &[1, 3]),
            ("*", &[0, 1, 2, 3]),
            ("*uplink*", &[0]),
            ("v*h*2", &[2]),
            ("v*h*3*2", &[]),
            ("eth", &[]),
            ("", &[]),
        ] {
            assert_eq!(selected(word), slots, "{word}");
        }
    }

    #[test]
    fn of_many_names_the_first_are_listed() {
        let names: Vec<_> = (0..14).map(|number| format!("veth{number}")).collect();
        assert_eq!(listed(&names[..2]), "veth0, veth1");
        assert!(listed(&names).ends_with("veth11 and 2 more"), "{}", listed(&names));
    }

    #[test]
    fn what_no_interface_can_be_called_is_refused() {
        let long = "l".repeat(LONGEST_NAME + 1);
        for (word, why) in [
            ("", "has a name"),
            ("vd,lo", "comma"),
            ("a/b", "such a name"),
            ("a:b", "such a name"),
            ("a b", "such a name"),
            ("a\u{a0}b", "such a name"),
            ("a\n", "such a name"),
            ("..", "such a name"),
            (&long, "at most 127"),
        ] {
            assert!(check(word).unwrap_err().contains(why), "{word}");
        }
        for word in ["eth0", "veth*", "if7", "été", &long[1..], "..."] {
            check(word).unwrap();
        }
    }
}
