//! The target and the host of a request, in the one form that they are compared in.

/// The path in the target of a request, as a service understands it: without scheme, host and query, percent-decoded, and
/// with single slashes. `None` for one that services understand differently, of which no browser makes any: with a segment `.`
/// or `..`, a backslash or a NUL, also where these are percent-encoded.
pub fn path_of(target: &str) -> Option<String> {
    let target = ["http://", "https://"]
        .iter()
        .find_map(|scheme| target.strip_prefix(scheme))
        .map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]));
    let end = target.find(['?', '#']).unwrap_or(target.len());
    let decoded = decoded(&target[..end]);
    // A service may cut a segment at a semicolon.
    let is_dots = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    if decoded.contains(['\\', '\0']) || decoded.split('/').any(is_dots) {
        return None;
    }
    if !decoded.starts_with('/') {
        // Such as the `*` of OPTIONS.
        return Some(decoded);
    }
    let mut path = String::with_capacity(decoded.len());
    for segment in decoded.split('/').filter(|segment| !segment.is_empty()) {
        path.push('/');
        path.push_str(segment);
    }
    if path.is_empty() || decoded.ends_with('/') {
        path.push('/');
    }
    Some(path)
}

/// A text with each `%` and two hexadecimal digits replaced by their byte. What is no UTF-8 then becomes U+FFFD.
fn decoded(text: &str) -> String {
    let digit = |byte: Option<&u8>| byte.and_then(|it| char::from(*it).to_digit(16));
    let (bytes, mut decoded, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        match (byte, digit(bytes.get(at + 1)), digit(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high << 4 | low) as u8);
                at += 3;
            }
            _ => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// A host in lower case, without its port and the dot at its end. An address of IPv6 stays in brackets.
pub fn host_of(text: &str) -> String {
    let end = text.rfind(']').map_or(0, |at| at + 1);
    let port = text.get(end..).and_then(|rest| rest.find(':')).map(|at| end + at);
    let name = text.get(..port.unwrap_or(text.len())).unwrap_or_default();
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        for (target, expected) in [
            ("/login", "/login"),
            ("/login?next=/x", "/login"),
            ("/login#x", "/login"),
            ("/%6cogin", "/login"),
            ("/%6Cog%69n", "/login"),
            ("//login", "/login"),
            ("/a%2fb", "/a/b"),
            ("http://a.example/login", "/login"),
            ("https://a.example", "/"),
            ("/login/", "/login/"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a..b/...", "/a..b/..."),
            ("/", "/"),
            ("", ""),
            ("*", "*"),
            ("/%", "/%"),
            ("/%4", "/%4"),
            ("/%zz", "/%zz"),
            ("/%ff", "/\u{fffd}"),
            ("/a%3fb", "/a?b"),
        ] {
            assert_eq!(path_of(target).as_deref(), Some(expected), "{target}");
        }
    }

    /// A service that goes by the text as it came would have another path than one that resolves it.
    #[test]
    fn what_services_understand_differently_is_no_path() {
        for target in [
            "/./login",
            "/x/../login",
            "/x/%2e%2e/login",
            "/dl/file%2f..%2f..%2fx",
            "/x%2f..%2flogin",
            "/../../login",
            "/login/.",
            "/login/x/..",
            "/x/..;a=b/login",
            "/x\\..\\login",
            "/x%5clogin",
            "/login%00",
            "..",
        ] {
            assert_eq!(path_of(target), None, "{target}");
        }
    }

    #[test]
    fn a_host_has_one_spelling() {
        for (text, expected) in [
            ("A.example", "a.example"),
            ("a.example:80", "a.example"),
            ("a.example.", "a.example"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("", ""),
        ] {
            assert_eq!(host_of(text), expected);
        }
    }

    proptest! {
        #[test]
        fn any_target_has_a_path_that_is_its_own(target in "[/.%a-f0-9?#*é]{0,24}") {
            let once = path_of(&target);
            prop_assume!(once.is_some());
            let once = once.unwrap_or_default();
            // A percent sign that was encoded is decoded once.
            prop_assume!(!once.contains('%') && !once.contains(['?', '#']));
            prop_assert_eq!(path_of(&once), Some(once));
        }
    }
}
