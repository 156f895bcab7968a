//! Computes average precision and reciprocal rank of a ranking, as trec_eval does.
//!
//! `cargo run --release --example evaluate`

#![allow(clippy::print_stdout)]

use turnwise::evaluate::Ranking;

fn main() {
    // The flags say whether the document at each rank is relevant, best rank first.
    let ranking = Ranking::of_flags([true, false, true, false, false]);
    println!("average precision {:.4}", ranking.average_precision(usize::MAX));
    println!("reciprocal rank   {:.4}", ranking.reciprocal_rank());
}
