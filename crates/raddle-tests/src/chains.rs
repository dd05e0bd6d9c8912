//! Chains of Java's methods on the stacks of threads, as a program's text names them and as its
//! virtual machine says them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail, ensure};

/// A method and the line where it is, `NAME:LINE`; -1 without a line, -2 for a native method.
pub type Chain = Vec<String>;
/// The chains of threads, by their names.
pub type Chains = BTreeMap<String, Chain>;

/// Returns the chains that the comments of a program name: `// at: THREAD NUMBER METHOD` at the
/// line of a call, with numbers from 1 on, from the inside out.
///
/// # Errors
/// If a chain has a gap, or the same number twice.
pub fn written(source: &str) -> Result<Chains> {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let mut numbered: BTreeMap<String, BTreeMap<u32, String>> = BTreeMap::new();
    for (index, line) in fs::read_to_string(programs.join(source))?
        .lines()
        .enumerate()
    {
        let Some((_, mark)) = line.split_once("// at: ") else {
            continue;
        };
        let [thread, number, method] = mark.split(' ').collect::<Vec<_>>()[..] else {
            bail!("line {}: {line}", index + 1);
        };
        let chain = numbered.entry(thread.to_owned()).or_default();
        let before = chain.insert(number.parse()?, format!("{method}:{}", index + 1));
        ensure!(before.is_none(), "{thread} {number} twice");
    }
    let chain = |(thread, chain): (String, BTreeMap<u32, String>)| {
        let whole = chain.keys().copied().eq(1..=chain.len() as u32);
        ensure!(whole, "the chain of {thread} has a gap");
        Ok((thread, chain.into_values().collect()))
    };
    numbered.into_iter().map(chain).collect()
}

/// Returns the chains that the virtual machine has said: `stack THREAD`, perhaps with more words,
/// and then a method on each line.
#[must_use]
pub fn said(text: &str) -> Chains {
    let mut chains = Chains::new();
    let mut thread = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("stack ") {
            rest.split(' ').next().unwrap_or("").clone_into(&mut thread);
            chains.insert(thread.clone(), Chain::new());
        } else if let Some(chain) = chains.get_mut(&thread) {
            chain.extend((line != "ready").then(|| line.to_owned()));
        }
    }
    chains
}
