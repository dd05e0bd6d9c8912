//! The locks of a JVM as edges of the graph. A print of its threads is made at a safepoint, so that
//! all of it holds at one moment.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::{Edge, Object, ObjectKind, Owner};
use crate::capture::{Captured, Stacks};
use crate::java::{Java, JavaThread};

/// Returns the waits of Java threads for locks with an owner.
pub fn java_edges(java: &Java) -> Vec<Edge> {
    let mut owners: HashMap<u64, Option<u32>> = HashMap::new();
    for thread in java.threads().values() {
        for lock in &thread.owns {
            match owners.entry(lock.address) {
                Entry::Vacant(entry) => {
                    entry.insert(Some(thread.tid));
                }
                // A lock with two owners has none that is known.
                Entry::Occupied(mut entry) => {
                    if *entry.get() != Some(thread.tid) {
                        entry.insert(None);
                    }
                }
            }
        }
    }
    let edge = |thread: &JavaThread| {
        let lock = thread.waits_for.as_ref()?;
        let owner = owners.get(&lock.address).copied()??;
        let is_timed = |state: &String| state.starts_with("TIMED_");
        Some(Edge {
            waiter: thread.tid,
            switches: 0,
            object: Object {
                kind: ObjectKind::Other(format!("Java lock {}", lock.class)),
                address: lock.address,
                note: None,
                is_timed: thread.state.as_ref().is_some_and(is_timed),
            },
            owner: Owner::Thread(owner),
        })
    };
    let mut edges: Vec<Edge> = java.threads().values().filter_map(edge).collect();
    edges.sort_unstable_by_key(|edge| edge.waiter);
    edges
}

/// Returns the waits of Java threads for monitors, from memory: those of which no edge is in
/// `known`.
pub fn monitor_edges(stacks: &Stacks, known: &[Edge]) -> Vec<Edge> {
    let known: HashSet<u32> = known.iter().map(|edge| edge.waiter).collect();
    let edge = |captured: &Captured| {
        let stack = stacks.stacks.get(captured.stack? as usize)?;
        let monitor = stacks.monitors.get(&stack.monitor)?;
        let class = monitor.class.as_ref().map(|class| format!("of a {class}"));
        Some(Edge {
            waiter: captured.record.tid,
            switches: captured.record.switches,
            object: Object {
                kind: ObjectKind::Other("Java monitor".into()),
                address: stack.monitor,
                note: class,
                is_timed: false,
            },
            owner: monitor.owner.map_or(Owner::Unknown, Owner::Thread),
        })
    };
    let threads = stacks.green().filter(|it| !known.contains(&it.record.tid));
    threads.filter_map(edge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<Edge> {
        java_edges(&Java::of_print(text))
    }

    const PRINT: &str = r#"
2026-11-25 23:00:00
Full thread dump OpenJDK 64-Bit Server VM:

"first" #10 prio=5 os_prio=0 cpu=1.0ms tid=0x00007f0001 nid=0x400001 waiting for monitor entry
   java.lang.Thread.State: BLOCKED (on object monitor)
	at Deadlocks.two(Deadlocks.java:20)
	- waiting to lock <0x000000062b1c0e48> (a java.lang.Object)
	- locked <0x000000062b1c0e38> (a java.lang.Object)

   Locked ownable synchronizers:
	- <0x000000062b1c0f00> (a java.util.concurrent.locks.ReentrantLock$NonfairSync)

"second" #11 prio=5 os_prio=0 tid=0x00007f0002 nid=4194306 waiting on condition
   java.lang.Thread.State: WAITING (parking)
	- parking to wait for  <0x000000062b1c0f00> (a java.util.concurrent.Lock$Sync)
	- locked <0x000000062b1c0e48> (a java.lang.Object)

   Locked ownable synchronizers:
	- None

"waits" #12 nid=0x400003 in Object.wait()
   java.lang.Thread.State: WAITING (on object monitor)
	- waiting on <0x000000062b1c0e99> (a Queue)
	- locked <0x000000062b1c0e99> (a Queue)

"wants" #13 nid=0x400004 waiting for monitor entry
	- waiting to lock <0x000000062b1c0e99> (a Queue)

"polite" #14 nid=0x400005 waiting on condition
   java.lang.Thread.State: TIMED_WAITING (parking)
	- parking to wait for  <0x000000062b1c0f00> (a X)

"VM Thread" os_prio=0 tid=0x00007f3 nid=0x400006 runnable
"#;

    #[test]
    fn a_print_gives_the_edges_of_its_threads() {
        let edges = parse(PRINT);
        let facts: Vec<_> = edges
            .iter()
            .map(|edge| (edge.waiter, edge.owner, edge.object.is_timed))
            .collect();
        let first = Owner::Thread(0x40_0001);
        assert_eq!(
            facts,
            [
                (0x40_0001, Owner::Thread(0x40_0002), false),
                (0x40_0002, first, false),
                (0x40_0005, first, true),
            ]
        );
        assert_eq!(edges[0].object.kind.word(), "Java lock java.lang.Object");
    }

    #[test]
    fn what_is_no_print_gives_none() {
        for text in [
            "",
            "\"",
            "\" nid=",
            "\" nid=0x\n- waiting to lock <0x",
            "- locked <0x1> (a",
        ] {
            assert!(parse(text).is_empty());
        }
    }

    #[test]
    fn a_lock_with_two_owners_has_none() {
        let text = "\
\"a\" #1 tid=0x1 nid=1 runnable
\t- locked <0x10> (a A)

\"b\" #2 tid=0x2 nid=2 runnable
\t- locked <0x10> (a A)

\"c\" #3 tid=0x3 nid=3 waiting for monitor entry
\t- waiting to lock <0x10> (a A)
";
        assert!(parse(text).is_empty());
        assert_eq!(parse(&text.replacen("locked", "eliminated", 1)).len(), 1);
    }
}
