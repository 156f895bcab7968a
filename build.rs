//! Stores the build profile in the program, so that `turnwise doctor` can warn about a slow debug build.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=TURNWISE_PROFILE={}", std::env::var("PROFILE").unwrap_or_default());
}
