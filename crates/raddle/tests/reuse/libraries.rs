//! Libraries with thread-locals that are loaded after the threads that are reused.

use crate::{alone, never_reused, one_after_the_other, reused};
use std::ffi::CString;
use std::path::Path;
use std::process::Command;

/// Builds and loads a library of this source.
fn load(name: &str, source: &str, flags: &[&str]) -> usize {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let at = folder.join(format!("lib{name}-{}.so", std::process::id()));
    let from = folder.join(format!("{name}-{}.cc", std::process::id()));
    std::fs::write(&from, source).unwrap();
    let mut compiler = Command::new("c++");
    compiler.args(["-O1", "-shared", "-fPIC"]).args(flags);
    assert!(
        compiler
            .arg(&from)
            .arg("-o")
            .arg(&at)
            .status()
            .unwrap()
            .success()
    );
    let path = CString::new(at.to_str().unwrap()).unwrap();
    // SAFETY: a library with constructors that do nothing.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "{}", at.display());
    std::fs::remove_file(&at).unwrap();
    std::fs::remove_file(&from).unwrap();
    library.expose_provenance()
}

/// Calls a function of a library that takes and returns a number.
fn function(library: usize, name: &str) -> extern "C" fn(i32) -> i32 {
    let name = CString::new(name).unwrap();
    // SAFETY: a function of that name is of that type in these libraries.
    unsafe {
        let at = libc::dlsym(
            std::ptr::with_exposed_provenance_mut(library),
            name.as_ptr(),
        );
        assert!(!at.is_null());
        std::mem::transmute::<*mut libc::c_void, extern "C" fn(i32) -> i32>(at)
    }
}

const WORD: &str = "static __thread int word MODEL = 3; static __thread int zero MODEL;
extern \"C\" int exchange(int to) {
    int old = word * 100 + zero; word = to; zero = to; return old;
}";

/// The initial value of [`WORD`] on every thread.
const FRESH: i32 = 300;

#[test]
fn a_late_librarys_thread_locals_begin_anew() {
    let _alone = alone();
    reused(|| (), || true); // threads are kept, and don't know the library
    let exchange = function(load("late", &WORD.replace("MODEL", ""), &[]), "exchange");
    never_reused(move || _ = exchange(7), move || exchange(8) == FRESH);
    reused(|| (), || true); // those that don't use it still are
}

#[test]
fn so_do_those_of_a_late_library_with_a_fixed_place() {
    let _alone = alone();
    reused(|| (), || true);
    let model = "__attribute__((tls_model(\"initial-exec\")))";
    let exchange = function(
        load("fixed", &WORD.replace("MODEL", model), &[]),
        "exchange",
    );
    reused(move || _ = exchange(7), move || exchange(8) == FRESH);
}

#[test]
fn objects_of_cxx_are_made_and_destroyed_on_each_thread() {
    const OBJECT: &str = "static int alive;
        struct Object { int n = 5; Object() { __atomic_add_fetch(&alive, 1, 5); }
                        ~Object() { __atomic_sub_fetch(&alive, 1, 5); } };
        extern \"C\" int touch(int to) {
            static thread_local Object object; int old = object.n; object.n = to; return old; }
        extern \"C\" int count(int) { return __atomic_load_n(&alive, 5); }";
    let _alone = alone();
    for flags in [&["-ftls-model=initial-exec"][..], &[]] {
        let library = load("object", OBJECT, flags);
        let (touch, count) = (function(library, "touch"), function(library, "count"));
        one_after_the_other(move || _ = touch(9), move || touch(9) == 5);
        assert_eq!(count(0), 0);
    }
}
