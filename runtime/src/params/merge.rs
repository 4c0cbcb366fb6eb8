//! The sum of what workers contributed, of any type that the store knows: by the code that merges for jobs
//! ([`weft_core::sync::merge`]), in the order of the workers, whoever came first, so that the bits are the same every time.

use std::num::NonZero;
use std::ops::AddAssign;

use bytes::Bytes;
use half::f16;
use weft_core::sync::merge::sum_as;
use weft_gpu::DType;

use super::{Entry, Form, Key, ParamError, Value};

/// Bytes that are worth a thread of their own.
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

/// The sum of tensors of one shape and type, or of counters. Sums of integers that do not fit are an error.
pub fn sum(parts: &[(Key, Entry)]) -> Result<Value, ParamError> {
    let form = form(parts)?;
    let datas: Vec<&Bytes> = parts.iter().map(|(_, entry)| &entry.value.data).collect();
    let Some((key, _)) = parts.first() else { return Ok(Value::bytes(Vec::new())) };
    let summed = match form {
        Form::Tensor { dtype, .. } => match dtype.0 {
            DType::F32 => sum_bytes(&datas, f32::from_le_bytes, |sum| Some(sum.to_le_bytes())),
            DType::F16 => sum_bytes(
                &datas,
                |number| f16::from_le_bytes(number).to_f32(),
                |sum| Some(f16::from_f32(sum).to_le_bytes()),
            ),
            DType::I32 => sum_bytes(
                &datas,
                |number| i64::from(i32::from_le_bytes(number)),
                |sum| i32::try_from(sum).ok().map(i32::to_le_bytes),
            ),
            DType::U32 => sum_bytes(
                &datas,
                |number| u64::from(u32::from_le_bytes(number)),
                |sum| u32::try_from(sum).ok().map(u32::to_le_bytes),
            ),
            DType::U8 => sum_bytes(
                &datas,
                |number| u64::from(u8::from_le_bytes(number)),
                |sum| u8::try_from(sum).ok().map(u8::to_le_bytes),
            ),
        },
        Form::Counter => sum_bytes(
            &datas,
            |number| i128::from(i64::from_le_bytes(number)),
            |sum| i64::try_from(sum).ok().map(i64::to_le_bytes),
        ),
        Form::Bytes => Some(Vec::new()),
    };
    let data = summed.ok_or_else(|| ParamError::Overflow(key.clone()))?;
    Ok(Value { form: form.clone(), data: data.into() })
}

/// The sum of numbers of so many bytes each. `None` if one does not fit. Each thread makes a share of it.
fn sum_bytes<const SIZE: usize, S: Copy + Default + AddAssign>(
    parts: &[&Bytes],
    read: impl Fn([u8; SIZE]) -> S + Sync,
    written: impl Fn(S) -> Option<[u8; SIZE]> + Sync,
) -> Option<Vec<u8>> {
    let parts: Vec<&[[u8; SIZE]]> = parts.iter().map(|part| part.as_chunks().0).collect();
    let numbers = parts.first()?.len();
    let mut sums = vec![0; numbers * SIZE];
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    let threads = (sums.len() / WORTH_A_THREAD).clamp(1, cores);
    let share = numbers.div_ceil(threads).max(1);
    let make = |index: usize, into: &mut [[u8; SIZE]]| {
        let start = index * share;
        let parts: Vec<&[[u8; SIZE]]> = parts.iter().map(|part| &part[start..start + into.len()]).collect();
        sum_as(into, &parts, &read, &written)
    };
    let shares = sums.as_chunks_mut::<SIZE>().0.chunks_mut(share).enumerate();
    if threads == 1 {
        for (index, into) in shares {
            make(index, into)?;
        }
        return Some(sums);
    }
    let make = &make;
    let whole = std::thread::scope(|scope| {
        let shares: Vec<_> = shares.map(|(index, into)| scope.spawn(move || make(index, into))).collect();
        // A panic of a thread is one of ours.
        shares.into_iter().map(|thread| thread.join().ok().flatten()).collect::<Option<Vec<()>>>()
    });
    whole.map(|_| sums)
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
        let parts = [part("a", value(i32::MAX)), part("b", value(1)), part("c", value(-3))];
        assert_eq!(sum(&parts).unwrap(), value(i32::MAX - 2), "only the whole sum has to fit");
    }

    #[test]
    fn what_differs_in_form_is_refused() {
        let parts = [part("a", floats([1.0].into_iter())), part("b", Value::counter(1))];
        let error = sum(&parts).unwrap_err().to_string();
        assert!(error.contains("`b`") && error.contains("f32 [1]"), "{error}");
        assert!(sum(&[part("a", Value::bytes(vec![1]))]).is_err());
    }
}
