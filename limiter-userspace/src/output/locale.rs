//! The character set of the terminal, as the locale tells it.

use std::env;

/// Whether text may have characters beyond ASCII. The first of `LC_ALL`, `LC_CTYPE` and `LANG` that
/// is set and not empty names the locale. Without one it is the C locale, which has ASCII alone.
pub fn is_utf8() -> bool {
    let value = |name| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    names_utf8(["LC_ALL", "LC_CTYPE", "LANG"].map(value))
}

fn names_utf8(values: [Option<String>; 3]) -> bool {
    let locale = values.into_iter().flatten().find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::names_utf8;

    #[test]
    fn the_first_variable_that_is_set_names_the_locale() {
        let of = |values: [&str; 3]| names_utf8(values.map(|it| Some(it.to_owned())));
        assert!(of(["", "", "en_US.UTF-8"]) && of(["C.utf8", "", ""]));
        assert!(of(["", "de_DE.utf-8@euro", "C"]));
        assert!(!of(["C", "", "en_US.UTF-8"]) && !of(["", "POSIX", "en_US.UTF-8"]));
        assert!(!of(["", "", ""]) && !of(["", "", "de_DE.ISO-8859-1"]));
        assert!(!names_utf8([None, None, None]));
        assert!(names_utf8([None, None, Some("C.UTF-8".to_owned())]));
    }
}
