//! Names of code, read from files by a child process.
//!
//! A file may be damaged or made to do harm: its debug information may need gigabytes, minutes, or
//! end the process that reads it. So the reader is a child, the same executable, with limits of
//! memory and CPU time, and each answer has a deadline. What the child does can't hurt the dump.
//!
//! Protocol, over the child's standard input, a socket:
//!
//! 1. The tool sends a [`Question`]: a file, and addresses in it. A message is a length of four
//!    bytes, little-endian, and JSON.
//! 2. The child answers with the functions at each address, in the same order.
//! 3. If the child dies or is late, it is killed. The next question goes to a new child.
//! 4. The child ends at the end of its input.
//!
//! Rejected: to catch panics in this process. A panic aborts the release's tool, and a shortage of
//! memory and a loop are no panics.

mod reader;
mod server;
mod stubs;
pub(crate) mod table;

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(crate) use reader::Reader;
pub(crate) use server::demangled;
pub use server::serve_names;

/// The argument with which the tool starts itself as a reader of names.
pub const SERVE_NAMES: &str = "serve-names";

/// The most bytes of a message.
const MESSAGE_MAX: usize = 64 << 20;

/// A function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    pub name: String,
    /// The source file and the line that is executed, or calls the function before this one.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// True if it has no frame of its own.
    pub is_inlined: bool,
}

/// Where names come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Source {
    /// Debug information and symbol tables.
    Everything,
    /// The file's own symbol tables.
    SymbolTable,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    pub file: PathBuf,
    /// The build-id of the file that is mapped.
    pub build_id: Option<Vec<u8>>,
    /// True if another file has the path by now, or none.
    pub is_deleted: bool,
    pub source: Source,
    /// Addresses in the file's own terms.
    pub offsets: Vec<u64>,
}

/// The functions at each address of the question, the innermost inlined one first. All are empty if
/// the path leads to another file than the mapped one.
pub(crate) type Answer = Vec<Vec<Function>>;

fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    if length > MESSAGE_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    to.write_all(&bytes)
}

fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // An announced length allocates nothing.
    let mut bytes = Vec::new();
    if from.take(length as u64).read_to_end(&mut bytes)? != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_a_length_and_a_limit() {
        let mut bytes = Vec::new();
        send(&mut bytes, &vec![1u64, 2]).unwrap();
        assert_eq!(receive::<Vec<u64>>(&mut &bytes[..]).unwrap(), [1, 2]);
        assert!(receive::<Vec<u64>>(&mut &bytes[..bytes.len() - 1]).is_err());
        bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(receive::<Vec<u64>>(&mut &bytes[..]).is_err());
    }
}
