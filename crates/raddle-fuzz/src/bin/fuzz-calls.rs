fn main(){ let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
for s in a[0]..a[1] { print!("== {s}\n{}", raddle_fuzz::case::to_text(&raddle_fuzz::generate::case(s))); } }
