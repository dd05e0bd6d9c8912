//! The names and lines of HotSpot's methods.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::compressed::line;
use super::offsets::Offsets;
use crate::java::print::NATIVE;
use crate::managed::{Language, ManagedFrame};
use crate::memory::Memory;

/// The most methods, and frames, that are kept, and about how many bytes of these.
const METHODS_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 64 << 20;
/// The most bytes of a name, and of a table of lines.
const NAME_BYTES_MAX: usize = 1024;
const LINES_BYTES_MAX: u64 = 1 << 16;
/// Flags of the file format, and of the method's constant part.
const IS_NATIVE: u32 = 0x100;
const HAS_LINES: u32 = 1;

/// Methods, each read once.
#[derive(Default)]
pub(super) struct Methods {
    methods: HashMap<u64, Option<Rc<Method>>>,
    frames: HashMap<(u64, Option<u32>), Rc<ManagedFrame>>,
    bytes: usize,
}

/// A method.
pub(super) struct Method {
    /// With its class.
    pub name: String,
    file: Option<String>,
    pub is_native: bool,
    /// Where its byte code is.
    pub code: Range<u64>,
    lines: Vec<u8>,
}

impl Methods {
    /// Returns true if no more should be kept.
    pub(super) fn are_full(&self) -> bool {
        let count = self.methods.len().max(self.frames.len());
        count >= METHODS_MAX || self.bytes > BYTES_MAX
    }

    pub(super) fn clear(&mut self) {
        *self = Methods::default();
    }

    /// Returns the method at an address; `None` if there is none.
    pub(super) fn find(
        &mut self,
        memory: &dyn Memory,
        offsets: &Offsets,
        address: u64,
    ) -> Option<Rc<Method>> {
        if let Some(method) = self.methods.get(&address) {
            return method.clone();
        }
        let method = Method::read(memory, offsets, address).map(Rc::new);
        self.bytes += method
            .as_ref()
            .map_or(0, |it| it.name.len() + it.lines.len());
        self.methods.insert(address, method.clone());
        method
    }

    /// Returns the frame of a method that executes this byte of its code.
    pub(super) fn frame(
        &mut self,
        memory: &dyn Memory,
        offsets: &Offsets,
        address: u64,
        byte: Option<u32>,
    ) -> Option<Rc<ManagedFrame>> {
        if let Some(frame) = self.frames.get(&(address, byte)) {
            return Some(frame.clone());
        }
        let method = self.find(memory, offsets, address)?;
        self.bytes += method.name.len() + method.file.as_ref().map_or(0, String::len);
        let lines = &method.lines;
        let frame = Rc::new(ManagedFrame {
            language: Language::Java,
            name: method.name.clone(),
            file: if method.is_native {
                Some(NATIVE.to_owned())
            } else {
                method.file.clone()
            },
            line: byte.and_then(|byte| line(lines, offsets.excludes_zero, byte)),
            notes: Vec::new(),
        });
        self.frames.insert((address, byte), frame.clone());
        Some(frame)
    }
}

impl Method {
    fn read(memory: &dyn Memory, offsets: &Offsets, address: u64) -> Option<Method> {
        let at = &offsets.method;
        if !address.is_multiple_of(8) {
            return None;
        }
        let constant = memory.word(address.checked_add(at.constant)?)?;
        let field = |offset: u64| constant.checked_add(offset);
        let short = |offset: u64| memory.half(field(offset)?).map(|it| it & 0xffff);
        let pool = memory.word(field(at.pool)?)?;
        let class = memory.word(pool.checked_add(at.holder)?)?;
        let symbol = |number: u32| {
            let slot = pool
                .checked_add(at.pool_bytes)?
                .checked_add(u64::from(number) * 8)?;
            symbol(memory, offsets, memory.word(slot)?)
        };
        let class_name = memory.word(class.checked_add(at.class_name)?)?;
        let class_name = external(&self::symbol(memory, offsets, class_name)?);
        let name = symbol(short(at.name)?)?;
        let file = match (at.file_in_pool, at.file_in_class) {
            (Some(at), _) => memory.half(pool.checked_add(at)?),
            (_, Some(at)) => memory.half(class.checked_add(at)?),
            _ => None,
        };
        let file = file.map(|it| it & 0xffff).filter(|&it| it != 0);
        let code = field(at.constant_bytes)?;
        let code = code..code.checked_add(short(at.code_bytes)?.into())?;
        let access = memory.half(address.checked_add(at.access)?)?;
        let mut lines = Vec::new();
        if memory.half(field(at.flags)?)? & HAS_LINES != 0 {
            let words = u64::from(memory.half(field(at.constant_words)?)?);
            let size = field(words * 8)?
                .saturating_sub(code.end)
                .min(LINES_BYTES_MAX);
            lines.resize(size as usize, 0);
            let got = memory.read(code.end, &mut lines);
            lines.truncate(got);
        }
        Some(Method {
            name: format!("{class_name}.{name}"),
            file: file.and_then(symbol),
            is_native: access & IS_NATIVE != 0,
            code,
            lines,
        })
    }
}

pub(super) fn symbol(memory: &dyn Memory, offsets: &Offsets, address: u64) -> Option<String> {
    /// Slots of older versions have a mark there.
    const MARKS: u64 = 1;
    let at = &offsets.method;
    let address = address & !MARKS;
    let length = memory.half(address.checked_add(at.symbol_length)?)? & 0xffff;
    let mut bytes = vec![0; (length as usize).min(NAME_BYTES_MAX)];
    memory.read_all(address.checked_add(at.symbol_body)?, &mut bytes)?;
    let is_name = !bytes.is_empty() && !bytes.contains(&0);
    is_name.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the name of a class as Java writes it. A hidden class has a plus and its address at the
/// end, which Java writes with a slash.
pub(super) fn external(name: &str) -> String {
    match name.rsplit_once('+') {
        Some((class, end)) if end.starts_with("0x") => {
            format!("{}/{end}", class.replace('/', "."))
        }
        _ => name.replace('/', "."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_classes_are_written_as_java_does() {
        assert_eq!(external("java/lang/Object"), "java.lang.Object");
        assert_eq!(
            external("a/B$$Lambda$14+0x0008c0"),
            "a.B$$Lambda$14/0x0008c0"
        );
        assert_eq!(external("a/B+C"), "a.B+C");
    }
}
