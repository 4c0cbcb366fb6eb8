//! The sum of what workers contributed: in the order of the workers, whoever came first, so that the bits are the same
//! every time.

use std::num::NonZero;

use bytes::Bytes;
use half::f16;
use weft_gpu::DType;

use super::{Entry, Form, Key, ParamError, Value};

/// What a thread sums at a time: parts of all workers fit into the nearest caches.
const BLOCK: usize = 16 << 10;

/// What is worth a thread of its own.
const WORTH_A_THREAD: usize = 1 << 20;

/// Threads beyond these find no more memory bandwidth.
const MOST_THREADS: usize = 8;

/// The form that all parts have, which is that of their sum. It can be summed.
pub fn form(parts: &[(Key, Entry)]) -> Result<&Form, ParamError> {
    let Some((key, first)) = parts.first() else { return Ok(&Form::Bytes) };
    let form = &first.value.form;
    if let Some((key, entry)) = parts.iter().find(|(_, entry)| entry.value.form != *form) {
        let (found, wanted) = (entry.value.form.to_string(), format!("{form}, as of the first worker,"));
        return Err(ParamError::WrongForm { key: key.clone(), found, wanted });
    }
    match form {
        Form::Bytes => {
            let wanted = "a tensor or a counter".to_owned();
            Err(ParamError::WrongForm { key: key.clone(), found: form.to_string(), wanted })
        }
        Form::Tensor { .. } | Form::Counter => Ok(form),
    }
}

/// The sum of tensors of one shape and type, or of counters. Numbers of integers that do not fit are an error.
pub fn sum(parts: &[(Key, Entry)]) -> Result<Value, ParamError> {
    let form = form(parts)?;
    let datas: Vec<&Bytes> = parts.iter().map(|(_, entry)| &entry.value.data).collect();
    let Some((key, _)) = parts.first() else { return Ok(Value::bytes(Vec::new())) };
    let summed = match form {
        Form::Tensor { dtype, .. } => match dtype.0 {
            DType::F32 => by_shares(&datas, sum_f32),
            DType::F16 => by_blocks(&datas, add_f16),
            DType::I32 => by_blocks(&datas, |to, from| {
                add_integers(to, from, i32::from_le_bytes, i32::checked_add, i32::to_le_bytes)
            }),
            DType::U32 => by_blocks(&datas, |to, from| {
                add_integers(to, from, u32::from_le_bytes, u32::checked_add, u32::to_le_bytes)
            }),
            DType::U8 => by_blocks(&datas, |to, from| {
                add_integers(to, from, u8::from_le_bytes, u8::checked_add, u8::to_le_bytes)
            }),
        },
        Form::Counter => {
            by_blocks(&datas, |to, from| add_integers(to, from, i64::from_le_bytes, i64::checked_add, i64::to_le_bytes))
        }
        Form::Bytes => Some(Vec::new()),
    };
    let data = summed.ok_or_else(|| ParamError::Overflow(key.clone()))?;
    Ok(Value { form: form.clone(), data: data.into() })
}

/// Adds each part's block to the first one's. `None` if a sum does not fit.
fn by_blocks(parts: &[&Bytes], add: impl Fn(&mut [u8], &[u8]) -> Option<()> + Sync) -> Option<Vec<u8>> {
    by_shares(parts, |into, parts| {
        let Some((first, others)) = parts.split_first() else { return Some(()) };
        into.chunks_mut(BLOCK).enumerate().try_for_each(|(index, into)| {
            let block = |part: &[u8]| index * BLOCK..(index * BLOCK + into.len()).min(part.len());
            let (from, range) = (*first, block(first));
            into.copy_from_slice(&from[range.clone()]);
            others.iter().try_for_each(|part| add(into, &part[range.clone()]))
        })
    })
}

/// Has each thread make its share of the sum.
fn by_shares(parts: &[&Bytes], make: impl Fn(&mut [u8], &[&[u8]]) -> Option<()> + Sync) -> Option<Vec<u8>> {
    let length = parts.first()?.len();
    let mut sum = vec![0; length];
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    let threads = (length / WORTH_A_THREAD).clamp(1, cores);
    let share = length.div_ceil(threads).next_multiple_of(BLOCK).max(BLOCK);
    let make = |index: usize, into: &mut [u8]| {
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[index * share..index * share + into.len()]).collect();
        make(into, &parts)
    };
    if threads == 1 {
        make(0, &mut sum)?;
        return Some(sum);
    }
    let make = &make;
    let whole = std::thread::scope(|scope| {
        let shares: Vec<_> =
            sum.chunks_mut(share).enumerate().map(|(index, into)| scope.spawn(move || make(index, into))).collect();
        // A panic of a thread is one of ours.
        shares.into_iter().map(|thread| thread.join().ok().flatten()).collect::<Option<Vec<()>>>()
    });
    whole.map(|_| sum)
}

/// Elements that are summed at a time: all parts of them, so that memory is read as a few long streams.
const LANES: usize = 16;

fn sum_f32(into: &mut [u8], parts: &[&[u8]]) -> Option<()> {
    let Some((first, others)) = parts.split_first() else { return Some(()) };
    let read = |part: &[u8], at: usize| -> [f32; LANES] {
        let words: &[[u8; 4]] = part[at..at + 4 * LANES].as_chunks().0;
        std::array::from_fn(|lane| f32::from_le_bytes(words[lane]))
    };
    let whole = into.len() / (4 * LANES) * 4 * LANES;
    for (at, into) in (0..whole).step_by(4 * LANES).zip(into.chunks_exact_mut(4 * LANES)) {
        let mut sums = read(first, at);
        for part in others {
            let values = read(part, at);
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        into.as_chunks_mut::<4>().0.iter_mut().zip(sums).for_each(|(into, sum)| *into = sum.to_le_bytes());
    }
    let rest = &mut into[whole..];
    rest.copy_from_slice(&first[whole..]);
    others.iter().for_each(|part| add_f32(rest, &part[whole..]));
    Some(())
}

fn add_f32(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.as_chunks_mut::<4>().0.iter_mut().zip(from.as_chunks::<4>().0) {
        *to = (f32::from_le_bytes(*to) + f32::from_le_bytes(*from)).to_le_bytes();
    }
}

fn add_f16(to: &mut [u8], from: &[u8]) -> Option<()> {
    for (to, from) in to.as_chunks_mut::<2>().0.iter_mut().zip(from.as_chunks::<2>().0) {
        *to = f16::from_f32(f16::from_le_bytes(*to).to_f32() + f16::from_le_bytes(*from).to_f32()).to_le_bytes();
    }
    Some(())
}

fn add_integers<T, const SIZE: usize>(
    to: &mut [u8],
    from: &[u8],
    read: impl Fn([u8; SIZE]) -> T,
    add: impl Fn(T, T) -> Option<T>,
    written: impl Fn(T) -> [u8; SIZE],
) -> Option<()> {
    for (to, from) in to.as_chunks_mut::<SIZE>().0.iter_mut().zip(from.as_chunks::<SIZE>().0) {
        *to = written(add(read(*to), read(*from))?);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, value: Value) -> (Key, Entry) {
        (name.parse().unwrap(), Entry { version: 1, value, expires: None })
    }

    fn floats(values: impl Iterator<Item = f32>) -> Value {
        let data: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        Value::tensor(DType::F32, vec![data.len() as u64 / 4], data).unwrap()
    }

    #[test]
    fn sums_are_those_of_one_thread_in_order() {
        for length in [0, 1, 4_097, 3 * WORTH_A_THREAD / 4 + 11] {
            let parts: Vec<_> = (0..5)
                .map(|worker| part("w", floats((0..length).map(move |i| ((i * 7 + worker * 13) as f32 * 0.1).sin()))))
                .collect();
            let element = |i: usize, worker: usize| ((i * 7 + worker * 13) as f32 * 0.1).sin();
            let expected = (0..length).map(|i| (1..5).fold(element(i, 0), |sum, worker| sum + element(i, worker)));
            assert!(sum(&parts).unwrap() == floats(expected), "{length}");
        }
    }

    #[test]
    fn integers_that_do_not_fit_are_an_error() {
        let value = |number: i32| Value::tensor(DType::I32, vec![1], number.to_le_bytes().to_vec()).unwrap();
        let parts = [part("a", value(i32::MAX)), part("b", value(1))];
        assert!(matches!(sum(&parts), Err(ParamError::Overflow(_))));
        let parts = [part("a", value(-3)), part("b", value(1))];
        assert_eq!(sum(&parts).unwrap(), value(-2));
    }

    #[test]
    fn what_differs_in_form_is_refused() {
        let parts = [part("a", floats([1.0].into_iter())), part("b", Value::counter(1))];
        let error = sum(&parts).unwrap_err().to_string();
        assert!(error.contains("`b`") && error.contains("f32 [1]"), "{error}");
        assert!(sum(&[part("a", Value::bytes(vec![1]))]).is_err());
    }
}
