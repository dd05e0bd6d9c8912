//! The archive that a Linux kernel unpacks as its first root: cpio's format `newc`, which
//! `Documentation/driver-api/early-userspace/buffer-format.rst` of Linux describes.
//!
//! Rejected: the program `cpio`, one more package for thirty lines.

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const END: &str = "TRAILER!!!";

/// An archive under construction.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: usize,
}

impl Archive {
    /// Adds a folder. Its parent has to be there.
    pub(super) fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER, &[]);
    }

    /// Adds a file that may be executed.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    /// Returns the bytes of the whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(END, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let mut fields = [0; 13];
        fields[0] = self.entries; // the inode
        fields[1] = mode as usize;
        fields[4] = 1; // links
        fields[6] = content.len();
        fields[11] = path.len() + 1; // with its zero
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    /// Names and contents end at a multiple of four bytes.
    fn align(&mut self) {
        let length = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(length, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_headers_names_and_contents_in_their_places() {
        let mut archive = Archive::default();
        archive.folder("dev");
        archive.file("init", b"hello");
        let bytes = archive.finish();
        // 110 bytes of header, the name with its zero, up to a multiple of four.
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[6 + 8..6 + 16], b"000041ed");
        assert_eq!(&bytes[110..114], b"dev\0");
        let file = 116;
        assert_eq!(&bytes[file..file + 6], b"070701");
        assert_eq!(&bytes[file + 6 + 6 * 8..file + 6 + 7 * 8], b"00000005");
        assert_eq!(&bytes[file + 110..file + 115], b"init\0");
        assert_eq!(&bytes[file + 116..file + 121], b"hello");
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0"));
        assert_eq!(bytes.len() % 4, 0);
    }
}
