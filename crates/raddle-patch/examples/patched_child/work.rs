//! Everyday work on a patched glibc.

use std::arch::asm;
use std::ffi::{CStr, CString};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use raddle_patch::stub::{find_site, range};
use raddle_patch::{Linux, Number, Site, State, plan};

use super::{entries, patch_glibc};
use crate::common::{LIBC, image};

fn calls(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

/// Works with files, names, sockets, time, memory, processes.
pub(crate) fn everyday() {
    let begin = Instant::now();
    let reports = patch_glibc();
    println!(
        "patched libc and ld.so in {} us",
        begin.elapsed().as_micros()
    );
    for report in reports {
        assert_eq!(report.refused, 0, "{report:x?}");
        assert_eq!(report.sites, report.patched + report.untouched);
        println!("{report:?}");
    }
    let before = calls(&entries::PLAIN_CALLS) + calls(&entries::VECTOR_CALLS);
    assert_eq!(std::process::id() as libc::pid_t, own_pid_from_proc());
    files();
    sockets();
    let begin = Instant::now();
    std::thread::sleep(Duration::from_millis(20));
    assert!(begin.elapsed() >= Duration::from_millis(20));
    let addresses: Vec<_> = ("localhost", 80)
        .to_socket_addrs()
        .into_iter()
        .flatten()
        .collect();
    println!("localhost: {addresses:?}");
    let large: Vec<u8> = vec![7; 64 << 20];
    assert_eq!(
        large
            .iter()
            .step_by(4096)
            .filter(|&&byte| byte == 7)
            .count(),
        64 << 8
    );
    // SAFETY: `syscall` takes the number of a call without arguments.
    let parent = unsafe { libc::syscall(libc::SYS_getppid) };
    // SAFETY: it always succeeds.
    assert_eq!(parent, i64::from(unsafe { libc::getppid() }));
    let after = calls(&entries::PLAIN_CALLS) + calls(&entries::VECTOR_CALLS);
    assert!(after > before + 20, "{before} calls before, {after} after");
    assert!(calls(&entries::BEFORE_CALLS) > 0);
    assert_eq!(calls(&entries::BEFORE_CALLS), calls(&entries::AFTER_CALLS));
}

fn own_pid_from_proc() -> libc::pid_t {
    let link = std::fs::read_link("/proc/self").expect("/proc is mounted");
    link.to_string_lossy().parse().expect("a number")
}

fn files() {
    let path = std::env::temp_dir().join(format!("raddle-patch-test-{}", std::process::id()));
    std::fs::write(&path, b"first line\nsecond line\n").unwrap();
    let name = CString::new(path.to_str().unwrap()).unwrap();
    let mut line = [0 as libc::c_char; 64];
    // SAFETY: a stream of C's library, used as documented.
    unsafe {
        let stream = libc::fopen(name.as_ptr(), c"r".as_ptr());
        assert!(!stream.is_null());
        assert!(!libc::fgets(line.as_mut_ptr(), 64, stream).is_null());
        assert_eq!(CStr::from_ptr(line.as_ptr()), c"first line\n");
        assert_eq!(libc::fclose(stream), 0);
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 23);
    std::fs::remove_file(&path).unwrap();
    assert!(std::fs::File::open(&path).is_err());
}

fn sockets() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.write_all(b"across").unwrap();
    let mut received = [0; 6];
    far.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"across");
}

/// Makes threads (clone3), and children by fork, vfork, posix_spawn and system (clone with a
/// stack).
pub(crate) fn clones() {
    patch_glibc();
    let sum: u64 = (0..50)
        .map(|number| std::thread::spawn(move || number))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert_eq!(sum, 49 * 50 / 2);
    // SAFETY: `system` gets a string.
    assert_eq!(unsafe { libc::system(c"exit 3".as_ptr()) } >> 8, 3);
    let output = std::process::Command::new("/bin/echo")
        .arg("spawned")
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"spawned\n");
    assert_eq!(forked_status(), 7);
    assert_eq!(vforked_status(), 9);
    assert!(calls(&entries::BEFORE_CALLS) > 50);
}

fn forked_status() -> i32 {
    // SAFETY: the child only works and exits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let works = libc::getppid() > 0 && std::fs::metadata("/").is_ok();
            libc::_exit(if works { 7 } else { 1 });
        }
        wait(child)
    }
}

fn vforked_status() -> i32 {
    let arguments = [
        c"/bin/sh".as_ptr(),
        c"-c".as_ptr(),
        c"exit 9".as_ptr(),
        std::ptr::null(),
    ];
    // SAFETY: the child only executes a program.
    unsafe {
        #[expect(deprecated, reason = "that it works in a stub is what is tested")]
        let child = libc::vfork();
        if child == 0 {
            libc::execv(arguments[0], arguments.as_ptr());
            libc::_exit(1);
        }
        wait(child)
    }
}

/// Returns the exit status of a child.
///
/// # Safety
/// The child is the caller's to wait for.
unsafe fn wait(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the status is a live value.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status:x}");
    libc::WEXITSTATUS(status)
}

/// `getppid` in libc is `mov; syscall; ret`: all registers that a system call preserves, and the
/// red zone of the calling code, must be unchanged.
pub(crate) fn registers() {
    patch_glibc();
    let function = libc::getppid as *const () as usize;
    let begin = calls(&entries::PLAIN_CALLS);
    let mut held = [0u64; 12];
    let result: u64;
    // SAFETY: the call needs no alignment; all changed registers are restored or declared. rbx and
    // rbp are the compiler's own and saved here.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "mov rbx, 1", "mov rbp, 2", "mov rdx, 3", "mov rsi, 4", "mov r8, 6",
            "mov r9, 7", "mov r10, 8", "mov r12, 9", "mov r14, 11", "mov r15, 12",
            "call r13",
            "mov [rdi], rbx", "mov [rdi + 8], rbp", "mov [rdi + 16], rdx",
            "mov [rdi + 24], rsi", "mov [rdi + 32], r8", "mov [rdi + 40], r9",
            "mov [rdi + 48], r10", "mov [rdi + 56], r12", "mov [rdi + 64], r14",
            "mov [rdi + 72], r15",
            "pop rbp",
            "pop rbx",
            in("rdi") held.as_mut_ptr(),
            inout("r13") function => _,
            out("rax") result,
            out("rcx") _, out("rdx") _, out("rsi") _, out("r8") _, out("r9") _, out("r10") _,
            out("r11") _, out("r12") _, out("r14") _, out("r15") _,
        );
    }
    assert_eq!(result, u64::from(std::os::unix::process::parent_id()));
    assert_eq!(held, [1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 0, 0]);
    assert!(calls(&entries::PLAIN_CALLS) > begin, "no stub was used");
}

/// Checks that every patched window leads to a slot that remembers it.
pub(crate) fn sites() {
    let mut scratch = vec![Site::EMPTY; 1024];
    let libc_image = image(LIBC);
    let planned = plan(&libc_image, &[u64::MAX; 8], &mut scratch).unwrap();
    patch_glibc();
    let (first, end) = range();
    let mut checked = 0;
    for site in planned.sites() {
        if !matches!(site.state, State::Planned(_)) {
            continue;
        }
        // SAFETY: libc's text is readable.
        let jump = unsafe { std::slice::from_raw_parts(site.window_start() as *const u8, 5) };
        assert_eq!(jump[0], 0xe9);
        let by = i32::from_le_bytes(jump[1..].try_into().unwrap());
        let target = (site.window_start() + 5).wrapping_add_signed(by as isize);
        assert!((first..end).contains(&target));
        let found = find_site(target).expect("the slot is in use");
        assert_eq!(found.site, site.address);
        assert_eq!(found.window_start, site.window_start());
        assert_eq!(found.window_end, site.window_end());
        checked += 1;
    }
    assert!(checked > 400, "only {checked}");
    assert_eq!(find_site(end - 1), None);
    assert_eq!(find_site(first - 1), None);
    // Patched sites are not found again.
    let mut scratch = vec![Site::EMPTY; 1024];
    let again = plan(&libc_image, &[u64::MAX; 8], &mut scratch).unwrap();
    assert_eq!(again.planned().count(), 0);
    assert!(
        again
            .sites()
            .iter()
            .all(|s| s.number != Number::Constant(libc::SYS_getpid as u32))
    );
    super::patch(LIBC, &Linux).expect("nothing to do is no failure");
}
