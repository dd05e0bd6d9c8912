//! The programs of a guest: the first program of the initial root, and the script that mounts the
//! rest, runs the tests and reports.
//!
//! The console is the first serial port. The report is the second: lines of the test harness, and
//! lines of the script, which begin with a mark. Failed cases run a second time at the end of their
//! file's cases. After each file the script kills the remaining processes of it.

use std::fmt::Write as _;

use super::cpio::Archive;
use super::executables::Executable;
use super::modules::Module;

/// The beginning of a line of the script in the report, after `MARK`.
pub(super) const MARK: char = '@';

/// Where busybox is on the guest's disk.
pub(super) const BUSYBOX: &str = "/vm/busybox";
/// The script on the guest's disk.
pub(super) const SCRIPT: &str = "/vm/start";

/// Loads the modules, mounts the disk and goes on there.
const INIT: &str = "\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
for module in /modules/*; do $b insmod $module; done
tries=0
until [ -b /dev/vda ] || [ $tries = 100 ]; do $b sleep 0.1; tries=$((tries + 1)); done
$b mount -t ext4 /dev/vda /disk || echo 'the disk is not there'
exec $b switch_root /disk /vm/busybox sh /vm/start
";

/// The mounts of a system that systemd started.
const MOUNTS: &str = "\
/vm/busybox mkdir -p /vm/bin
/vm/busybox --install -s /vm/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o ptmxmode=0666,mode=620 pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t mqueue queues /dev/mqueue
mount -t tmpfs run /run
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
ln -sf /proc/self/fd /dev/fd
hostname guest
ip link set lo up
ulimit -Hn 524288
ulimit -n 1024
stty -F /dev/ttyS1 raw -echo
exec >/dev/ttyS1
";

/// `run FILE LIMIT EXECUTABLE CASE...`: the cases of a file, and once more those that fail.
const RUN: &str = "\
run() {
    file=$1 limit=$2 program=$3
    shift 3
    echo \"@file $file\"
    timeout -s KILL $limit $program --test-threads=1 --color never --exact \"$@\" \\
        </dev/null 2>/dev/console | tee /run/log
    kill -9 -1
    failed=$(sed -n 's/^test \\(.*\\) \\.\\.\\. FAILED$/\\1/p' /run/log)
    if [ -n \"$failed\" ]; then
        echo \"@again $file\"
        timeout -s KILL $limit $program --test-threads=1 --color never --exact $failed \\
            </dev/null 2>/dev/console
        kill -9 -1
    fi
    echo \"@end $(cut -d ' ' -f 1 /proc/uptime)\"
}
";

/// The initial root: busybox, the modules in their order, and the first program.
pub(super) fn initial_root(busybox: &[u8], modules: &[Module]) -> Vec<u8> {
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "disk", "modules"] {
        archive.folder(folder);
    }
    archive.file("bin/busybox", busybox);
    for (index, module) in modules.iter().enumerate() {
        let path = format!("modules/{index:02}-{}.ko", module.name);
        archive.file(&path, &module.content);
    }
    archive.file("init", INIT.as_bytes());
    archive.finish()
}

/// The script of one machine. `path` is the search path that the tests were built with.
pub(super) fn script(
    path: &str,
    raddle: &str,
    case_limit_s: u64,
    executables: &[&Executable<'_>],
) -> String {
    let mut text = format!("export PATH={}:/vm/bin HOME=/root CI=true\n", quoted(path));
    text += MOUNTS;
    let _ = writeln!(text, "export RADDLE_TEST_TIMEOUT_S={case_limit_s}");
    let _ = writeln!(text, "export RADDLE_BIN={}", quoted(raddle));
    text += RUN;
    text += "echo \"@kernel $(uname -r) $(nproc)\"\n";
    text += &says(executables);
    text += "$RADDLE_BIN doctor 2>&1 | sed 's/^/@doctor /'\n";
    for executable in executables {
        let test = executable.test;
        let program = quoted(&executable.path.to_string_lossy());
        let _ = write!(text, "run {} {} {program}", test.file, test.limit_s);
        for case in &executable.cases {
            let _ = write!(text, " {case}");
        }
        text.push('\n');
    }
    // The emulator ends where a machine would restart.
    text + "echo @done\nsync\nreboot -f\n"
}

/// Reports what `raddle run -v` says. It says that with a program's first thread; the test harness
/// has one for a case beside others, and such a case only looks for its program here.
fn says(executables: &[&Executable<'_>]) -> String {
    let Some(executable) = executables.first() else {
        return String::new();
    };
    let program = quoted(&executable.path.to_string_lossy());
    let case = executable.cases.first().map_or("", String::as_str);
    format!(
        "RADDLE_TESTS=build $RADDLE_BIN run -v -- {program} --test-threads=2 \\\n    \
         --exact {case} 2>&1 >/dev/null | sed 's/^/@says /'\n"
    )
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_a_quote_stays_one_word() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("a'b"), "'a'\\''b'");
    }

    #[test]
    fn modules_are_loaded_in_the_order_of_their_dependencies() {
        let module = |name: &str| Module {
            name: name.to_owned(),
            content: Vec::new(),
        };
        let root = initial_root(b"", &[module("virtio"), module("block")]);
        let text = String::from_utf8_lossy(&root);
        assert!(text.contains("modules/00-virtio.ko"));
        assert!(text.contains("modules/01-block.ko"));
    }
}
