//! The policy that the environment asks for: `RADDLE_POLICY` and `RADDLE_SHARE`.
//!
//! A plug-in is preloaded like this library, so ld.so has mapped and relocated it before anything
//! here runs; its table is looked up in its dynamic symbols. One that isn't usable is said to be,
//! and the policy is fifo.

use crate::environment::Environment;
use crate::original::{self, LinkMap};
use core::ffi::CStr;
use raddle_engine::PROCESS;
use raddle_inspect::settings;
use raddle_kernel::rules::shares;
use raddle_sched::policies::{Kind, Table};

/// What is wrong with the variables.
pub(crate) enum Wrong {
    Policy,
    Share,
}

/// Chooses the policy and the shares. Before the engine is initialised.
pub(crate) fn choose(environment: &Environment) -> Result<(), Wrong> {
    let rules = environment
        .get(settings::SHARE)
        .filter(|rules| !rules.is_empty());
    let shares = match rules {
        Some(rules) => Some((rules, shares::parse(rules).ok_or(Wrong::Share)?)),
        None => None,
    };
    let weights = shares.as_ref().and_then(|(_, shares)| shares.weights);
    let kind = match environment.get(settings::POLICY) {
        None | Some(b"") if weights.is_some() => Kind::Fair,
        None | Some(b"") => Kind::Fifo,
        Some(name) if name.contains(&b'/') => Kind::Fifo, // until its plug-in is found
        Some(name) => Kind::from_name(name).ok_or(Wrong::Policy)?,
    };
    match weights {
        Some(weights) if kind == Kind::Fair => PROCESS.first().queue.set_shares(&weights),
        Some(_) => return Err(Wrong::Share),
        None => {}
    }
    if let Some((rules, shares)) = &shares {
        shares::set_rules(rules, shares);
    }
    PROCESS.first().choose_policy(kind);
    Ok(())
}

/// Finds the plug-in, if one is asked for. After the engine was initialised.
pub(crate) fn plug_in(environment: &Environment, map: &'static LinkMap) {
    let path = environment.get(settings::POLICY).unwrap_or_default();
    if !path.contains(&b'/') {
        return;
    }
    match table(path, map) {
        Some(table) => PROCESS.first().choose_plugin(table),
        None => raddle_sys::write_stderr(
            b"raddle: the policy file has no raddle_policy of this version; fifo instead\n",
        ),
    }
}

fn table(path: &[u8], map: &'static LinkMap) -> Option<&'static Table> {
    let mut next = Some(map);
    while let Some(object) = next {
        // SAFETY: strings of ld.so's.
        let is_it =
            !object.name.is_null() && unsafe { CStr::from_ptr(object.name) }.to_bytes() == path;
        if is_it {
            // SAFETY: an entry of ld.so's list; preloaded libraries stay, and the symbol is a table
            // by the plug-in's own word.
            let table = unsafe {
                let address = original::symbol(object, c"raddle_policy");
                core::ptr::with_exposed_provenance::<Table>(address).as_ref()
            };
            return table.filter(|table| table.is_usable());
        }
        // SAFETY: the list is null-terminated.
        next = unsafe { object.next.as_ref() };
    }
    None
}
