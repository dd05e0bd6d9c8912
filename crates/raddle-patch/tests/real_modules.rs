//! Plans the libc and ld.so that run this test.

mod common;

use std::time::Duration;

use common::{LD_SO, LIBC, image};
use raddle_patch::{EntryKind, Number, Site, State, plan};

const ALL: [u64; 8] = [u64::MAX; 8];

fn plan_all(name: &str) -> Vec<Site> {
    let mut scratch = vec![Site::EMPTY; 2048];
    let plan = plan(&image(name), &ALL, &mut scratch).expect(name);
    plan.sites().to_vec()
}

fn code_at(address: usize, len: usize) -> &'static [u8] {
    // SAFETY: tests pass only text of loaded modules, which doesn't change.
    unsafe { std::slice::from_raw_parts(address as *const u8, len) }
}

#[test]
fn nearly_every_site_of_glibc_can_be_patched() {
    for (name, least) in [(LIBC, 400), (LD_SO, 30)] {
        let sites = plan_all(name);
        let code: Vec<_> = sites.iter().filter(|s| s.state != State::NotCode).collect();
        let refused: Vec<_> = code
            .iter()
            .filter(|s| matches!(s.state, State::Refused(_)))
            .collect();
        println!("{name}: {} sites, {} refused", code.len(), refused.len());
        assert!(code.len() >= least, "{name} has only {} sites", code.len());
        assert!(refused.len() * 100 <= code.len(), "{name}: {refused:x?}");
    }
}

#[test]
fn windows_are_long_enough_and_do_not_overlap() {
    for name in [LIBC, LD_SO] {
        let mut floor = 0;
        for site in plan_all(name) {
            if let State::Planned(_) = site.state {
                assert!(site.window_start() >= floor, "{site:x?}");
                assert!(site.window_end() - site.window_start() >= 5, "{site:x?}");
                assert_eq!(code_at(site.address, 2), [0x0f, 0x05]);
                floor = site.window_end();
            }
        }
    }
}

#[test]
fn a_number_agrees_with_the_bytes_before_its_site() {
    let mut adjacent = 0;
    for name in [LIBC, LD_SO] {
        for site in plan_all(name) {
            let before = code_at(site.address - 5, 5);
            // `mov $nr, %eax` right before the site. These five bytes could be part of a longer
            // instruction, but glibc has none there.
            if before[0] == 0xb8 && site.before == 5 {
                let expected = u32::from_le_bytes(before[1..].try_into().unwrap());
                assert_eq!(site.number, Number::Constant(expected), "{site:x?}");
                adjacent += 1;
            }
        }
    }
    assert!(
        adjacent > 300,
        "only {adjacent} sites have their number next to them"
    );
}

#[test]
fn known_functions_have_their_numbers() {
    let sites = plan_all(LIBC);
    let number_in = |function: usize| {
        let near = function..function + 32;
        let site = sites
            .iter()
            .find(|s| near.contains(&s.address) && s.state != State::NotCode);
        site.map(|s| s.number)
    };
    let known = [
        (libc::getpid as *const () as usize, libc::SYS_getpid),
        (libc::getppid as *const () as usize, libc::SYS_getppid),
        (libc::close as *const () as usize, libc::SYS_close),
        (libc::mprotect as *const () as usize, libc::SYS_mprotect),
        (libc::kill as *const () as usize, libc::SYS_kill),
        (libc::dup as *const () as usize, libc::SYS_dup),
        (libc::read as *const () as usize, libc::SYS_read),
    ];
    for (function, number) in known {
        if let Some(found) = number_in(function) {
            assert_eq!(found, Number::Constant(number as u32));
        }
    }
    let getpid = number_in(libc::getpid as *const () as usize);
    assert_eq!(getpid, Some(Number::Constant(libc::SYS_getpid as u32)));
}

#[test]
fn the_signal_return_is_never_patched() {
    let sites = plan_all(LIBC);
    let of_return: Vec<_> = sites
        .iter()
        .filter(|s| s.number == Number::Constant(libc::SYS_rt_sigreturn as u32))
        .collect();
    assert!(!of_return.is_empty());
    assert!(of_return.iter().all(|s| s.state == State::Untouched));
}

#[test]
fn clones_and_unknown_numbers_call_the_clone_entries() {
    let clones = [libc::SYS_clone, libc::SYS_vfork, libc::SYS_clone3].map(|nr| nr as u32);
    let mut seen = 0;
    for site in plan_all(LIBC) {
        let State::Planned(kind) = site.state else {
            continue;
        };
        let expected = match site.number {
            Number::AtRunTime => true,
            Number::Constant(number) => clones.contains(&number),
        };
        assert_eq!(kind.is_pair(), expected, "{site:x?}");
        seen += usize::from(expected);
    }
    assert!(seen >= 4, "only {seen}");
}

#[test]
fn libcs_call_of_any_number_saves_no_vectors() {
    let address = libc::syscall as *const () as usize;
    let sites = plan_all(LIBC);
    let site = sites
        .iter()
        .find(|site| (address..address + 64).contains(&site.address))
        .unwrap();
    assert_eq!(site.number, Number::AtRunTime);
    assert_eq!(site.state, State::Planned(EntryKind::PlainClone));
}

#[test]
fn some_sites_need_their_vector_registers_and_most_do_not() {
    let count = |kind| {
        plan_all(LIBC)
            .iter()
            .filter(|s| s.state == State::Planned(kind))
            .count()
    };
    let [plain, narrow, vector] =
        [EntryKind::Plain, EntryKind::Narrow, EntryKind::Vector].map(count);
    println!("{plain} plain, {narrow} narrow, {vector} vector");
    // The functions of libc that use wide registers make no system calls.
    assert!(plain > narrow && narrow > vector);
}

#[test]
fn unwanted_numbers_are_left_untouched() {
    let mut wanted = [0u64; 8];
    wanted[0] = 1 << libc::SYS_close;
    let mut scratch = vec![Site::EMPTY; 2048];
    let libc_image = image(LIBC);
    let plan = plan(&libc_image, &wanted, &mut scratch).unwrap();
    let close = Number::Constant(libc::SYS_close as u32);
    for (site, _) in plan.planned() {
        assert!(
            site.number == close || site.number == Number::AtRunTime,
            "{site:x?}"
        );
    }
    assert!(plan.planned().any(|(site, _)| site.number == close));
    assert!(plan.sites().iter().any(|s| s.state == State::Untouched));
}

/// Returns the processor time of this thread, because the machine may be busy.
fn thread_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock exists, and the pointer is to a live value.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Prints the time, and fails only on a gross loss, because the debug profile is slow.
#[test]
fn planning_glibc_takes_milliseconds() {
    let images = [image(LIBC), image(LD_SO)];
    let mut scratch = vec![Site::EMPTY; 2048];
    let run = || {
        let begin = thread_time();
        for image in &images {
            plan(image, &ALL, &mut scratch).unwrap();
        }
        thread_time() - begin
    };
    let best = std::iter::repeat_with(run).take(20).min().unwrap();
    println!("planning libc and ld.so: {} us", best.as_micros());
    assert!(best < Duration::from_millis(500));
}
