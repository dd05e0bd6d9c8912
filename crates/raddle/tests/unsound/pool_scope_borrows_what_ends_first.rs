//! Work of a pool's scope borrows what ends before the scope, and two items change one value.

fn main() {
    let pool = raddle::pool::Pool::new();
    let mut count = 0;
    let _ = pool.scope(|scope| {
        let short = String::from("weft");
        scope.spawn(|_| println!("{short}"));
        scope.spawn(|_| count += 1);
        scope.spawn(|_| count += 1);
    });
}
