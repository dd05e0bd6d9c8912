//! A scope is kept beyond its end, to start threads that borrow without a wait for their end.

fn main() {
    let mut kept = None;
    let word = String::from("warp");
    raddle::scope(|scope| kept = Some(scope));
    kept.unwrap().spawn(|| println!("{word}"));
}
