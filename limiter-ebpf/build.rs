//! Makes cargo link the BPF objects anew when bpf-linker changes.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The host build of the library, which links nothing, does not need it to be there.
    let path = env::var_os("PATH").unwrap_or_default();
    let linker =
        env::split_paths(&path).map(|folder| folder.join("bpf-linker")).find(|file| file.is_file());
    if let Some(linker) = linker {
        println!("cargo::rerun-if-changed={}", linker.display());
    }
}
