//! For calls about memory: nothing outside the case's own pages may change.

use crate::case::{Page, Place, STACK_PAGES, STACK_WINDOW, Value};
use crate::generate::Maker;

/// The most pages that a range has: as many as there are behind every place that is chosen.
const RANGE_PAGES: i32 = 4;

pub fn changing_place(maker: &mut Maker) -> Value {
    if maker.random.chance(maker.hostility) {
        let none = [0xffff_8000_0000_0000, u64::MAX - 4095, 0x8000_0000_0000];
        return Value::Int(*maker.random.pick(&none));
    }
    let page = maker
        .random
        .below(u64::from(Page::CHANGING_PAGES) - RANGE_PAGES as u64);
    let offset = *maker.random.pick(&[0, 0, 0, 0, 0, 0, 1, 0x800]);
    Value::Place(Place::new(Page::CHANGING + page as u8, offset))
}

/// A page of a thread's stack that the thread is far from using.
pub fn stack_place(maker: &mut Maker) -> Value {
    let agent = maker.random.between(1, maker.case.threads.into()) as u8;
    let page = maker.random.below(STACK_PAGES - RANGE_PAGES as u64) as i32;
    Value::Stack(agent, STACK_WINDOW + page * 4096)
}

pub fn changing_bytes(maker: &mut Maker) -> Value {
    if maker.random.chance(maker.hostility) {
        return Value::Int(
            *maker
                .random
                .pick(&[1 << 63, u64::MAX, u64::MAX - 4095, 1 << 48]),
        );
    }
    let pages = maker.random.below(RANGE_PAGES as u64) * 4096;
    let rest = *maker.random.pick(&[0, 0, 0, 1, 4095]);
    Value::Int(pages + rest)
}

/// Keeps fixed mappings within the case's pages; others may be anywhere.
pub fn fit_mapping(maker: &mut Maker, arguments: &mut [Value]) {
    const ANONYMOUS: u64 = 0x20;
    const PRIVATE: u64 = 2;
    const FIXED: u64 = 0x10;
    const GROWS_DOWN: u64 = 0x100;
    if maker.random.chance(70)
        && let Value::Int(flags) = arguments[3]
    {
        let fixed = *maker.random.pick(&[FIXED, FIXED, 0]);
        arguments[3] = Value::Int(flags & !1 | ANONYMOUS | PRIVATE | fixed);
    }
    if let Value::Int(flags) = arguments[3]
        && flags & GROWS_DOWN != 0
    {
        arguments[3] = Value::Int(flags & !GROWS_DOWN);
    }
    if maker.random.chance(30) {
        arguments[0] = Value::Int(0);
        if let Value::Int(flags) = arguments[3] {
            arguments[3] = Value::Int(flags & !FIXED);
        }
    }
}

/// Keeps the target of a move within the case's pages.
pub fn fit_remapping(maker: &mut Maker, arguments: &mut [Value]) {
    const FIXED: u64 = 2;
    if let Value::Int(flags) = arguments[3]
        && flags & FIXED == 0
        && maker.random.chance(50)
    {
        arguments[4] = Value::Int(0);
    }
}
