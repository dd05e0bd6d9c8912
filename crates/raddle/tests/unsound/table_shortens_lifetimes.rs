use raddle::handles::{Handle, Table};

fn shorten<'a, 'b>(table: &'b Table<&'static str>) -> &'b Table<&'a str> {
    table
}

fn main() {
    let table = Table::<&'static str>::new();
    let bits = {
        let short = String::from("short");
        shorten(&table).insert(short.as_str()).unwrap().to_bits()
    };
    let dangling = table.get(Handle::from_bits(bits).unwrap()).unwrap();
    println!("{dangling}");
}
