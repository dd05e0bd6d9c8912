//! Stacks in the JSON document. `docs/dump.schema.json` describes the fields.

use std::rc::Rc;

use raddle_stacks::{End, ManagedFrame};
use serde::Serialize;

use crate::dump::stacks::{NamedFrame, NamedStack, Taken};

/// What is known of a thread's stack.
#[derive(Serialize)]
pub(super) struct OwnStack {
    /// Its position in the list of stacks; `null` if the thread has none.
    stack: Option<u32>,
    stack_kind: &'static str,
    /// Why there is none.
    stack_missing: Option<&'static str>,
}

impl OwnStack {
    pub(super) fn of(taken: &Taken, tid: u32) -> Option<OwnStack> {
        let captured = taken.threads.get(&tid)?;
        Some(OwnStack {
            stack: captured.stack,
            stack_kind: captured.kind.word(),
            stack_missing: captured.kind.missing(),
        })
    }
}

/// A stack, which many threads may have.
#[derive(Serialize)]
pub(super) struct Stack {
    /// From the inside out.
    frames: Vec<Frame>,
    /// The number of frames that are guessed.
    guessed: usize,
    /// Whether the outermost frame was reached: `outermost`, `lost` or `too_deep`.
    end: &'static str,
    /// Managed frames of which it isn't known which native frame executes them.
    managed: Vec<Managed>,
}

#[derive(Serialize)]
struct Frame {
    /// Where it goes on, in the process's memory.
    address: u64,
    guessed: bool,
    /// True where a signal handler returns to: the next frame was interrupted.
    signal: bool,
    /// True for the runtime's own code, but where a signal handler returns to.
    runtime: bool,
    /// The last part of the file's path; `null` for code without a file.
    module: Option<String>,
    /// The address in the file's own terms.
    module_address: Option<u64>,
    build_id: Option<String>,
    /// What is known of code that is no file's.
    remark: Option<&'static str>,
    /// The functions there, the innermost inlined one first; empty without a symbol.
    functions: Vec<Function>,
    /// The managed frames that this one executes, from the inside out.
    managed: Vec<Managed>,
}

#[derive(Serialize)]
struct Managed {
    language: &'static str,
    name: String,
    file: Option<String>,
    line: Option<u32>,
    notes: Vec<String>,
}

impl Managed {
    fn all(frames: &[Rc<ManagedFrame>]) -> Vec<Managed> {
        let new = |frame: &Rc<ManagedFrame>| Managed {
            language: frame.language.word(),
            name: frame.name.clone(),
            file: frame.file.clone(),
            line: frame.line,
            notes: frame.notes.clone(),
        };
        frames.iter().map(new).collect()
    }
}

#[derive(Serialize)]
struct Function {
    name: String,
    file: Option<String>,
    line: Option<u32>,
    inlined: bool,
}

impl Stack {
    pub(super) fn new(stack: &NamedStack) -> Stack {
        Stack {
            frames: stack.frames.iter().map(Frame::new).collect(),
            guessed: stack.stack.guessed(),
            end: match stack.stack.end {
                End::Outermost => "outermost",
                End::Lost => "lost",
                End::TooDeep => "too_deep",
            },
            managed: Managed::all(&stack.unplaced),
        }
    }
}

impl Frame {
    fn new(frame: &NamedFrame) -> Frame {
        let named = &frame.named;
        let function = |function: &raddle_stacks::Function| Function {
            name: function.name.clone(),
            file: function.file.clone(),
            line: function.line,
            inlined: function.is_inlined,
        };
        Frame {
            address: frame.frame.address,
            guessed: frame.frame.is_guessed,
            signal: frame.frame.is_signal,
            runtime: frame.is_runtime && !frame.frame.is_signal,
            module: named.module.clone(),
            module_address: named.module.as_ref().map(|_| named.offset),
            build_id: named.build_id.clone(),
            remark: named.remark,
            functions: named.functions.iter().map(function).collect(),
            managed: Managed::all(&frame.managed),
        }
    }
}
