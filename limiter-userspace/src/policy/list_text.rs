//! Lists of addresses as text, in the forms in which people and feeds write them.
//!
//! A line has any number of addresses, prefixes and ranges, between spaces or tabs. `#` and `;` begin a comment
//! anywhere, and `//` does at the start of a line. A netmask follows its address after `/` or a space. Of a
//! line with commas (CSV) or tabs, the first column counts if no other one has an address; the first line may name the
//! columns. Of a line `NAME:FIRST-LAST`, as blocklists of P2P programs have it, the range counts; the name does not begin
//! with an address.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use ipnet::IpNet;
use thiserror::Error;

use super::{
    RunTime,
    units::{Fault, Quantity, ValueError, parse_addresses, parse_prefix, printable},
};
use crate::{error::Failure, output::number::grouped};

/// Names of the only column of a list, which is no CSV otherwise.
const COLUMNS: [&str; 8] =
    ["address", "cidr", "ip", "ip_address", "network", "prefix", "src_ip", "subnet"];

/// The bytes of UTF-8 with which some editors begin a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a list line by line.
#[derive(Debug, Default)]
pub(super) struct ListText {
    /// Whether a line with an entry, or with the names of columns, was read.
    has_begun: bool,
}

/// An entry of a line that cannot be read.
#[derive(Debug)]
pub(super) struct BadEntry {
    /// The bytes of the line that it has.
    pub(super) at: Range<usize>,
    /// What is wrong with it.
    pub(super) error: ValueError,
}

impl BadEntry {
    /// `part` was cut from `line`.
    fn new(line: &str, part: &str, error: ValueError) -> Box<Self> {
        let start = part.as_ptr().addr().saturating_sub(line.as_ptr().addr()).min(line.len());
        Box::new(Self { at: start..(start + part.len()).min(line.len()), error })
    }
}

/// A line of a list that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} of the list{}: {cause}", others(*more))]
pub struct BadLine {
    /// The number of the first such line, from 1.
    pub line: usize,
    /// The number of other lines that cannot be read.
    pub more: usize,
    /// What is wrong with it.
    pub cause: String,
    /// What to write instead.
    pub remedy: String,
}

fn others(more: usize) -> String {
    if more == 0 { String::new() } else { format!(", and {more} more") }
}

impl Failure for BadLine {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Option<String> {
        Some(self.remedy.clone())
    }
}

/// The text without the byte order mark that it may begin with.
pub(super) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Parses a whole list.
///
/// # Errors
/// The first line that cannot be read, or the one by which the list has more than
/// [`RunTime::MOST_PREFIXES`].
pub fn parse_list(text: &[u8]) -> Result<Vec<IpNet>, BadLine> {
    let (mut list, mut prefixes) = (ListText::default(), Vec::new());
    let mut bad: Option<BadLine> = None;
    for (number, line) in (1..).zip(without_mark(text).split(|&byte| byte == b'\n')) {
        let read = match std::str::from_utf8(line) {
            Ok(line) => list
                .line(line, &mut prefixes)
                .map_err(|bad| (bad.error.to_string(), bad.error.remedy())),
            Err(_) => {
                let line = printable(&String::from_utf8_lossy(line), 48);
                Err((format!("{line} is not UTF-8"), "give the list as UTF-8 text".to_owned()))
            }
        };
        match (read, &mut bad) {
            (Ok(()), _) if prefixes.len() > RunTime::MOST_PREFIXES => {
                let most = grouped(RunTime::MOST_PREFIXES as u64);
                let cause = format!("with it, the list has more than {most} prefixes");
                let remedy = "write neighbouring prefixes as a wider one".to_owned();
                return Err(BadLine { line: number, more: 0, cause, remedy });
            }
            (Ok(()), _) => {}
            (Err(_), Some(bad)) => bad.more += 1,
            (Err((cause, remedy)), bad) => {
                *bad = Some(BadLine { line: number, more: 0, cause, remedy });
            }
        }
    }
    bad.map_or(Ok(prefixes), Err)
}

impl ListText {
    /// Parses a line, and adds its prefixes to those of the lines before. Stops within the line when there are
    /// more than [`RunTime::MOST_PREFIXES`]: a range may be hundreds.
    ///
    /// # Errors
    /// The first entry of the line that cannot be read; those before it were added.
    pub(super) fn line(
        &mut self,
        line: &str,
        prefixes: &mut Vec<IpNet>,
    ) -> Result<(), Box<BadEntry>> {
        let entry = line.split(['#', ';']).next().unwrap_or_default();
        if entry.trim().is_empty() || entry.trim_start().starts_with("//") {
            return Ok(());
        }
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if let Some(range) = named_range(entry) {
            let read = parse_addresses(range);
            prefixes.extend(read.map_err(|error| BadEntry::new(line, range, error))?);
            return Ok(());
        }
        let mut columns = entry.split(',');
        let column = first_of_tabs(columns.next().unwrap_or_default());
        let mut others = columns.peekable();
        if is_first
            && !others.clone().any(is_like_address)
            && names_columns(column, column.len() < entry.trim_end().len())
        {
            return Ok(());
        }
        // The end of a range, or another entry: to leave it out would list less than was meant.
        if others.any(is_like_address) || is_pair(column) {
            let value = unquoted(column).to_owned();
            let fault = Fault::AddressAfter;
            let error = ValueError { quantity: Quantity::Prefix, value, fault };
            return Err(BadEntry::new(line, column.trim(), error));
        }
        // An empty column is no entry, and nothing that could be left out.
        if column.trim().is_empty() {
            let error = parse_prefix(column).map(drop);
            return error.map_err(|error| BadEntry::new(line, column, error));
        }
        let mut words = column.split_whitespace().map(unquoted).peekable();
        while let Some(word) = words.next() {
            if prefixes.len() > RunTime::MOST_PREFIXES {
                break;
            }
            let (text, read) = if words.next_if_eq(&"-").is_some() {
                let last = words.next().unwrap_or_default();
                (word, parse_addresses(&format!("{word}-{last}")))
            } else if let Some(mask) = words.next_if(|next| is_netmask(next)) {
                (word, parse_prefix(&format!("{word}/{mask}")).map(|prefix| vec![prefix]))
            } else {
                (word, parse_addresses(word))
            };
            prefixes.extend(read.map_err(|error| BadEntry::new(line, text, error))?);
        }
        Ok(())
    }
}

/// The range of a line `NAME:FIRST-LAST` of IPv4. What begins with an address is no name, nor what could be the begin of
/// an IPv6 address.
fn named_range(entry: &str) -> Option<&str> {
    let (name, range) = entry.trim().rsplit_once(':')?;
    let (first, last) = range.split_once('-')?;
    let is_address = |text: &str| text.trim().parse::<Ipv4Addr>().is_ok();
    let begin = name.split([',', ' ', '\t']).next().unwrap_or_default();
    let is_name = !name.is_empty()
        && !is_like_address(begin)
        && format!("{name}:{}", first.trim()).parse::<Ipv6Addr>().is_err();
    (is_name && is_address(first) && is_address(last)).then_some(range)
}

/// The first of several columns with tabs between them, unless another one has an address: that would be left out.
fn first_of_tabs(line: &str) -> &str {
    let Some((first, others)) = line.trim_start().split_once('\t') else { return line };
    if others.split_whitespace().any(is_like_address) { line } else { first }
}

/// Whether a column has an address, a prefix or a range, or what was meant as one and mistyped. Times, MAC addresses and
/// numbers have fewer dots and colons, and a part of a version may have more digits.
fn is_like_address(column: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || b"./:- ".contains(&byte);
    let is_ipv4 = |part: &str| {
        part.matches('.').count() >= 3 && part.split('.').all(|number| number.len() <= 3)
    };
    let has_address = |part: &str| {
        part.split(':').any(is_ipv4) || part.matches(':').count() >= 6 || part.contains("::")
    };
    let column = unquoted(column);
    column.bytes().all(is_part) && column.split(['/', '-', ' ']).any(has_address)
}

/// Whether the first line of a list names its columns. `is_csv` says whether it has several.
fn names_columns(column: &str, is_csv: bool) -> bool {
    let name = unquoted(column);
    let is_name = |byte: u8| byte.is_ascii_alphabetic() || b" _-".contains(&byte);
    is_csv && !name.is_empty() && name.bytes().all(is_name)
        || COLUMNS.contains(&&*name.to_ascii_lowercase())
}

/// Whether a line has two addresses that mean one thing together: the first and the last of a block of eight or more, or an
/// address and the mask of its host bits.
fn is_pair(column: &str) -> bool {
    let words: Vec<&str> = column.split_whitespace().map(unquoted).collect();
    let [first, last] = words[..] else { return false };
    let (Ok(first), Ok(last)) = (first.parse::<Ipv4Addr>(), last.parse::<Ipv4Addr>()) else {
        return false;
    };
    let (first, last) = (first.to_bits(), last.to_bits());
    let is_block = |bits: u32| bits >= 7 && bits & bits.wrapping_add(1) == 0;
    is_block(last) || first < last && is_block(first ^ last) && first & (first ^ last) == 0
}

/// Whether a word is a netmask, and no address of a host: those end before 240.0.0.0.
fn is_netmask(word: &str) -> bool {
    word.parse().is_ok_and(|mask: Ipv4Addr| mask.octets()[0] >= 240)
}

/// A word without spaces around it and without the quotes of CSV.
fn unquoted(word: &str) -> &str {
    word.trim().trim_matches(['"', '\''])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let prefixes = parse_list(text.as_bytes()).map_err(|bad| bad.to_string())?;
        Ok(prefixes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn lists_are_read_as_people_have_them() {
        for (text, prefixes) in [
            ("", ""),
            ("\u{feff}192.0.2.0/24\n", "192.0.2.0/24"),
            ("\u{feff}# only a comment", ""),
            ("; Spamhaus DROP List\n192.0.2.0/24 ; SBL1\n", "192.0.2.0/24"),
            ("// x\n192.0.2.0/24 # y\n\n", "192.0.2.0/24"),
            ("192.0.2.0/24\n198.51.100.0/24", "192.0.2.0/24 198.51.100.0/24"),
            ("192.0.2.0/24\r\n198.51.100.7\r\n", "192.0.2.0/24 198.51.100.7/32"),
            ("192.0.2.4-192.0.2.7\n192.0.2.8 - 192.0.2.9", "192.0.2.4/30 192.0.2.8/31"),
            ("192.0.2.0/255.255.255.0\n", "192.0.2.0/24"),
            ("192.0.2.0 255.255.255.0\n192.0.3.0\t255.255.255.0", "192.0.2.0/24 192.0.3.0/24"),
            ("192.0.2.1 192.0.2.2\t2001:db8::1", "192.0.2.1/32 192.0.2.2/32 2001:db8::1/128"),
            ("192.0.2.0/24,US\n198.51.100.0/24,DE,x", "192.0.2.0/24 198.51.100.0/24"),
            ("ip,country\n192.0.2.7,US\n", "192.0.2.7/32"),
            ("\"start ip\",\"n\"\n\"192.0.2.7\",\"1\"\n", "192.0.2.7/32"),
            ("# feed\nCIDR\n192.0.2.0/24\n", "192.0.2.0/24"),
            ("192.0.2.4-192.0.2.5,AS1", "192.0.2.4/31"),
            (
                "192.0.2.1\t9\n192.0.2.2\tscanner of ports\t2026-01-01\n",
                "192.0.2.1/32 192.0.2.2/32",
            ),
            ("ip\tcountry\n192.0.2.0/24\tUS, east\n\t192.0.3.1\t-\n", "192.0.2.0/24 192.0.3.1/32"),
            ("192.0.2.4\t-\t192.0.2.7", "192.0.2.4/30"),
            (
                "# P2P\nSome Org, Inc: west:192.0.2.4-192.0.2.7\nCafe:192.0.3.1 - 192.0.3.1",
                "192.0.2.4/30 192.0.3.1/32",
            ),
            // A range of another column is no entry, nor are times, scores and MAC addresses.
            ("198.51.100.10,inetnum:192.0.2.0-192.0.2.255", "198.51.100.10/32"),
            ("198.51.100.0/24\tnet:192.0.2.0-192.0.2.255", "198.51.100.0/24"),
            ("2001:db8::1,net:192.0.2.0-192.0.2.255", "2001:db8::1/128"),
            (
                "192.0.2.1,2026-01-01 12:30:45,0.95\n192.0.2.2\t12:30:45\t00:00:5e:00:53:01",
                "192.0.2.1/32 192.0.2.2/32",
            ),
            ("203.0.113.7,x,10.0.19045.1", "203.0.113.7/32"),
            ("::ffff:192.0.2.4-::ffff:192.0.2.7", "192.0.2.4/30"),
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(prefixes), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_list_is_told_with_its_line() {
        for (text, words) in [
            ("192.0.2.1\nnobody\n", "line 2 of the list: prefix \"nobody\" is neither"),
            (
                "nobody\n192.0.2.1\nnone\n",
                "line 1 of the list, and 1 more: prefix \"nobody\" is neither",
            ),
            ("192.0.2.7,US\nip,country\n", "line 2 of the list: prefix \"ip\" is neither"),
            ("192.0.2.0,192.0.2.255,US", "has another address in the column after it"),
            ("192.0.2.0,255.255.255.0", "has another address in the column after it"),
            ("192.0.2.0/24, 192.0.3.0/24", "has another address in the column after it"),
            ("192.0.2.1,,192.0.3.1", "has another address in the column after it"),
            ("bad-host,192.0.2.1\n192.0.2.2", "has another address in the column after it"),
            (
                "192.0.2.1-192.0.2.9,192.0.3.1-192.0.3.9",
                "has another address in the column after it",
            ),
            ("2001:db8:1::/48,US,2001:db8:2::/48", "has another address in the column after it"),
            ("192.0.2.0\t192.0.2.255", "has another address in the column after it"),
            ("10.0.0.0 0.255.255.255", "has another address in the column after it"),
            ("192.0.2.1,192.0.2.300", "has another address in the column after it"),
            ("192.0.2.1,192.0.3.1:8080", "has another address in the column after it"),
            ("192.0.2.1,192.0.2.9 - 192.0.2.300", "has another address in the column after it"),
            ("2001:db8::1,x,2001:db8::/129", "has another address in the column after it"),
            ("192.0.2.1\t192.0.2.300", "prefix \"192.0.2.300\" is neither"),
            ("192.0.2.1\tx\n192.0.2.1\t198.51.100.0/33", "line 2 of the list: prefix"),
            ("192.0.2.1\t192.0.2.9-192.0.2.1", "ends before it begins"),
            ("192.0.2.1\t2001:db8::/129", "prefix \"2001:db8::/129\""),
            ("198.51.100.11 note:192.0.2.0-192.0.2.255", "prefix \"note:192.0.2.0-192.0.2.255\""),
            ("198.51.100.300,net:192.0.2.0-192.0.2.255", "prefix \"198.51.100.300\" is neither"),
            (",US", "prefix \"\" is empty"),
            ("192.0.2.1\tseen with 198.51.100.1", "prefix \"seen\" is neither"),
            ("Org:192.0.2.9-192.0.2.1", "ends before it begins"),
            ("192.0.2.9 -", "prefix \"192.0.2.9-\" is neither"),
            ("192.0.2.9 - 192.0.2.1", "ends before it begins"),
            ("192.0.2.7 255.255.255.0", "has host bits set"),
            ("192.0.2.0 24", "prefix \"24\" is neither"),
            ("192.0.2.0\t192.0.2.255\t24", "prefix \"24\" is neither"),
            ("fe80::1%eth0", "has a zone, which packets do not carry"),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(words), "{text:?}: {told}");
        }
        let bad = parse_list(b"192.0.2.1\n\xff\n").unwrap_err();
        assert_eq!(bad.to_string(), "line 2 of the list: \u{fffd} is not UTF-8");
        assert_eq!((bad.exit_code(), bad.line), (2, 2));
    }

    /// Such a range is 254 prefixes.
    #[test]
    fn a_list_of_more_prefixes_than_there_is_room_for_is_read_no_further() {
        const RANGE: &str = "::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe";
        let each = read(RANGE).unwrap().split(' ').count();
        let last = RunTime::MOST_PREFIXES / each + 1;
        let words = format!("line {last} of the list: with it, the list has more than 2,000,000");
        let lines = format!("{RANGE}\n").repeat(last + 9);
        assert!(read(&lines).unwrap_err().starts_with(&words));
        let mut prefixes = Vec::new();
        let line = lines.replace('\n', " ");
        ListText::default().line(&line, &mut prefixes).unwrap();
        assert_eq!(prefixes.len(), last * each);
        assert!(read(&line).unwrap_err().starts_with("line 1 of the list: with it, the list has"));
    }
}
