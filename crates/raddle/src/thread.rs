//! Green threads in the shape of [`std::thread`].

use std::io;
pub use std::thread::{JoinHandle, yield_now};

/// How a thread is made.
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
}

impl Builder {
    /// A thread without a name and with the default stack.
    pub fn new() -> Self {
        Self::default()
    }

    /// The thread's name; the kernel keeps its first 15 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The stack's least size in bytes.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Starts a thread that runs `f`.
    ///
    /// # Errors
    /// EAGAIN if the system or `--max-threads` allows no other thread.
    pub fn spawn<T: Send + 'static>(
        self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let mut builder = std::thread::Builder::new();
        if let Some(name) = self.name {
            builder = builder.name(name);
        }
        if let Some(bytes) = self.stack_size {
            builder = builder.stack_size(bytes);
        }
        builder.spawn(f)
    }
}

/// Starts a thread that runs `f`.
///
/// # Panics
/// If no thread can be made; [`Builder::spawn`] says so instead.
pub fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(f).expect("a thread can be made")
}
