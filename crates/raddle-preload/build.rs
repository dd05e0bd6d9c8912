//! Links the preloaded library against nothing: it must not need libc, which it sits beneath.
fn main() {
    for arg in [
        "-nostdlib",
        "-nostartfiles",
        "-Wl,-z,initfirst",
        "-Wl,-z,now",
        "-Wl,--no-undefined",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
