//! A copy of a space, taken a page at a time while the space goes on changing.
//!
//! The copy is of one moment, or a change of several names could be in it by halves. So whoever changes a name that has not
//! been copied yet leaves there what was under it: the pages that follow take that instead. What is kept is little, because
//! bytes are shared, and what was copied already need not be kept.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use super::state::Stored;
use crate::params::Key;

#[derive(Default)]
pub struct Copying {
    /// The last name that was copied.
    copied: Option<Key>,
    /// What was under names that have changed since, if anything.
    before: BTreeMap<Key, Option<Stored>>,
    /// All that was there when everything was taken away.
    all: Option<BTreeMap<Key, Stored>>,
}

impl Copying {
    /// Keeps what is under a name that is about to change, unless it is known.
    pub fn keep(&mut self, key: &Key, there: impl FnOnce() -> Option<Stored>) {
        let is_copied = self.copied.as_ref().is_some_and(|copied| key <= copied);
        // What workers exchange is not saved.
        if !is_copied && self.all.is_none() && key.exchanged_name().is_none() {
            self.before.entry(key.clone()).or_insert_with(there);
        }
    }

    /// A name is not there any more. If it was not there when the copy was begun, nothing need be known of it: or a name that
    /// comes and goes would take memory that nobody pays for.
    pub fn is_gone(&mut self, key: &Key) {
        if self.all.is_none() && matches!(self.before.get(key), Some(None)) {
            self.before.remove(key);
        }
    }

    /// Keeps all that is taken away at once; gives back what need not be kept.
    pub fn keep_all(&mut self, entries: BTreeMap<Key, Stored>) -> BTreeMap<Key, Stored> {
        match &self.all {
            Some(_) => entries,
            None => {
                self.all = Some(entries);
                BTreeMap::new()
            }
        }
    }

    /// The next values that were there, of so many names at most. None is the end. A page may be empty, where names were
    /// looked at whose values are not to be copied.
    pub fn next(&mut self, now_there: &BTreeMap<Key, Stored>, names: usize) -> Option<Vec<(Key, Stored)>> {
        let from = self.copied.as_ref().map_or(Unbounded, Excluded);
        let mut there = self.all.as_ref().unwrap_or(now_there).range::<Key, _>((from, Unbounded)).peekable();
        let mut before = self.before.range::<Key, _>((from, Unbounded)).peekable();
        let mut page = Vec::new();
        let mut last = None;
        for _ in 0..names {
            let (key, stored) = match (there.peek(), before.peek()) {
                (None, None) => break,
                (Some(&(key, stored)), changed) if changed.is_none_or(|(changed, _)| key < *changed) => {
                    there.next();
                    (key, Some(stored))
                }
                (unchanged, Some(&(changed, stored))) => {
                    if unchanged.is_some_and(|(key, _)| *key == changed) {
                        there.next();
                    }
                    before.next();
                    (changed, stored.as_ref())
                }
                (Some(_), None) => break,
            };
            page.extend(stored.filter(|_| key.exchanged_name().is_none()).map(|stored| (key.clone(), stored.clone())));
            last = Some(key.clone());
        }
        let last = last?;
        self.before = self.before.split_off(&last);
        self.before.remove(&last);
        self.copied = Some(last);
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    use super::*;
    use crate::params::embedded::state::{PAGE, State};
    use crate::params::{Entry, Moment, Value};

    fn stored(version: u64, expires: Option<u64>) -> Stored {
        let entry = Entry { version, value: Value::bytes(vec![0; 3]), expires: expires.map(Moment) };
        Stored { entry, durable: false }
    }

    fn key(number: u64) -> Key {
        // Some of what workers exchange is among the rest, and is not copied.
        match number % 17 {
            0 => Key::exchanged(&number.to_string()),
            _ => format!("name-{number}").parse().unwrap(),
        }
    }

    fn change(state: &mut State, random: &mut ChaCha8Rng, version: u64, names: u64) {
        let key = key(random.next_u64() % names);
        match random.next_u64() % 1_000 {
            0 => drop(state.clear()),
            1..400 => drop(state.remove(&key)),
            number => state.put(key, stored(version, (number % 3 == 0).then_some(number))),
        }
    }

    fn kept(state: &State) -> Vec<(Key, u64)> {
        let kept = state.entries().iter().filter(|(key, _)| key.exchanged_name().is_none());
        kept.map(|(key, stored)| (key.clone(), stored.entry.version)).collect()
    }

    /// Whatever is changed between pages, however often, the copy is of the moment in which it was begun.
    #[test]
    fn a_copy_is_of_one_moment() {
        for seed in 0..60 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let (mut state, names) = (State::default(), 50 + seed * 200);
            for version in 0..2 * names {
                change(&mut state, &mut random, version, names);
            }
            let (expected, mut copied) = (kept(&state), Vec::new());
            state.begin_copy();
            while let Some(page) = state.copy(PAGE) {
                assert!(page.len() <= PAGE);
                copied.extend(page.into_iter().map(|(key, stored)| (key, stored.entry.version)));
                for version in 0..random.next_u64() % (2 * names) {
                    change(&mut state, &mut random, 1_000_000 + version, names);
                }
                assert!(state.agrees());
            }
            assert_eq!(copied, expected, "seed {seed}");
            drop(state.end_copy());
            assert!(state.copy(PAGE).is_none());
        }
    }

    /// What can happen between two pages.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Put(usize),
        Remove(usize),
        Clear,
        Page,
    }

    /// Every order of so many events.
    const EVENTS: u32 = 5;

    /// Three names, the middle one of what workers exchange, each there or not at first; pages of one name.
    #[test]
    fn in_every_order_of_events_a_copy_is_of_one_moment() {
        use Event::{Clear, Page, Put, Remove};

        let names: [Key; 3] = ["name-1".parse().unwrap(), Key::exchanged("2"), "name-3".parse().unwrap()];
        let events = [Page, Put(0), Put(1), Put(2), Remove(0), Remove(1), Remove(2), Clear];
        for (first, order) in (0..8_u32).flat_map(|first| (0..8_u32.pow(EVENTS)).map(move |order| (first, order))) {
            let mut state = State::default();
            for (number, name) in names.iter().enumerate().filter(|(number, _)| first >> number & 1 == 1) {
                state.put(name.clone(), stored(number as u64, None));
            }
            let (expected, mut copied) = (kept(&state), Vec::new());
            state.begin_copy();
            let order = (0..EVENTS).map(|event| events[(order >> (3 * event) & 7) as usize]);
            for (version, event) in order.clone().chain([Page; 7]).enumerate() {
                match event {
                    Put(name) => state.put(names[name].clone(), stored(100 + version as u64, None)),
                    Remove(name) => drop(state.remove(&names[name])),
                    Clear => drop(state.clear()),
                    Page => copied.extend(state.copy(1).into_iter().flatten()),
                }
            }
            let copied: Vec<_> = copied.into_iter().map(|(key, stored)| (key, stored.entry.version)).collect();
            assert_eq!(copied, expected, "{first:b}, {:?}", order.collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_has_expired_is_found_without_the_rest() {
        let mut state = State::default();
        for number in 1..5_000 {
            state.put(format!("name-{number}").parse().unwrap(), stored(number, Some(number)));
        }
        assert_eq!(state.expired(Moment(3)).len(), 3);
        let mut gone = 0;
        loop {
            let expired = state.expired(Moment(4_000));
            assert!(expired.len() <= PAGE);
            gone += expired.len();
            if expired.is_empty() {
                break;
            }
            for key in expired {
                state.remove(&key);
            }
        }
        assert_eq!((gone, state.entries().len()), (4_000, 999));
        assert!(state.agrees());
    }

    #[test]
    fn a_list_looks_at_a_few_names_at_a_time() {
        let mut state = State::default();
        for number in 0..5_000 {
            let expires = (number < 4_000).then_some(7);
            state.put(format!("name-{number:04}").parse().unwrap(), stored(number, expires));
        }
        let (mut after, mut found, mut looks) = (None, Vec::new(), 0);
        loop {
            let listed = state.list("name-", after.as_ref(), 10 - found.len(), Moment(8));
            found.extend(listed.found);
            looks += 1;
            after = listed.on;
            if after.is_none() {
                break;
            }
        }
        let expected: Vec<String> = (4_000..4_010).map(|number| format!("name-{number}")).collect();
        assert_eq!((found.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>(), looks), (expected, 4));
    }
}
