//! A reference count without atomics goes to another thread: by a scope, a thread, a light thread,
//! a kernel thread and a pool.

use std::rc::Rc;

fn main() {
    let shared = Rc::new(1);
    raddle::scope(|scope| drop(scope.spawn(|| println!("{shared}"))));
    let own = shared.clone();
    raddle::spawn(move || println!("{own}"));
    let own = shared.clone();
    raddle::light::spawn(move || println!("{own}"));
    let own = shared.clone();
    let _ = raddle::thread::spawn_blocking(move || println!("{own}"));
    let _ = raddle::pool::Pool::new().queue(move || println!("{shared}"));
}
