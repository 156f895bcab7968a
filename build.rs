//! Tells the program which profile it was built with, so that `doctor` can warn of a slow one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=TURNWISE_PROFILE={}", std::env::var("PROFILE").unwrap_or_default());
}
