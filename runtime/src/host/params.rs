//! `weft:train/params`: the parameter store as a task sees it. Tensors go to it and come from it here, never through the
//! guest's memory.
//!
//! Only the name of a value comes from the guest; tenant and job are the host's. A trainer has no store: what it computes
//! must follow from what it is given.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::Result;
use wasmtime::component::Resource;
use weft_gpu::Tensor;

use super::HostState;
use super::task::weft::train::params::{Error, Host, HostBucket, PeerValue, Versioned};
use super::tensor::Handle;
use crate::names::Name;
use crate::params::bucket::{Contributed, Keeping, MAX_PAGE, TAKES};
use crate::params::{BadKey, BadValue, Bucket, Entry, Expect, Form, Key, ParamError, ParamStore, Space, Value};
use crate::tenant::{Charge, Tenant};

/// What an instance needs of the store.
pub struct Params {
    pub store: Arc<dyn ParamStore>,
    pub tenant: Arc<Tenant>,
}

impl From<ParamError> for Error {
    fn from(error: ParamError) -> Self {
        let text = error.told();
        if text != error.to_string() {
            tracing::warn!(%error, "the parameter store failed a function");
        }
        match error {
            ParamError::Conflict { .. } | ParamError::Fenced { .. } => Self::Conflict(text),
            ParamError::WrongForm { .. } => Self::BadShape(text),
            ParamError::Overflow(_)
            | ParamError::BadRange { .. }
            | ParamError::Repeated(_)
            | ParamError::TooMany { .. } => Self::BadInput(text),
            ParamError::OverLimit(_) | ParamError::KeptAnswers { .. } | ParamError::Full(_) => Self::Quota(text),
            ParamError::TimedOut { .. }
            | ParamError::Ended
            | ParamError::Lost(_)
            | ParamError::Unavailable(_)
            | ParamError::Damaged(_) => Self::Other(text),
        }
    }
}

impl From<BadKey> for Error {
    fn from(error: BadKey) -> Self {
        Self::BadInput(error.to_string())
    }
}

impl From<BadValue> for Error {
    fn from(error: BadValue) -> Self {
        Self::BadShape(error.to_string())
    }
}

fn key(name: &str) -> Result<Key, Error> {
    Ok(name.parse::<Key>()?)
}

fn span(milliseconds: u64) -> Option<Duration> {
    Some(milliseconds).filter(|&milliseconds| milliseconds > 0).map(Duration::from_millis)
}

impl HostState {
    fn params(&self) -> Result<&Params, Error> {
        let absent = "there is no parameter store here: the host exchanges what a trainer computes";
        self.params.as_ref().ok_or_else(|| Error::Other(absent.to_owned()))
    }

    fn bucket(&self, this: &Resource<Bucket>) -> Result<Bucket, Error> {
        let bucket = self.handles.get(this).map_err(|error| Error::Other(error.to_string()))?;
        Ok(bucket.clone())
    }

    /// How long a guest may wait.
    fn patience(&self, milliseconds: u64) -> Duration {
        let left = self.job.deadline.saturating_duration_since(Instant::now());
        left.min(Duration::from_millis(milliseconds))
    }

    /// Counts so many bytes until the result is dropped: they are between the store and the device.
    fn in_flight(&self, bytes: u64) -> Result<Charge, Error> {
        let params = self.params()?;
        let mut charge = Charge::none(params.tenant.memory.clone());
        charge.grow(bytes).map_err(|over| Error::Quota(over.to_string()))?;
        params.tenant.ledger.charge_params(1, bytes);
        Ok(charge)
    }

    /// A tensor's value, and what counts it.
    async fn value_of(&mut self, tensor: &Resource<Handle>) -> Result<(Value, Charge), Error> {
        let tensor = self.tensor(tensor)?.clone();
        let bytes = tensor.shape().elements() * tensor.dtype().size();
        let charge = self.in_flight(bytes as u64)?;
        let (dtype, shape) = (tensor.dtype(), tensor.shape().iter().map(|&size| size as u64).collect());
        let data = self.on_device(|_| {
            let mut read = vec![0; bytes];
            tensor.read(0, &mut read)?;
            Ok(read)
        })?;
        Ok((Value::tensor(dtype, shape, data)?, charge))
    }

    fn tensor_of(&self, key: &str, entry: &Entry) -> Result<Tensor, Error> {
        let Form::Tensor { dtype, shape } = &entry.value.form else {
            return Err(Error::BadShape(format!("`{key}` is {}, and a tensor was wanted", entry.value.form)));
        };
        let sizes: Vec<usize> = shape.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect();
        self.on_device(|host| {
            let tensor = host.device()?.full(&sizes, dtype.0, 0.0)?;
            tensor.write(0, &entry.value.data)?;
            Ok(tensor)
        })
    }

    /// What was found, as a tensor that the guest holds.
    fn found(&mut self, key: &str, entry: Option<Entry>) -> Result<Option<Versioned>, Error> {
        let Some(entry) = entry else { return Ok(None) };
        let _in_flight = self.in_flight(entry.value.data.len() as u64)?;
        let tensor = self.tensor_of(key, &entry)?;
        Ok(Some(Versioned { value: self.compute.tensors.hold(tensor)?, version: entry.version }))
    }
}

/// A method's answer: what goes wrong with the host's own parts is the guest's to hear.
macro_rules! answer {
    ($work:block) => {{
        let answer: Result<_, Error> = async move $work.await;
        Ok(answer)
    }};
}

impl HostBucket for HostState {
    async fn get(&mut self, this: Resource<Bucket>, name: String) -> Result<Result<Option<Versioned>, Error>> {
        answer!({
            let (bucket, key) = (self.bucket(&this)?, key(&name)?);
            let entry = bucket.get(&key).await?;
            self.found(&name, entry)
        })
    }

    async fn get_if_newer(
        &mut self,
        this: Resource<Bucket>,
        name: String,
        known: u64,
    ) -> Result<Result<Option<Versioned>, Error>> {
        answer!({
            let (bucket, key) = (self.bucket(&this)?, key(&name)?);
            let entry = bucket.get_if_newer(&key, known).await?;
            self.found(&name, entry)
        })
    }

    async fn wait_newer(
        &mut self,
        this: Resource<Bucket>,
        name: String,
        known: u64,
        at_most_ms: u64,
    ) -> Result<Result<Versioned, Error>> {
        answer!({
            let (bucket, key) = (self.bucket(&this)?, key(&name)?);
            let entry = bucket.wait_newer(&key, known, self.patience(at_most_ms)).await?;
            self.found(&name, Some(entry))?.ok_or_else(|| Error::NotFound(name.clone()))
        })
    }

    async fn set(
        &mut self,
        this: Resource<Bucket>,
        name: String,
        value: Resource<Handle>,
        expires_ms: u64,
        durable: bool,
    ) -> Result<Result<u64, Error>> {
        answer!({
            let (bucket, key) = (self.bucket(&this)?, key(&name)?);
            let (value, _in_flight) = self.value_of(&value).await?;
            Ok(bucket.set(key, value, Keeping { expires: span(expires_ms), durable }).await?)
        })
    }

    async fn compare_and_set(
        &mut self,
        this: Resource<Bucket>,
        name: String,
        expected: u64,
        value: Resource<Handle>,
    ) -> Result<Result<u64, Error>> {
        answer!({
            let (bucket, key) = (self.bucket(&this)?, key(&name)?);
            let (value, _in_flight) = self.value_of(&value).await?;
            let expected = if expected == 0 { Expect::Absent } else { Expect::Version(expected) };
            Ok(bucket.compare_and_set(key, expected, value, Keeping::default()).await?)
        })
    }

    async fn get_bytes(&mut self, this: Resource<Bucket>, name: String) -> Result<Result<Option<Vec<u8>>, Error>> {
        answer!({
            let (bucket, key) = (self.bucket(&this)?, key(&name)?);
            let Some(entry) = bucket.get(&key).await? else { return Ok(None) };
            let _in_flight = self.in_flight(entry.value.data.len() as u64)?;
            self.check_payload(entry.value.data.len() as u64)?;
            Ok(Some(entry.value.data.to_vec()))
        })
    }

    async fn set_bytes(&mut self, this: Resource<Bucket>, name: String, value: Vec<u8>) -> Result<Result<u64, Error>> {
        answer!({
            let (bucket, key) = (self.bucket(&this)?, key(&name)?);
            let _in_flight = self.in_flight(value.len() as u64)?;
            Ok(bucket.set(key, Value::bytes(value), Keeping::default()).await?)
        })
    }

    async fn increment(&mut self, this: Resource<Bucket>, name: String, by: i64) -> Result<Result<i64, Error>> {
        answer!({
            let (bucket, key) = (self.bucket(&this)?, key(&name)?);
            let _in_flight = self.in_flight(8)?;
            Ok(bucket.increment(key, by).await?)
        })
    }

    async fn delete(&mut self, this: Resource<Bucket>, name: String) -> Result<Result<bool, Error>> {
        answer!({ Ok(self.bucket(&this)?.delete(&[key(&name)?]).await? > 0) })
    }

    async fn take(&mut self, this: Resource<Bucket>, name: String) -> Result<Result<Option<Versioned>, Error>> {
        answer!({
            let (bucket, key) = (self.bucket(&this)?, key(&name)?);
            let mut further_tries = 1..TAKES;
            loop {
                // The guest holds it before it is deleted: what cannot be given to the guest stays.
                let entry = bucket.get(&key).await?;
                let Some(found) = self.found(&name, entry)? else {
                    bucket.delete_unchanged(Vec::new()).await?;
                    return Ok(None);
                };
                let Err(error) = bucket.delete_unchanged(vec![(key.clone(), found.version)]).await else {
                    return Ok(Some(found));
                };
                // A guest that gets an error has no handle to drop.
                drop(self.compute.tensors.take(found.value.rep()));
                if !matches!(error, ParamError::Conflict { .. }) || further_tries.next().is_none() {
                    return Err(error.into());
                }
            }
        })
    }

    async fn expire(&mut self, this: Resource<Bucket>, name: String, after_ms: u64) -> Result<Result<bool, Error>> {
        answer!({ Ok(self.bucket(&this)?.expire(&[key(&name)?], span(after_ms)).await? > 0) })
    }

    async fn list(
        &mut self,
        this: Resource<Bucket>,
        prefix: String,
        after: String,
        at_most: u32,
    ) -> Result<Result<Vec<String>, Error>> {
        answer!({
            let bucket = self.bucket(&this)?;
            let after = if after.is_empty() { None } else { Some(key(&after)?) };
            let page = bucket.list(&prefix, after.as_ref(), (at_most as usize).min(MAX_PAGE)).await?;
            Ok(page.items.into_iter().map(|(key, _)| key.into()).collect())
        })
    }

    async fn contribute(
        &mut self,
        this: Resource<Bucket>,
        round: String,
        worker: u32,
        value: Resource<Handle>,
    ) -> Result<Result<bool, Error>> {
        answer!({
            let (bucket, round) = (self.bucket(&this)?, key(&round)?);
            let (value, _in_flight) = self.value_of(&value).await?;
            Ok(bucket.contribute(&round, worker, value, Keeping::default()).await? == Contributed::Counted)
        })
    }

    async fn merged(
        &mut self,
        this: Resource<Bucket>,
        round: String,
        workers: u32,
        at_most_ms: u64,
    ) -> Result<Result<Resource<Handle>, Error>> {
        answer!({
            let (bucket, key) = (self.bucket(&this)?, key(&round)?);
            let entry = bucket.merged(&key, workers, self.patience(at_most_ms)).await?;
            let found = self.found(&round, Some(entry))?;
            found.map(|found| found.value).ok_or_else(|| Error::NotFound(round.clone()))
        })
    }

    async fn barrier(
        &mut self,
        this: Resource<Bucket>,
        name: String,
        worker: u32,
        workers: u32,
        at_most_ms: u64,
    ) -> Result<Result<(), Error>> {
        answer!({
            let (bucket, key) = (self.bucket(&this)?, key(&name)?);
            Ok(bucket.barrier(&key, worker, workers, self.patience(at_most_ms)).await?)
        })
    }

    async fn publish(
        &mut self,
        this: Resource<Bucket>,
        topic: String,
        peer: u32,
        value: Resource<Handle>,
    ) -> Result<Result<u64, Error>> {
        answer!({
            let (bucket, topic) = (self.bucket(&this)?, key(&topic)?);
            let (value, _in_flight) = self.value_of(&value).await?;
            Ok(bucket.publish(&topic, peer, value, Keeping::default()).await?)
        })
    }

    async fn latest(&mut self, this: Resource<Bucket>, topic: String) -> Result<Result<Vec<PeerValue>, Error>> {
        answer!({
            let (bucket, key) = (self.bucket(&this)?, key(&topic)?);
            let latest = bucket.latest(&key).await?;
            let mut values: Vec<PeerValue> = Vec::with_capacity(latest.len());
            for (peer, entry) in latest {
                match self.found(&topic, Some(entry)) {
                    Ok(Some(Versioned { value, version })) => values.push(PeerValue { peer, value, version }),
                    Ok(None) => {}
                    Err(error) => {
                        // A guest that gets an error has no handles to drop.
                        values.iter().for_each(|held| drop(self.compute.tensors.take(held.value.rep())));
                        return Err(error);
                    }
                }
            }
            Ok(values)
        })
    }

    async fn claim(&mut self, this: Resource<Bucket>, name: String) -> Result<Result<u64, Error>> {
        answer!({
            let claimed = self.bucket(&this)?.claimed(&key(&name)?).await?;
            let epoch = claimed.fence().map_or(0, |fence| fence.epoch);
            let bucket = self.handles.get_mut(&this).map_err(|error| Error::Other(error.to_string()))?;
            *bucket = claimed;
            Ok(epoch)
        })
    }

    async fn drop(&mut self, this: Resource<Bucket>) -> Result<()> {
        self.handles.delete(this)?;
        Ok(())
    }
}

impl Host for HostState {
    fn open(&mut self, job: String) -> Result<Result<Resource<Bucket>, Error>> {
        let mut open = || -> Result<Resource<Bucket>, Error> {
            let Params { store, tenant } = self.params()?;
            let job = match job.is_empty() {
                true => None,
                false => Some(job.parse::<Name>().map_err(|error| Error::BadInput(error.to_string()))?),
            };
            let space = Space { tenant: tenant.store.clone(), job };
            let payer = tenant.clone();
            let bucket = Bucket::new(store.clone(), space, tenant.params.clone())
                .telling(Arc::new(move |cpu| payer.ledger.charge_cpu(cpu)));
            let full = |_| Error::Quota("too many handles are held (`max_handles`): drop some first".to_owned());
            self.handles.push(bucket).map_err(full)
        };
        Ok(open())
    }
}
