//! A thread of a scope borrows what ends before the scope.

fn main() {
    raddle::scope(|scope| {
        let short = String::from("weft");
        scope.spawn(|| println!("{short}"));
    });
}
