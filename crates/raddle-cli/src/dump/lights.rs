//! Light threads of the explicit API: what they wait for.

use raddle_inspect::{ThreadFlags, ThreadRecord, ThreadState, WaitKind};

use super::stacks::NamedStack;

/// The frames in which the waiting function of the API is looked for.
const FRAMES: usize = 12;

/// Names the wait of a light thread by the function of the API that waits, if the stack has it: a
/// program that is stripped, or has that function inlined without a note, leaves it at
/// [`WaitKind::API`], which then stands for a yield, too. A light thread that a completion has
/// woken, and that has had no turn since, is still shown in that wait.
pub(super) fn name_wait(record: &mut ThreadRecord, stack: Option<&NamedStack>) {
    if record.wait_kind != WaitKind::API {
        return;
    }
    let frames = stack.map_or(&[][..], |stack| &stack.frames[..]);
    let functions = frames.iter().take(FRAMES);
    let mut functions = functions.flat_map(|frame| &frame.named.functions);
    let Some(kind) = functions.find_map(|it| of_function(&it.name, it.file.as_deref())) else {
        return;
    };
    if kind == WaitKind::COMPLETION || record.flags.contains(ThreadFlags::CERTAIN) {
        record.wait_kind = kind;
    } else {
        // It has yielded, or was woken.
        record.state = ThreadState::RUNNABLE;
        record.wait_kind = WaitKind::NONE;
    }
}

/// Returns what a function of the API waits for; `None` for others, and for those that several
/// waits have in common. A symbol has the whole path of a function. Debug information has its last
/// name and the file.
fn of_function(name: &str, file: Option<&str>) -> Option<WaitKind> {
    const WAITS: [(&str, &str, &str, WaitKind); 6] = [
        (
            "raddle::light::yield_now",
            "src/light.rs",
            "yield_now",
            WaitKind::YIELD,
        ),
        (
            "raddle::light::park::",
            "light/park.rs",
            "sleep",
            WaitKind::SLEEP,
        ),
        (
            "raddle::light::park::",
            "light/park.rs",
            "park",
            WaitKind::UNPARK,
        ),
        (
            "raddle::light::join::",
            "light/join.rs",
            "join",
            WaitKind::COMPLETION,
        ),
        (
            "raddle::light::scope::",
            "light/scope.rs",
            "",
            WaitKind::COMPLETION,
        ),
        (
            "raddle::completion::",
            "src/completion.rs",
            "wait",
            WaitKind::COMPLETION,
        ),
    ];
    // A method of a type is `<raddle::completion::Completion<T>>::wait`.
    let plain = name.trim_start_matches('<');
    let last = plain.rsplit("::").next().unwrap_or(plain);
    let found = WAITS.iter().find(|(path, end, begin, _)| {
        let is_there = match file {
            Some(file) => plain.starts_with(path) || file.ends_with(end),
            None => plain.starts_with(path),
        };
        is_there && last.starts_with(begin)
    });
    found.map(|(_, _, _, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_has_the_name_of_its_function() {
        let symbol = |name| of_function(name, None);
        assert_eq!(symbol("raddle::light::park::sleep"), Some(WaitKind::SLEEP));
        let parked = symbol("raddle::light::park::park_light");
        assert_eq!(parked, Some(WaitKind::UNPARK));
        let joins = symbol("<raddle::completion::Completion<u64>>::wait");
        assert_eq!(joins, Some(WaitKind::COMPLETION));
        assert_eq!(symbol("raddle::light::host::turns::leave"), None);
        assert_eq!(symbol("raddle::light::timers::park_until"), None);
        assert_eq!(symbol("raddle::completion::Promise<T>::run_to_end"), None);
        assert_eq!(symbol("server::main"), None);
        let file = |name, file| of_function(name, Some(file));
        let park = "crates/raddle/src/light/park.rs";
        assert_eq!(file("sleep", park), Some(WaitKind::SLEEP));
        assert_eq!(file("park_light", park), Some(WaitKind::UNPARK));
        let completion = "/a/raddle/src/completion.rs";
        assert_eq!(file("wait<()>", completion), Some(WaitKind::COMPLETION));
        assert_eq!(file("run_to_end<(), fn()>", completion), None);
        assert_eq!(file("park", "/a/src/light/host/turns.rs"), None);
    }
}
