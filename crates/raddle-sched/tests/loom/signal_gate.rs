//! The gate for the runtime's own signals: a sender, and a thread that calls `execve`.

use super::explore;

use loom::thread;
use raddle_sched::SignalGate;
use raddle_sched::sync::{AtomicUsize, Ordering};
use std::sync::Arc;

const TID: u32 = 7;

/// A thread closes the gate, looks once whether a sender is active, and execs if none is.
fn exec_meets_senders(senders: usize, closes: bool) {
    explore(3, move || {
        let gate = Arc::new(SignalGate::new());
        let execed = Arc::new(AtomicUsize::new(0));
        let send = |gate: Arc<SignalGate>, execed: Arc<AtomicUsize>| {
            move || {
                gate.pass(TID, || {
                    assert_eq!(execed.load(Ordering::SeqCst), 0, "the new program dies");
                });
            }
        };
        let sending: Vec<_> = (0..senders)
            .map(|_| thread::spawn(send(gate.clone(), execed.clone())))
            .collect();
        let closed = closes.then(|| gate.close(TID).expect("a free slot"));
        if gate.is_quiet() {
            execed.store(1, Ordering::SeqCst);
        } else if let Some(closed) = closed {
            gate.open(closed); // the model doesn't wait
        }
        for sender in sending {
            sender.join().expect("no panic");
        }
        assert!(gate.is_quiet());
    });
}

#[test]
fn no_signal_reaches_a_new_program() {
    exec_meets_senders(1, true);
    exec_meets_senders(2, true);
}

#[test]
#[should_panic(expected = "the new program dies")]
fn a_quiet_moment_alone_is_not_enough() {
    exec_meets_senders(1, false);
}
