//! A result that a thread of a scope lends out is used after the lender's end.

fn main() {
    let borrowed = raddle::scope(|scope| {
        let word = String::from("warp");
        scope.spawn(move || &word[..]).join().unwrap()
    });
    println!("{borrowed}");
}
