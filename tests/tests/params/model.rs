//! Random sequences of calls, and what a plain map would have answered.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use weft::params::bucket::Keeping;
use weft::params::{Change, Expect, Form, Key, ParamError, Value, Write, counted};

use super::backends::{Dice, Place, key, on_all_backends};

const SEQUENCES: u64 = 3;
const CALLS: u64 = 150;

on_all_backends! {
    random_sequences_do_what_a_map_does,
}

fn any_key(dice: &mut Dice) -> Key {
    key(["a", "b", "b/c", "b/d", "z"][dice.below(5) as usize])
}

/// Of any kind; now and then large enough for chunks.
fn any_value(dice: &mut Dice) -> Value {
    let byte = dice.below(256) as u8;
    match dice.below(12) {
        0 => Value::bytes(vec![byte; 4_300_000]),
        1 => Value::bytes(vec![byte; 70_000]),
        2..5 => Value::counter(i64::from(byte) - 100),
        _ => Value::bytes(vec![byte; byte as usize]),
    }
}

/// What should be there, by version.
#[derive(Default)]
struct Model {
    values: BTreeMap<Key, (u64, Value)>,
    latest: u64,
}

impl Model {
    fn set(&mut self, key: Key, version: u64, value: Value) -> Result<()> {
        ensure!(version > self.latest, "version {version} after {}", self.latest);
        self.latest = version;
        self.values.insert(key, (version, value));
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.values.iter().map(|(key, (_, value))| counted(key, value.stored_bytes())).sum()
    }
}

async fn random_sequences_do_what_a_map_does(place: Place) -> Result<()> {
    for sequence in 0..SEQUENCES {
        let seed = u64::from(std::process::id()) << 8 | sequence;
        println!("seed {seed}");
        let (mut dice, mut model) = (Dice(seed), Model::default());
        for call in 0..CALLS {
            one_call(&place, &mut dice, &mut model)
                .await
                .map_err(|error| error.context(format!("seed {seed}, call {call}")))?;
        }
        place.bucket().clear().await?;
        ensure!(place.store.used(&place.tenant).await? == 0);
    }
    Ok(())
}

async fn one_call(place: &Place, dice: &mut Dice, model: &mut Model) -> Result<()> {
    let (bucket, name) = (place.bucket(), any_key(dice));
    let there = model.values.get(&name).cloned();
    match dice.below(9) {
        0 => {
            let value = any_value(dice);
            let version = bucket.set(name.clone(), value.clone(), Keeping::default()).await?;
            model.set(name, version, value)?;
        }
        1 => {
            let found = bucket.get(&name).await?.map(|entry| (entry.version, entry.value));
            ensure!(found == there, "`{name}` is another");
        }
        2 => {
            // As often wrong as right.
            let expect = match (&there, dice.below(2)) {
                (Some((version, _)), 0) => Expect::Version(*version),
                (_, 0) | (None, _) => Expect::Absent,
                (Some((version, _)), _) => Expect::Version(version + 1),
            };
            let value = any_value(dice);
            let holds = match (expect, &there) {
                (Expect::Absent, there) => there.is_none(),
                (Expect::Version(version), Some((at, _))) => version == *at,
                (Expect::Version(_), None) => false,
            };
            match bucket.compare_and_set(name.clone(), expect, value.clone(), Keeping::default()).await {
                Ok(version) if holds => model.set(name, version, value)?,
                Err(ParamError::Conflict { found, .. }) if !holds => {
                    ensure!(found == there.map(|(version, _)| version), "it found {found:?}");
                }
                other => anyhow::bail!("{expect:?}: {other:?}"),
            }
        }
        3 => {
            let by = dice.below(100) as i64 - 50;
            match (bucket.increment(name.clone(), by).await, there.as_ref().map(|(_, value)| value.count())) {
                (Ok(count), None | Some(Some(_))) => {
                    let before = there.and_then(|(_, value)| value.count()).unwrap_or(0);
                    ensure!(count == before + by, "{before} and {by} are {count}");
                    let version = bucket.head(&name).await?.map_or(0, |head| head.version);
                    model.set(name, version, Value::counter(count))?;
                }
                (Err(ParamError::WrongForm { .. }), Some(None)) => {}
                other => anyhow::bail!("{other:?}"),
            }
        }
        4 => {
            let taken = bucket.take(std::slice::from_ref(&name)).await?.pop().flatten();
            ensure!(taken.map(|entry| (entry.version, entry.value)) == there);
            model.values.remove(&name);
        }
        5 => {
            let keys: Vec<Key> = ["a", "b"].map(key).into();
            let count = keys.iter().filter(|key| model.values.remove(*key).is_some()).count();
            ensure!(bucket.delete(&keys).await? == count);
        }
        6 => {
            let listed = bucket.list("b", None, 10).await?.items;
            let expected = model.values.iter().filter(|(key, _)| key.as_str().starts_with('b'));
            let expected: Vec<(Key, u64, Form, u64)> = expected
                .map(|(key, (version, value))| (key.clone(), *version, value.form.clone(), value.data.len() as u64))
                .collect();
            let found: Vec<_> =
                listed.into_iter().map(|(key, head)| (key, head.version, head.form, head.bytes)).collect();
            ensure!(found == expected, "{found:?}, not {expected:?}");
            ensure!(place.store.used(&place.tenant).await? == model.bytes());
        }
        7 => {
            let set = |value: &Value| Change::Set { value: value.clone(), expires: None };
            let (first, second) = (any_value(dice), any_value(dice));
            let changes = vec![(key("a"), set(&first)), (key("b"), set(&second)), (key("z"), Change::Delete)];
            let changed = bucket.write(Write { changes, ..Write::default() }).await?;
            model.set(key("a"), changed[0].version, first)?;
            model.set(key("b"), changed[1].version, second)?;
            ensure!(changed[2].found == model.values.remove(&key("z")).is_some());
        }
        _ => {
            let Some((_, value)) = there else { return Ok(()) };
            let bytes = value.data.len() as u64;
            let start = dice.below(bytes + 1);
            let end = start + dice.below(bytes - start + 1);
            let part = bucket.get_range(&name, start..end).await?.map(|entry| entry.value.data);
            ensure!(part.as_deref() == Some(&value.data[start as usize..end as usize]), "{start} to {end} of `{name}`");
        }
    }
    Ok(())
}
