//! Tells where the BPF objects that limiter-userspace built are.

fn main() -> Result<(), std::env::VarError> {
    let objects = std::env::var("DEP_LIMITER_BPF_OBJECTS")?;
    println!("cargo::rustc-env=LIMITER_BPF_OBJECTS={objects}");
    Ok(())
}
