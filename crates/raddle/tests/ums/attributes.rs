//! Attributes of workers' threads, by their contexts.

use super::in_place::Shared;
use super::on_carriers;
use raddle::ums::{self, CompletionList};
use std::sync::mpsc;

#[test]
fn a_context_tells_its_threads_niceness_cpus_and_pthread() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let (tell, told) = mpsc::channel();
        let (go, goes) = mpsc::channel();
        let (worker, handle) = ums::spawn(&list, move || {
            // SAFETY: asks for a number.
            tell.send(unsafe { libc::pthread_self() }).unwrap();
            goes.recv().unwrap();
        })
        .unwrap();
        assert_eq!(worker.niceness().unwrap(), 0);
        worker.set_niceness(3).unwrap(); // before it has run
        let shared = Shared::new(&list, 1);
        raddle::scope(|scope| {
            let schedules = scope.spawn(|| shared.run());
            let pthread = told.recv().unwrap();
            assert_eq!(worker.pthread(), Some(pthread));
            assert_eq!(worker.niceness().unwrap(), 3);
            worker.set_niceness(4).unwrap();
            assert_eq!(worker.niceness().unwrap(), 4);
            let cpus = worker.cpus().unwrap();
            assert!(!cpus.is_empty());
            worker.set_cpus(&cpus[..1]).unwrap();
            assert_eq!(worker.cpus().unwrap(), cpus[..1]);
            assert!(worker.set_cpus(&[]).is_err());
            go.send(()).unwrap();
            schedules.join().unwrap();
        });
        handle.join().unwrap();
        assert_eq!(
            worker.niceness().unwrap_err().raw_os_error(),
            Some(libc::ESRCH)
        );
        assert_eq!(worker.cpus().unwrap_err().raw_os_error(), Some(libc::ESRCH));
    });
}
