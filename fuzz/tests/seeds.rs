//! Every target is run once on each of its seeds, without a fuzzer: so none of them comes to refuse what it is to start from,
//! and what a fuzzer would find at once is found by `cargo test`.

use std::collections::HashSet;

#[test]
fn every_target_takes_its_seeds() {
    let mut names = HashSet::new();
    for target in fuzz_targets::all() {
        let name = target.name;
        assert!(names.insert(name), "two targets are called `{name}`");
        let seeds = (target.seeds)().unwrap_or_else(|error| panic!("the seeds of `{name}`: {error:#}"));
        assert!(!seeds.is_empty(), "`{name}` has no seeds");
        for seed in seeds {
            assert!(seed.len() <= target.longest.max(1 << 20), "a seed of `{name}` has {} bytes", seed.len());
            (target.run)(&seed);
            // Cut off in the middle, and with a bit turned over.
            (target.run)(&seed[..seed.len() / 2]);
            let mut damaged = seed.clone();
            if let Some(byte) = damaged.get_mut(seed.len() / 3) {
                *byte ^= 0x10;
            }
            (target.run)(&damaged);
        }
    }
}
