//! Threads, tasks and continuations of a completion may outlive the borrows of their maker.

fn main() {
    let word = String::from("warp");
    raddle::spawn(|| println!("{word}"));
    raddle::light::spawn(|| println!("{word}"));
    let _ = raddle::run_as_green_thread(|| word.len());
    let _ = raddle::pool::Pool::new().task(|| word.len());
    let _ = raddle::completion::Completion::ready(1).then(|one| one + word.len());
}
