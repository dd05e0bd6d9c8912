//! Futexes, and libc's locks, condition variables and semaphores above them.

use super::Argument::{Any, In, Int, Long, Made, OneOf, Out, OutAny};
use super::Width::{Code, Int as OfInt};
use super::{Spec, names};
use crate::generate::{objects, structures};

const WORD: super::Argument = In(objects::word);
const UNTIL: super::Argument = In(structures::deadline);
const MUTEX: super::Argument = In(objects::mutex);
const CONDITION: super::Argument = In(objects::condition);
const SEMAPHORE: super::Argument = In(objects::semaphore);
const RWLOCK: super::Argument = In(objects::rwlock);
const BARRIER: super::Argument = In(objects::barrier);
const SPIN: super::Argument = In(objects::spin_lock);
const CLOCK: super::Argument = OneOf(names::CLOCK);

pub(super) const CALLS: &[Spec] = &[
    Spec::new(
        "futex",
        libc::SYS_futex,
        &[
            WORD,
            OneOf(names::FUTEX),
            Int(&[0, 1, 1, 2, 5, -1, i32::MAX as i64]),
            Made(structures::futex_limit),
            WORD,
            Int(&[-1, 0, 1, 2, 0x0100_0001, 0x1234_5678]),
        ],
    )
    .waits()
    .adjusted(structures::fit_futex),
    Spec::new(
        "futex_waitv",
        libc::SYS_futex_waitv,
        &[
            In(structures::futex_vector),
            Int(&[1, 2, 3, 0, 128, 129]),
            Int(&[0, 0, 1]),
            In(structures::deadline),
            Int(&[1, 0, 2, -1]),
        ],
    )
    .waits(),
    Spec::new(
        "set_robust_list",
        libc::SYS_set_robust_list,
        &[In(structures::robust_head), Long(&[24, 24, 0, 16])],
    ),
    Spec::new(
        "get_robust_list",
        libc::SYS_get_robust_list,
        &[super::Argument::Thread, OutAny(8), Out(8)],
    ),
    Spec::function("pthread_mutex_lock", Code, &[MUTEX]).waits(),
    Spec::function("pthread_mutex_trylock", Code, &[MUTEX]),
    Spec::function("pthread_mutex_timedlock", Code, &[MUTEX, UNTIL]).waits(),
    Spec::function("pthread_mutex_clocklock", Code, &[MUTEX, CLOCK, UNTIL]).waits(),
    Spec::function("pthread_mutex_unlock", Code, &[MUTEX]),
    Spec::function("pthread_cond_wait", Code, &[CONDITION, MUTEX])
        .waits()
        .adjusted(objects::lock_before),
    Spec::function("pthread_cond_timedwait", Code, &[CONDITION, MUTEX, UNTIL])
        .waits()
        .adjusted(objects::lock_before),
    Spec::function(
        "pthread_cond_clockwait",
        Code,
        &[CONDITION, MUTEX, CLOCK, UNTIL],
    )
    .waits()
    .adjusted(objects::lock_before),
    Spec::function("pthread_cond_signal", Code, &[CONDITION]),
    Spec::function("pthread_cond_broadcast", Code, &[CONDITION]),
    Spec::function("sem_wait", OfInt, &[SEMAPHORE]).waits(),
    Spec::function("sem_trywait", OfInt, &[SEMAPHORE]),
    Spec::function("sem_timedwait", OfInt, &[SEMAPHORE, UNTIL]).waits(),
    Spec::function("sem_clockwait", OfInt, &[SEMAPHORE, CLOCK, UNTIL]).waits(),
    Spec::function("sem_post", OfInt, &[SEMAPHORE]),
    Spec::function("sem_getvalue", OfInt, &[SEMAPHORE, Out(4)]),
    Spec::function("pthread_rwlock_rdlock", Code, &[RWLOCK]).waits(),
    Spec::function("pthread_rwlock_wrlock", Code, &[RWLOCK]).waits(),
    Spec::function("pthread_rwlock_tryrdlock", Code, &[RWLOCK]),
    Spec::function("pthread_rwlock_trywrlock", Code, &[RWLOCK]),
    Spec::function("pthread_rwlock_timedrdlock", Code, &[RWLOCK, UNTIL]).waits(),
    Spec::function("pthread_rwlock_timedwrlock", Code, &[RWLOCK, UNTIL]).waits(),
    Spec::function("pthread_rwlock_unlock", Code, &[RWLOCK]),
    Spec::function("pthread_barrier_wait", Code, &[BARRIER]).waits(),
    Spec::function("pthread_spin_trylock", Code, &[SPIN]),
    Spec::function("pthread_spin_unlock", Code, &[SPIN]),
    Spec::function(
        "pthread_getname_np",
        Code,
        &[
            Made(objects::thread),
            Any(0, structures::small_buffer),
            Long(&[16, 16, 4, 0, 64]),
        ],
    ),
    Spec::function(
        "pthread_setname_np",
        Code,
        &[Made(objects::thread), super::Argument::Path],
    ),
    Spec::function(
        "pthread_kill",
        Code,
        &[Made(objects::thread), super::Argument::Signal],
    ),
    Spec::function(
        "pthread_create",
        Code,
        &[
            Made(objects::room_for_thread),
            Long(&[0]),
            Made(objects::start),
            Long(&[0, 1, 0x1234]),
        ],
    ),
    Spec::function("pthread_join", Code, &[Made(objects::joined), Out(8)]).waits(),
    Spec::function(
        "pthread_timedjoin_np",
        Code,
        &[Made(objects::joined), Out(8), UNTIL],
    )
    .waits(),
    Spec::function("pthread_tryjoin_np", Code, &[Made(objects::joined), Out(8)]),
    Spec::function("pthread_detach", Code, &[Made(objects::joined)]),
    Spec::function("pthread_cancel", Code, &[Made(objects::cancelled)]),
];
