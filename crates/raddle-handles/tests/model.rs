//! Random sequences of calls against a naive table, and the errors of wrong use.
#![cfg(not(any(raddle_loom, raddle_shuttle)))]

use proptest::collection::vec;
use proptest::prelude::*;
use raddle_handles::{Handle, HandleError, InsertError, Kind, Owner, OwnerError, Table};
use std::collections::HashSet;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Call {
    NewObject,
    /// Forget one of the objects.
    DropObject(usize),
    Insert(usize, u8),
    Get(usize),
    With(usize),
    Kind(usize),
    Remove(usize),
    NewOwner,
    EndOwner(usize),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        2 => Just(Call::NewObject),
        1 => any::<usize>().prop_map(Call::DropObject),
        4 => (any::<usize>(), any::<u8>()).prop_map(|(at, kind)| Call::Insert(at, kind)),
        4 => any::<usize>().prop_map(Call::Get),
        2 => any::<usize>().prop_map(Call::With),
        1 => any::<usize>().prop_map(Call::Kind),
        3 => any::<usize>().prop_map(Call::Remove),
        1 => Just(Call::NewOwner),
        1 => any::<usize>().prop_map(Call::EndOwner),
    ];
    vec(call, 0..300)
}

/// The model's knowledge of a handle.
struct Entry {
    handle: Handle<u32>,
    object: u32,
    kind: Kind,
    owner: Owner,
    removed: bool,
    /// True if a lookup has found that the handle is expired.
    seen_expired: bool,
}

#[derive(Default)]
struct Model {
    table: Table<u32>,
    objects: Vec<Option<Arc<u32>>>,
    entries: Vec<Entry>,
    owners: Vec<(Owner, bool)>,
    issued: HashSet<u64>,
}

impl Model {
    /// Returns whether the model or a strong handle keeps the object.
    fn lives(&self, object: u32) -> bool {
        let keeps =
            |entry: &Entry| entry.object == object && entry.kind != Kind::Weak && !entry.removed;
        self.objects[object as usize].is_some() || self.entries.iter().any(keeps)
    }

    fn expected(&self, entry: &Entry) -> Result<u32, HandleError> {
        let ended = |owner: Owner| self.owners.contains(&(owner, false));
        if entry.removed {
            Err(HandleError::Stale)
        } else if entry.kind == Kind::Weak && (ended(entry.owner) || !self.lives(entry.object)) {
            Err(HandleError::Expired)
        } else {
            Ok(entry.object)
        }
    }

    fn call(&mut self, call: Call) {
        match call {
            Call::NewObject => {
                let object = Arc::new(self.objects.len() as u32);
                self.objects.push(Some(object));
            }
            Call::DropObject(at) if !self.objects.is_empty() => {
                let at = at % self.objects.len();
                self.objects[at] = None;
            }
            Call::Insert(at, kind) if !self.objects.is_empty() => self.insert(at, kind),
            Call::NewOwner => {
                let owner = self.table.add_owner().unwrap();
                assert!(self.owners.iter().all(|(other, _)| *other != owner));
                self.owners.push((owner, true));
            }
            Call::EndOwner(at) if !self.owners.is_empty() => {
                let at = at % self.owners.len();
                let (owner, alive) = &mut self.owners[at];
                let expected = if *alive {
                    Ok(())
                } else {
                    Err(OwnerError::Expired)
                };
                *alive = false;
                assert_eq!(self.table.end_owner(*owner), expected);
            }
            Call::Get(at) | Call::With(at) | Call::Kind(at) | Call::Remove(at)
                if !self.entries.is_empty() =>
            {
                self.use_handle(at % self.entries.len(), &call);
            }
            _ => {}
        }
    }

    fn insert(&mut self, at: usize, kind: u8) {
        let at = at % self.objects.len();
        let Some(object) = self.objects[at].clone() else {
            return;
        };
        let (owner, alive) = match kind % 4 {
            3 => *self
                .owners
                .get(kind as usize / 4 % 8)
                .unwrap_or(&(Owner::NOBODY, true)),
            _ => (Owner::NOBODY, true),
        };
        let (kind, result) = match kind % 4 {
            0 => (Kind::Normal, self.table.insert_arc(object)),
            // SAFETY (of the pin): a u32 doesn't care where it is.
            1 => (
                Kind::Pinned,
                self.table.insert_pinned(std::pin::Pin::new(object)),
            ),
            _ => (Kind::Weak, self.table.insert_weak(&object, owner)),
        };
        if !alive {
            return assert_eq!(result, Err(InsertError::OwnerExpired));
        }
        let handle = result.unwrap();
        assert!(self.issued.insert(handle.to_bits()), "a handle came back");
        self.entries.push(Entry {
            handle,
            object: at as u32,
            kind,
            owner,
            removed: false,
            seen_expired: false,
        });
    }

    fn use_handle(&mut self, at: usize, call: &Call) {
        let entry = &self.entries[at];
        let expected = self.expected(entry);
        let handle = entry.handle;
        match call {
            Call::Get(_) => {
                let value = match entry.kind {
                    Kind::Pinned => self.table.get_pinned(handle).map(|value| *value),
                    _ => self.table.get(handle).map(|value| *value),
                };
                assert_eq!(value, expected);
                self.entries[at].seen_expired |= expected == Err(HandleError::Expired);
            }
            Call::With(_) => {
                assert_eq!(self.table.with(handle, |value| *value), expected);
                self.entries[at].seen_expired |= expected == Err(HandleError::Expired);
            }
            Call::Kind(_) => match self.table.kind(handle) {
                // Only a lookup notices a value's end.
                Ok(kind) => assert!(kind == entry.kind && !entry.removed && !entry.seen_expired),
                Err(error) => assert_eq!(Err(error), expected),
            },
            _ => {
                let ok = if entry.removed {
                    Err(HandleError::Stale)
                } else {
                    Ok(())
                };
                assert_eq!(self.table.remove(handle), ok);
                self.entries[at].removed = true;
            }
        }
    }

    fn check_end(self) {
        let live = self.entries.iter().filter(|entry| !entry.removed).count();
        assert_eq!(self.table.count(), live);
        for entry in &self.entries {
            let value = self.table.with(entry.handle, |value| *value);
            assert_eq!(value, self.expected(entry));
        }
        let objects: Vec<_> = self.objects.into_iter().flatten().collect();
        drop(self.table);
        for object in &objects {
            assert_eq!(
                Arc::strong_count(object),
                1,
                "the table's parts are dropped"
            );
            assert_eq!(Arc::weak_count(object), 0, "the table's parts are dropped");
        }
    }
}

proptest! {
    #[test]
    fn a_table_does_what_a_naive_one_does(calls in calls()) {
        let mut model = Model::default();
        calls.into_iter().for_each(|call| model.call(call));
        model.check_end();
    }

    #[test]
    fn any_number_is_a_safe_handle(bits in any::<u64>(), near in any::<u8>()) {
        let table = Table::new();
        let mut good: Vec<_> = (0..5).map(|value| table.insert(value).unwrap()).collect();
        table.remove(good.pop().unwrap()).unwrap();
        let near = good[0].to_bits() ^ (1 << (near % 64));
        for handle in [bits, near].into_iter().filter_map(Handle::from_bits) {
            let expected = match good.iter().position(|other| *other == handle) {
                Some(value) => Ok(value),
                None => Err(HandleError::Stale),
            };
            prop_assert_eq!(table.with(handle, |value| *value), expected);
        }
    }
}
