//! Checks whether a program needs shared libraries.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

/// The type of the program header that names the dynamic loader.
const PT_INTERP: u32 = 3;

/// Whether a 64-bit ELF program in the byte order of this machine is static.
pub(super) fn is_static(file: &Path) -> Result<bool> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let loads_libraries = loads_libraries(&bytes)
        .with_context(|| format!("{} is no program in the format ELF", file.display()))?;
    Ok(!loads_libraries)
}

fn loads_libraries(bytes: &[u8]) -> Option<bool> {
    if bytes.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let short = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let table = u64::from_le_bytes(bytes.get(32..40)?.try_into().ok()?);
    let table = usize::try_from(table).ok()?;
    let (size, count) = (usize::from(short(54)?), usize::from(short(56)?));
    for number in 0..count {
        let at = table.checked_add(number * size)?;
        let kind = u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?);
        if kind == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_needs_libraries_and_text_is_no_program() {
        assert!(!is_static(&std::env::current_exe().unwrap()).unwrap());
        assert_eq!(loads_libraries(b"\x7fELF\x02"), None);
        assert_eq!(loads_libraries(b"#!/bin/sh\n"), None);
    }
}
