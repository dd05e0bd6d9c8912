//! Two threads of a scope change one value.

fn main() {
    let mut count = 0;
    raddle::scope(|scope| {
        scope.spawn(|| count += 1);
        scope.spawn(|| count += 1);
    });
}
