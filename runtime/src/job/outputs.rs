//! What a model makes of the samples of one request: bounded, charged to the tenant before it is held, and written as JSON.

use std::io;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeStruct, Serializer};
use weft_gpu::Tensor;

use super::JobError;
use crate::tenant::{Account, Charge, ChargedBytes, OverLimit};

/// Rows of numbers, one for each sample.
pub struct Outputs {
    batches: Vec<Rows>,
    /// The most bytes that all numbers may take.
    most: u64,
    /// Counts the numbers.
    charge: Charge,
    account: Arc<Account>,
}

/// The rows of one batch: as many numbers in each. Another batch may have rows of another length.
struct Rows {
    numbers: Vec<f32>,
    width: usize,
}

impl Outputs {
    pub fn new(account: Arc<Account>, most: u64) -> Self {
        Self { batches: Vec::new(), most, charge: Charge::none(account.clone()), account }
    }

    /// Copies the rows of a batch of so many samples from the device.
    pub fn add(&mut self, rows: &Tensor, samples: usize) -> Result<(), JobError> {
        let elements = rows.shape().elements();
        let bytes = (elements as u64).saturating_mul(size_of::<f32>() as u64);
        if self.charge.bytes().saturating_add(bytes) > self.most {
            return Err(JobError::LargeAnswer(self.most));
        }
        self.charge.grow(bytes)?;
        let numbers = rows.to_vec::<f32>().map_err(|error| JobError::Refused(error.to_string()))?;
        self.batches.push(Rows { numbers, width: (elements / samples.max(1)).max(1) });
        Ok(())
    }

    /// As [`InferAnswer`](crate::api::types::InferAnswer) reads them.
    pub fn into_json(self) -> Result<ChargedBytes, JobError> {
        let written = ChargedBytes::json(&self, Charge::none(self.account.clone()));
        let numbers = self.charge.bytes();
        // Of each number there is a digit and what divides it from the next, at least.
        let least = numbers / size_of::<f32>() as u64 * 2;
        written.map_err(|error: io::Error| match error.downcast::<OverLimit>() {
            // The numbers are held as well while they are written.
            Ok(over) => JobError::Memory(OverLimit { wanted: over.wanted.max(least).saturating_add(numbers), ..over }),
            Err(error) => JobError::Io { what: "writing outputs", error },
        })
    }
}

impl Serialize for Outputs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct All<'a>(&'a [Rows]);

        impl Serialize for All<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.0.iter().flat_map(|rows| rows.numbers.chunks(rows.width)))
            }
        }

        let mut answer = serializer.serialize_struct("InferAnswer", 1)?;
        answer.serialize_field("outputs", &All(&self.batches))?;
        answer.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::InferAnswer;

    #[test]
    fn an_answer_that_never_fits_beside_its_numbers_is_refused_for_good() {
        let account = Account::new("memory", 16 << 10, None);
        let mut outputs = Outputs::new(account.clone(), 1 << 20);
        let mut other = Charge::none(account);
        outputs.charge.grow(12 << 10).unwrap();
        outputs.batches.push(Rows { numbers: vec![0.0; 3 << 10], width: 1 });
        other.grow(4 << 10).unwrap();
        let Err(JobError::Memory(over)) = outputs.into_json() else { panic!("it fits") };
        assert!(over.never_fits(), "{over}");
    }

    #[test]
    fn what_is_written_is_what_clients_read() {
        let mut outputs = Outputs::new(Account::new("memory", 1 << 20, None), 1 << 20);
        outputs.batches.push(Rows { numbers: vec![1.0, 2.5, 3.0, f32::NAN], width: 2 });
        outputs.batches.push(Rows { numbers: vec![4.0], width: 1 });
        let json = outputs.into_json().unwrap();
        let read: InferAnswer = serde_json::from_slice(json.as_ref()).unwrap();
        assert_eq!(read.outputs.len(), 3);
        assert_eq!((&read.outputs[0][..], &read.outputs[2][..]), (&[1.0, 2.5][..], &[4.0][..]));
        assert!(read.outputs[1][0] == 3.0 && read.outputs[1][1].is_nan());
    }
}
