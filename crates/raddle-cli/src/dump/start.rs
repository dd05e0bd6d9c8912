//! The names of functions without a symbol that are known by the functions beside them.
//!
//! libc's start functions are called by `_start`, and call `main`: distributions strip programs.
//! libstdc++ starts all its threads by one function of its own.

use std::rc::Rc;

use raddle_stacks::{Function, Named};

use super::stacks::NamedFrame;

/// The beginning of the names of libc's functions between `main` and `_start`.
const LIBC_START: &str = "__libc_start_";
/// libc's function that calls the first one of a thread; and that of libstdc++.
const START_THREAD: &str = "start_thread";
const LIBSTDCXX: &str = "libstdc++.so";
const NATIVE_THREAD: &str = "execute_native_thread_routine";

/// Names the frames of a stack that have no names, as far as those beside them say which functions
/// they are.
pub(super) fn name(frames: &mut [NamedFrame]) {
    for position in 0..frames.len() {
        let beside = |at: Option<usize>| at.and_then(|at| function(frames.get(at)?));
        let inner = beside(position.checked_sub(1)).unwrap_or_default();
        let outer = beside(position.checked_add(1)).unwrap_or_default();
        let in_libstdcxx = |module: &str| module.starts_with(LIBSTDCXX);
        let module = frames[position].named.module.as_deref();
        let name = match () {
            () if outer.starts_with(LIBC_START) => "main",
            () if inner.starts_with(LIBC_START) => "_start",
            () if outer == START_THREAD && module.is_some_and(in_libstdcxx) => NATIVE_THREAD,
            () => continue,
        };
        give(&mut frames[position], name);
    }
}

/// Returns the name of the function that a frame belongs to, with those inlined into it.
fn function(frame: &NamedFrame) -> Option<&str> {
    Some(&frame.named.functions.last()?.name)
}

/// Gives a name to a frame in a file, if it has none, and is no guess.
fn give(frame: &mut NamedFrame, name: &str) {
    let named = &frame.named;
    let is_nameless = named.functions.is_empty() && frame.managed.is_empty();
    if !is_nameless || named.module.is_none() || frame.frame.is_guessed {
        return;
    }
    let function = Function {
        name: name.to_owned(),
        file: None,
        line: None,
        is_inlined: false,
    };
    frame.named = Rc::new(Named {
        functions: vec![function],
        ..Named::clone(named)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_stacks::Frame;

    fn frame(module: &str, function: &str) -> NamedFrame {
        let function = Function {
            name: function.to_owned(),
            file: None,
            line: None,
            is_inlined: false,
        };
        NamedFrame {
            frame: Frame {
                address: 4096,
                is_return: true,
                is_signal: false,
                is_guessed: false,
            },
            named: Rc::new(Named {
                functions: Vec::from_iter(Some(function).filter(|it| !it.name.is_empty())),
                module: Some(module.to_owned()),
                ..Named::default()
            }),
            is_runtime: false,
            is_exported: false,
            managed: Vec::new(),
        }
    }

    fn names(frames: &[(&str, &str)]) -> Vec<String> {
        let frames = frames
            .iter()
            .map(|(module, function)| frame(module, function));
        let mut frames: Vec<NamedFrame> = frames.collect();
        name(&mut frames);
        let name = |frame: &NamedFrame| function(frame).unwrap_or("?").to_owned();
        frames.iter().map(name).collect()
    }

    #[test]
    fn main_and_start_are_known_by_libc() {
        let libc = |name| ("libc.so.6", name);
        let (main, start) = (libc("__libc_start_call_main"), libc("__libc_start_main"));
        let stack = [("prog", ""), ("prog", ""), main, start, ("prog", "")];
        let between = ["?", "main", main.1, start.1, "_start"];
        assert_eq!(names(&stack), between);
        let named = [("prog", "own"), main, ("prog", "begin")];
        assert_eq!(names(&named), ["own", main.1, "begin"], "a symbol counts");
        assert_eq!(names(&[libc("start_thread"), libc("")])[1], "?");
    }

    #[test]
    fn the_first_function_of_a_thread_of_libstdcxx_is_known() {
        let stack = |module, by| names(&[("prog", "run"), (module, ""), ("libc.so.6", by)]);
        assert_eq!(stack("libstdc++.so.6.0.30", START_THREAD)[1], NATIVE_THREAD);
        assert_eq!(stack("libstdc++.so.6.0.30", "qsort")[1], "?");
        assert_eq!(stack("libother.so", START_THREAD)[1], "?");
    }
}
