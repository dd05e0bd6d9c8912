//! Stacks as a profile has them: functions, from the outermost caller inwards.

use raddle_record::managed_locks::wants_monitor;
use raddle_record::profile::{Function, Interner, Origin};
use raddle_stacks::{End, Language, ManagedFrame, Stack, Symbols};
use std::ops::Range;

use crate::dump::stacks::{IN_RUNTIME, NamedFrame, NamedStack, name_all, shown};

/// The outermost function of a stack of which the next frame was not found.
const LOST: &str = "[cut: the next frame was not found]";
/// The outermost function of a stack of which not all frames were read.
const TOO_DEEP: &str = "[cut: there are more frames]";
/// The most characters of a name.
const NAME_MAX: usize = 1 << 10;

/// Names stacks, and returns the number that each has in the interner. `code` is the runtime's.
/// Stacks that want to enter monitors of different objects are different ones.
pub(super) fn intern(
    stacks: &[Stack],
    managed: &[ManagedFrame],
    symbols: &mut Symbols<'_>,
    code: Range<u64>,
    interner: &mut Interner,
) -> Vec<u32> {
    let named = name_all(stacks.to_vec(), managed.to_vec(), symbols, code);
    named
        .iter()
        .map(|stack| {
            let functions = functions(stack);
            let wants_monitor = || wants_monitor(&functions.iter().collect::<Vec<_>>());
            let monitor = match stack.stack.monitor {
                object if object < Stack::NOTICED || wants_monitor() => object as u32,
                _ => 0,
            };
            let numbers = functions.into_iter().rev();
            let numbers = numbers
                .map(|function| interner.function(function))
                .collect();
            interner.stack_at(numbers, monitor)
        })
        .collect()
}

/// Returns the functions of a stack, from the inside out.
fn functions(stack: &NamedStack) -> Vec<Function> {
    let mut functions: Vec<Function> = Vec::new();
    for frame in &stack.unplaced {
        functions.push(managed(frame));
    }
    let frames = shown(stack);
    if frames.is_empty() && !stack.frames.is_empty() {
        functions.push(Function::note(IN_RUNTIME));
    }
    for frame in frames {
        if frame.managed.is_empty() {
            native(frame, &mut functions);
        } else {
            functions.extend(frame.managed.iter().map(|it| managed(it)));
        }
    }
    functions.extend(cut(stack));
    functions
}

/// Returns the note of a stack that could not be followed to its outermost frame.
fn cut(stack: &NamedStack) -> Option<Function> {
    match stack.stack.end {
        End::Lost if !stack.frames.is_empty() => Some(Function::note(LOST)),
        End::TooDeep => Some(Function::note(TOO_DEEP)),
        End::Outermost | End::Lost => None,
    }
}

fn native(frame: &NamedFrame, to: &mut Vec<Function>) {
    let named = &frame.named;
    let module = named.module.as_deref().map(short);
    if frame.frame.is_signal {
        to.push(Function::note("<signal handler called>"));
        return;
    }
    if named.functions.is_empty() {
        let name = match &module {
            Some(module) => format!("{module}+{:#x}", named.offset),
            None => "[code without a name]".to_owned(),
        };
        to.push(Function {
            module,
            origin: Origin::Native,
            ..Function::note(name)
        });
        return;
    }
    // Of the runtime's frames only the function itself is shown.
    let own = named.functions.len() - 1;
    let from = if frame.is_runtime { own } else { 0 };
    to.extend(named.functions[from..].iter().map(|function| Function {
        name: short(&function.name),
        origin: Origin::Native,
        file: function.file.as_deref().map(short),
        line: function.line,
        module: module.clone(),
        is_inlined: function.is_inlined,
    }));
}

fn managed(frame: &ManagedFrame) -> Function {
    Function {
        name: short(&frame.name),
        origin: match frame.language {
            Language::Python => Origin::Python,
            Language::Java => Origin::Java,
            Language::Mapped => Origin::Mapped,
        },
        file: frame.file.as_deref().map(short),
        line: frame.line,
        module: None,
        is_inlined: false,
    }
}

/// A name of a length that files may have: it comes from memory that may hold anything.
fn short(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_stacks::{Frame, Named};
    use std::rc::Rc;

    fn outermost(end: End, frames: usize) -> Option<String> {
        let frame = Frame {
            address: 1,
            is_return: true,
            is_signal: false,
            is_guessed: false,
        };
        let named = |frame| NamedFrame {
            frame,
            named: Rc::new(Named::default()),
            is_runtime: false,
            is_exported: false,
            managed: Vec::new(),
        };
        let frames = vec![frame; frames];
        let stack = NamedStack {
            frames: frames.iter().copied().map(named).collect(),
            stack: Stack {
                frames: frames.into(),
                end,
                managed: Box::default(),
                monitor: 0,
            },
            unplaced: Vec::new(),
        };
        functions(&stack).pop().map(|it| it.name)
    }

    #[test]
    fn a_stack_that_is_cut_says_so() {
        assert_eq!(outermost(End::Lost, 1).as_deref(), Some(LOST));
        assert_eq!(outermost(End::TooDeep, 1).as_deref(), Some(TOO_DEEP));
        let whole = outermost(End::Outermost, 1);
        assert_eq!(whole.as_deref(), Some("[code without a name]"));
        assert_eq!(outermost(End::Lost, 0), None, "managed frames alone");
    }
}
