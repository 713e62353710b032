//! Our calls beside the least any durable implementation must do, and beside the published Python package: one run on
//! one PostgreSQL server, in alternating rounds.
//!
//!     benches/compare.sh                              the table; --rounds N and --seconds S say for how long
//!     benches/compare.sh statements                   what each call sends, from the server's log
//!     benches/compare.sh bloat [SECONDS]              beats under an old snapshot: HOT updates and table sizes

mod bloat;
mod ours;
mod rivals;
mod statements;
#[path = "../support/mod.rs"]
mod support;
mod table;

use std::env;
use std::time::Duration;

fn main() {
    // Cargo adds `--bench`, and under `cargo test` nothing: then there is nothing to measure.
    let mut arguments = env::args().skip(1).filter(|argument| argument != "--bench");
    let mode = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match mode.as_str() {
        "table" => {
            let rounds = option(&rest, "--rounds").unwrap_or(7.0);
            let seconds = option(&rest, "--seconds").unwrap_or(1.0);
            table::print(rounds as usize, Duration::from_secs_f64(seconds));
        }
        "statements" => statements::print(),
        "bloat" => {
            let seconds = rest.first().map(|seconds| number(seconds));
            bloat::print(Duration::from_secs_f64(seconds.unwrap_or(600.0)));
        }
        ours::LOAD => ours::serve(&rest),
        _ => println!("compare: say `table`, `statements` or `bloat`; see benches/compare.sh"),
    }
}

fn option(arguments: &[String], name: &str) -> Option<f64> {
    let at = arguments.iter().position(|argument| argument == name)?;
    arguments.get(at + 1).map(|value| number(value))
}

fn number(text: &str) -> f64 {
    let value: Option<f64> = text.parse().ok();
    value.unwrap_or_else(|| panic!("{text:?} is no number"))
}
