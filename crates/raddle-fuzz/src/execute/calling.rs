//! Making one call, and writing its result.

use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;

use super::board::{BOARD, names, now_ns, resolve, sleep};
use super::delays::{self, Point};
use super::interpret::{child, child_index, count_as_done};
use super::prepare::{self, agent, slot};
use super::shared::Line;
use super::sites;
use crate::calls::{self, Answer, Width};
use crate::case::{Call, LAST_THREAD, Page, Site, error_name, page_of};

/// How long a step that makes a thread lasts at least, so that the thread has reached its wait.
const NEW_THREAD_NS: i64 = 3_000_000;

/// libc's functions that calls go through, by the index of their row.
static FUNCTIONS: OnceLock<Vec<(&'static str, usize)>> = OnceLock::new();

/// Finds libc's functions; before any case.
pub(super) fn find_functions() {
    let find = |name: &'static str| {
        let text = CString::new(name).unwrap_or_default();
        // SAFETY: a live string.
        (
            name,
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, text.as_ptr()) }.addr(),
        )
    };
    let wrapped = calls::all().filter(|spec| spec.wrapper.is_some());
    FUNCTIONS.get_or_init(|| wrapped.map(|spec| find(spec.name)).collect());
}

fn function(name: &str) -> usize {
    let functions = FUNCTIONS.get().expect("functions are looked up first");
    let found = functions.iter().find(|(function, _)| *function == name);
    found.map_or(0, |(_, address)| *address)
}

/// The role of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// The step's own: its events count from here.
    Step,
    Event,
    Child,
}

/// Makes a call and writes its result.
pub(super) fn perform(call: &Call, index: usize, of: Of) -> i64 {
    let (slot, me) = (slot(), agent());
    let mut arguments = [0; 6];
    for (to, &value) in arguments.iter_mut().zip(&call.arguments) {
        *to = resolve(value);
    }
    delays::at(Point::BeforeCall, me, index);
    if call.spec.answer == Answer::Never {
        leave(call, me);
    }
    let calling = &slot.calling[usize::from(me)];
    calling.store(index as u32 + 1, SeqCst);
    let began = now_ns();
    if of == Of::Step {
        BOARD.called_ns.store(began, SeqCst);
    }
    let made = make(call, &arguments);
    let elapsed_ms = (now_ns() - began) / 1_000_000;
    calling.store(0, SeqCst);
    if call.spec.answer != Answer::Fork || made.result != 0 {
        delays::at(Point::AfterCall, me, index);
    }
    if call.spec.name == "pthread_create" {
        sleep(NEW_THREAD_NS);
    }
    if call.spec.answer == Answer::Fork && made.result == 0 {
        child(index);
    }
    if call.spec.answer == Answer::Fork && made.result > 0 {
        let child = usize::from(child_index(index));
        slot.pids[child].store(made.result as i32, SeqCst);
    }
    write_result(call, index, made.result);
    if let Some(registers) = made.registers {
        for name in registers.changed(&arguments, call.site == Site::Vector) {
            Line::new()
                .number(index as i64)
                .text(" changed ")
                .text(name)
                .write(slot, me);
        }
    }
    if elapsed_ms > 2 {
        let line = Line::new().text("~").number(index as i64).text(" ");
        line.number(elapsed_ms as i64).write(slot, me);
    }
    made.result
}

fn write_result(call: &Call, index: usize, result: i64) {
    let (slot, me) = (slot(), agent());
    let line = Line::new()
        .number(index as i64)
        .text(" ")
        .text(call.spec.name)
        .text(" = ");
    let error = i32::try_from(-result)
        .ok()
        .filter(|error| (1..4096).contains(error));
    let line = match (call.spec.answer, error) {
        (_, Some(error)) if call.spec.wrapper != Some(Width::Code) || call.site != Site::Libc => {
            match error_name(error) {
                Some(name) => line.text(name),
                None => line.number(result),
            }
        }
        (Answer::Any, _) => line.text("any"),
        (Answer::Fork, _) => line.text("child"),
        (Answer::Address, _) => match page_of(result as u64) {
            Some(place) => line
                .text("P")
                .number(place.page.into())
                .text("+")
                .hex(place.offset as u64),
            None => line.text("address"),
        },
        _ => match u32::try_from(result).ok().and_then(|id| names().of_id(id)) {
            Some(name) => line.text(name),
            None => line.number(result),
        },
    };
    line.write(slot, me);
}

/// The result of a call; registers if a site of the executor's made it.
struct Made {
    result: i64,
    registers: Option<sites::Registers>,
}

type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> i64;

fn make(call: &Call, arguments: &[u64; 6]) -> Made {
    let [a, b, c, d, e, f] = *arguments;
    let number = call.spec.number.unwrap_or(0);
    let by_site = |site| {
        // SAFETY: the generator keeps a case's calls to the case's own memory and processes.
        let registers = unsafe { sites::call(site, number, arguments) };
        Made {
            result: registers.result as i64,
            registers: Some(registers),
        }
    };
    let [inline, vector] = sites::constant_sites(number).unwrap_or([sites::register_site(); 2]);
    match call.site {
        Site::Register if call.spec.answer == Answer::Fork => by_site(fork_site(call, arguments)),
        Site::Register => by_site(sites::register_site()),
        Site::Inline => by_site(inline),
        Site::Vector => by_site(vector),
        Site::Syscall => {
            // SAFETY: as above.
            let result = unsafe { libc::syscall(number.into(), a, b, c, d, e, f) };
            with_errno(result, Width::Long)
        }
        Site::Libc => {
            let function = function(call.spec.name);
            // SAFETY: a function of libc's that takes six integers at most, and ignores the rest.
            let result =
                unsafe { std::mem::transmute::<usize, Function>(function)(a, b, c, d, e, f) };
            with_errno(result, call.spec.wrapper.unwrap_or(Width::Long))
        }
    }
}

fn with_errno(result: i64, width: Width) -> Made {
    let result = match width {
        Width::Long => result,
        Width::Int | Width::Code => i64::from(result as i32),
    };
    let error = || i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
    let result = if result == -1 && width != Width::Code {
        -error()
    } else {
        result
    };
    Made {
        result,
        registers: None,
    }
}

/// The site of a fork: where the child shares memory, it ends at once.
fn fork_site(call: &Call, arguments: &[u64; 6]) -> usize {
    const VM: u64 = 0x100;
    let shares = match call.spec.name {
        "vfork" => true,
        "clone" => arguments[0] & VM != 0,
        "clone3" => page_of(arguments[0]).is_some_and(|place| {
            // Unreadable places are refused.
            // SAFETY: pages before those of names are always there.
            place.page < Page::NAMES
                && unsafe { prepare::pointer(place).cast::<u64>().read_unaligned() } & VM != 0
        }),
        _ => false,
    };
    if shares {
        sites::clone_site()
    } else {
        sites::register_site()
    }
}

/// Before a call that doesn't return.
fn leave(call: &Call, me: u8) {
    Line::new()
        .text("leaves by ")
        .text(call.spec.name)
        .write(slot(), me);
    if (1..=LAST_THREAD).contains(&me) {
        BOARD.gone[usize::from(me)].store(true, SeqCst);
        count_as_done();
    }
}
