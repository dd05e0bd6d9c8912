//! Programs that gain rights when they start. The kernel then sets AT_SECURE, and ld.so preloads
//! nothing from a path.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, getxattr, statvfs};

use super::elf::Obstacle;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o0010;

/// User and group ids, real and effective.
#[derive(Clone, Copy)]
struct Identity {
    user: u32,
    group: u32,
    effective_user: u32,
    effective_group: u32,
}

impl Identity {
    /// Returns this process's ids as the kernel has passed them at its start: a filter may refuse
    /// the calls that tell them.
    fn own() -> Identity {
        let passed = |kind| {
            // SAFETY: no pointer is passed.
            let id = unsafe { libc::getauxval(kind) };
            id as u32
        };
        Identity {
            user: passed(libc::AT_UID),
            group: passed(libc::AT_GID),
            effective_user: passed(libc::AT_EUID),
            effective_group: passed(libc::AT_EGID),
        }
    }
}

/// Returns the obstacle by the program's mode bits and capabilities, judged like the kernel.
pub(super) fn obstacle(file: &Path) -> Option<Obstacle> {
    let metadata = file.metadata().ok()?;
    let ignored = no_new_privileges() || mounted_nosuid(file);
    let identity = Identity::own();
    if changes_identity(&metadata, identity, ignored) {
        return Some(Obstacle::Setuid);
    }
    // Root's own rights are no gain: the kernel does not count them.
    let gains = !ignored && identity.user != 0 && has_capabilities(file);
    gains.then_some(Obstacle::Capabilities)
}

/// Returns whether real and effective ids will differ: AT_SECURE depends on that, not on the bit.
fn changes_identity(metadata: &Metadata, identity: Identity, bits_ignored: bool) -> bool {
    let set = |bits: u32| !bits_ignored && metadata.mode() & bits == bits;
    let effective_user = if set(SETUID) {
        metadata.uid()
    } else {
        identity.effective_user
    };
    let effective_group = if set(SETGID | GROUP_EXECUTE) {
        metadata.gid()
    } else {
        identity.effective_group
    };
    effective_user != identity.user || effective_group != identity.group
}

fn no_new_privileges() -> bool {
    rustix::thread::no_new_privs().unwrap_or(false)
}

fn mounted_nosuid(file: &Path) -> bool {
    statvfs(file).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::NOSUID))
}

fn has_capabilities(file: &Path) -> bool {
    // Capabilities are at most 24 bytes; a longer value is reported as ERANGE, and is none.
    let mut value = [0_u8; 64];
    getxattr(file, "security.capability", &mut value).is_ok_and(|length| length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn metadata(mode: u32) -> Metadata {
        let name = format!("raddle-privilege-{}-{mode:o}", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let metadata = file.metadata().unwrap();
        fs::remove_file(file).unwrap();
        metadata
    }

    /// Returns the identity of a user that is neither the file's owner nor in its group.
    fn stranger(metadata: &Metadata) -> Identity {
        let (user, group) = (metadata.uid() + 1, metadata.gid() + 1);
        Identity {
            user,
            group,
            effective_user: user,
            effective_group: group,
        }
    }

    #[test]
    fn a_setuid_bit_counts_only_if_it_changes_the_user() {
        let file = metadata(0o4755);
        let stranger = stranger(&file);
        assert!(changes_identity(&file, stranger, false));
        assert!(!changes_identity(&file, stranger, true));
        let owner = Identity {
            user: file.uid(),
            effective_user: file.uid(),
            ..stranger
        };
        assert!(!changes_identity(&file, owner, false));
    }

    #[test]
    fn a_setgid_bit_without_group_execution_is_about_locking() {
        let locking = metadata(0o2745);
        assert!(!changes_identity(&locking, stranger(&locking), false));
        let setgid = metadata(0o2755);
        assert!(changes_identity(&setgid, stranger(&setgid), false));
    }

    #[test]
    fn an_identity_that_already_differs_stays_so() {
        let file = metadata(0o755);
        let mut identity = stranger(&file);
        assert!(!changes_identity(&file, identity, false));
        identity.effective_user += 1;
        assert!(changes_identity(&file, identity, true));
    }
}
