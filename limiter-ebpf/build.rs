//! Says how the BPF objects are linked, and has cargo link them anew when bpf-linker changes.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("bpf") {
        // Headers lie as they come. Kernels take words of packets and of map values that are not aligned where the
        // machine does, which the compiler does not assume: it would read them byte by byte. On the stack they
        // take none, which loading the program shows.
        println!("cargo::rustc-link-arg-bins=--cpu-features=+allows-misaligned-mem-access");
    }
    // The host build of the library, which links nothing, does not need it to be there.
    let path = env::var_os("PATH").unwrap_or_default();
    let linker =
        env::split_paths(&path).map(|folder| folder.join("bpf-linker")).find(|file| file.is_file());
    if let Some(linker) = linker {
        println!("cargo::rerun-if-changed={}", linker.display());
    }
}
