//! `weft:train/tensor`: handles to tensors, and the only way of bytes in and out.
//!
//! A handle is an index into [`Tensors`]. What a guest holds counts against `max_tensors`, and its bytes against the lease.

use wasmtime::Result;
use wasmtime::component::Resource;
use weft_gpu::{Context, DType, Tensor};

use super::HostState;
use super::bindings::weft::train::tensor::{Error, Host, HostTensor, TensorType};

/// Tensors that one instance may hold.
pub const MAX_TENSORS: usize = 16_384;

/// What a handle of the guest's stands for.
pub struct Handle;

/// Two handles.
pub type Pair = (Resource<Handle>, Resource<Handle>);

/// The tensors that a guest holds.
#[derive(Default)]
pub struct Tensors {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

enum Slot {
    Free,
    Held(Tensor),
    /// Declared in an `init` that has not returned: the number of its declaration.
    Declared(usize),
}

impl Tensors {
    pub fn get(&self, handle: u32) -> Result<&Tensor, Error> {
        match self.slots.get(handle as usize) {
            Some(Slot::Held(tensor)) => Ok(tensor),
            Some(Slot::Declared(_)) => {
                Err(Error::BadInput("a declared tensor has no value before `init` has returned".to_owned()))
            }
            // wasmtime has checked the handle.
            Some(Slot::Free) | None => Err(Error::Other("the host lost a tensor".to_owned())),
        }
    }

    pub fn hold(&mut self, tensor: Tensor) -> Result<Resource<Handle>, Error> {
        self.put(Slot::Held(tensor))
    }

    /// All of them or none: a guest that gets an error has no handle to drop.
    pub fn hold_all<const N: usize>(&mut self, tensors: [Tensor; N]) -> Result<[Resource<Handle>; N], Error> {
        self.check_room(N)?;
        Ok(tensors.map(|tensor| self.place(Slot::Held(tensor))))
    }

    pub fn declare(&mut self, number: usize) -> Result<Resource<Handle>, Error> {
        self.put(Slot::Declared(number))
    }

    fn put(&mut self, slot: Slot) -> Result<Resource<Handle>, Error> {
        self.check_room(1)?;
        Ok(self.place(slot))
    }

    fn check_room(&self, wanted: usize) -> Result<(), Error> {
        if MAX_TENSORS - self.slots.len() + self.free.len() >= wanted {
            return Ok(());
        }
        Err(Error::Quota(format!("{MAX_TENSORS} tensors are held (`max_tensors`): drop some first")))
    }

    fn place(&mut self, slot: Slot) -> Resource<Handle> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            (self.slots.len() - 1) as u32
        });
        self.slots[index as usize] = slot;
        Resource::new_own(index)
    }

    /// The guest gives up its handle.
    pub fn take(&mut self, handle: u32) -> Option<Tensor> {
        let slot = self.slots.get_mut(handle as usize)?;
        let old = std::mem::replace(slot, Slot::Free);
        if !matches!(old, Slot::Free) {
            self.free.push(handle);
        }
        match old {
            Slot::Held(tensor) => Some(tensor),
            Slot::Free | Slot::Declared(_) => None,
        }
    }

    /// Gives declared tensors their values.
    pub fn bind(&mut self, declared: &[Tensor]) {
        for slot in &mut self.slots {
            if let Slot::Declared(number) = slot {
                *slot = declared.get(*number).map_or(Slot::Free, |tensor| Slot::Held(tensor.clone()));
            }
        }
    }
}

impl From<TensorType> for DType {
    fn from(ty: TensorType) -> Self {
        match ty {
            TensorType::F32 => Self::F32,
            TensorType::F16 => Self::F16,
            TensorType::U8 => Self::U8,
            TensorType::I32 => Self::I32,
            TensorType::U32 => Self::U32,
        }
    }
}

impl From<DType> for TensorType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32,
            DType::F16 => Self::F16,
            DType::U8 => Self::U8,
            DType::I32 => Self::I32,
            DType::U32 => Self::U32,
        }
    }
}

impl From<weft_gpu::Error> for Error {
    fn from(error: weft_gpu::Error) -> Self {
        use weft_gpu::Error as E;
        let text = error.to_string();
        match error {
            E::BadShape { .. } | E::BadType { .. } | E::TooLarge { .. } => Self::BadShape(text),
            E::BadArgument { .. } | E::IndexOutOfRange { .. } => Self::BadInput(text),
            E::OutOfMemory { .. } | E::DeviceFull { .. } => Self::OutOfDeviceMemory(text),
            E::TapeFull { .. } => Self::Quota(text),
            E::Cancelled => Self::Cancelled,
            E::DeviceLost { .. } => Self::DeviceLost(text),
            E::Busy { .. } | E::Overwritten { .. } => Self::Conflict(text),
            E::AlreadyBackward { .. }
            | E::NoGradient { .. }
            | E::NotDifferentiable { .. }
            | E::ForeignTensor
            | E::Internal { .. } => Self::Other(text),
        }
    }
}

/// Sizes as `weft-gpu` takes them.
pub fn sizes(dimensions: &[u32]) -> smallvec::SmallVec<[usize; 8]> {
    dimensions.iter().map(|&size| size as usize).collect()
}

impl HostState {
    /// Where this instance computes.
    pub fn device(&self) -> Result<&Context, Error> {
        self.compute.context.as_ref().ok_or_else(|| Error::Quota("this function has no device here".to_owned()))
    }

    pub fn tensor(&self, handle: &Resource<Handle>) -> Result<&Tensor, Error> {
        self.compute.tensors.get(handle.rep())
    }

    /// Computes, or waits for the device: meanwhile others may have the guest's turn.
    pub(super) fn on_device<T>(&self, work: impl FnOnce(&Self) -> Result<T, Error>) -> Result<T, Error> {
        let _aside = self.aside();
        work(self)
    }

    /// Gives the guest a handle to what `make` makes.
    pub fn give(
        &mut self,
        make: impl FnOnce(&Self) -> Result<Tensor, Error>,
    ) -> wasmtime::Result<Result<Resource<Handle>, Error>> {
        let made = self.on_device(make);
        Ok(made.and_then(|tensor| self.compute.tensors.hold(tensor)))
    }

    /// Gives the guest handles to two tensors.
    pub fn give_pair(
        &mut self,
        make: impl FnOnce(&Self) -> Result<(Tensor, Tensor), Error>,
    ) -> wasmtime::Result<Result<Pair, Error>> {
        let made = self.on_device(make);
        Ok(made.and_then(|(first, second)| {
            let [first, second] = self.compute.tensors.hold_all([first, second])?;
            Ok((first, second))
        }))
    }

    /// A tensor, and how many bytes so many of its elements are.
    fn to_read(&self, handle: &Resource<Handle>, count: u64) -> Result<(&Tensor, usize), Error> {
        let tensor = self.tensor(handle)?;
        let bytes = self.check_payload(count.saturating_mul(tensor.dtype().size() as u64))?;
        Ok((tensor, bytes))
    }

    /// Refuses what is more than one call may carry.
    pub(super) fn check_payload(&self, bytes: u64) -> Result<usize, Error> {
        let limit = self.job.payload;
        match usize::try_from(bytes) {
            Ok(bytes) if bytes as u64 <= limit => Ok(bytes),
            _ => Err(Error::Quota(format!("{bytes} bytes at once are more than `max_payload` = {limit}"))),
        }
    }
}

impl HostTensor for HostState {
    fn rank(&mut self, this: Resource<Handle>) -> Result<u32> {
        Ok(self.tensor(&this).map_or(0, |tensor| tensor.shape().rank() as u32))
    }

    fn size(&mut self, this: Resource<Handle>, axis: u32) -> Result<u32> {
        let tensor = self.tensor(&this);
        Ok(tensor.ok().and_then(|tensor| tensor.shape().get(axis as usize).copied()).unwrap_or(0) as u32)
    }

    fn dimensions(&mut self, this: Resource<Handle>) -> Result<Vec<u32>> {
        Ok(self.tensor(&this).map_or_else(|_| Vec::new(), |t| t.shape().iter().map(|&size| size as u32).collect()))
    }

    fn ty(&mut self, this: Resource<Handle>) -> Result<TensorType> {
        Ok(self.tensor(&this).map_or(TensorType::F32, |tensor| tensor.dtype().into()))
    }

    fn share(&mut self, this: Resource<Handle>) -> Result<Result<Resource<Handle>, Error>> {
        self.give(|host| host.tensor(&this).cloned())
    }

    fn read(&mut self, this: Resource<Handle>, start: u64, count: u64) -> Result<Result<Vec<u8>, Error>> {
        Ok(self.on_device(|host| {
            let (tensor, bytes) = host.to_read(&this, count)?;
            let mut read = vec![0; bytes];
            tensor.read(usize::try_from(start).unwrap_or(usize::MAX), &mut read)?;
            Ok(read)
        }))
    }

    fn item(&mut self, this: Resource<Handle>) -> Result<Result<f32, Error>> {
        Ok(self.on_device(|host| Ok(host.tensor(&this)?.item()?)))
    }

    fn write(&mut self, this: Resource<Handle>, start: u64, bytes: Vec<u8>) -> Result<Result<(), Error>> {
        Ok(self
            .on_device(|host| Ok(host.tensor(&this)?.write(usize::try_from(start).unwrap_or(usize::MAX), &bytes)?)))
    }

    fn drop(&mut self, this: Resource<Handle>) -> Result<()> {
        self.compute.tensors.take(this.rep());
        Ok(())
    }
}

impl Host for HostState {
    fn create(
        &mut self,
        ty: TensorType,
        dimensions: Vec<u32>,
        bytes: Vec<u8>,
    ) -> Result<Result<Resource<Handle>, Error>> {
        self.give(|host| {
            let (dtype, sizes) = (DType::from(ty), sizes(&dimensions));
            let shape = weft_gpu::Shape::new(&sizes)?;
            let wanted = shape.elements().saturating_mul(dtype.size());
            if wanted != bytes.len() {
                let text = format!("{} bytes for {shape:?} of {dtype}, which takes {wanted}", bytes.len());
                return Err(Error::BadShape(text));
            }
            let tensor = host.device()?.full(&sizes, dtype, 0.0)?;
            tensor.write(0, &bytes)?;
            Ok(tensor)
        })
    }

    fn full(&mut self, ty: TensorType, dimensions: Vec<u32>, value: f64) -> Result<Result<Resource<Handle>, Error>> {
        self.give(|host| Ok(host.device()?.full(&sizes(&dimensions), ty.into(), value)?))
    }
}

/// What an instance computes with.
#[derive(Default)]
pub struct Compute {
    context: Option<Context>,
    pub tensors: Tensors,
    /// The run's random numbers: how many were drawn in this call, of which stream.
    pub draws: Draws,
}

impl Compute {
    pub fn on(context: Context) -> Self {
        Self { context: Some(context), ..Self::default() }
    }
}

/// Random numbers by seed, step and place in the call: a call that is repeated draws the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct Draws {
    pub seed: u64,
    pub step: u64,
    pub drawn: u64,
}

impl Draws {
    /// Draws of one step that cannot meet those of the next.
    const MOST: u64 = 1 << 20;

    pub fn draw(&mut self) -> Result<weft_gpu::op::Stream, Error> {
        if self.drawn == Self::MOST {
            return Err(Error::Quota(format!("more than {} random tensors in one call (`max_draws`)", Self::MOST)));
        }
        self.drawn += 1;
        Ok(weft_gpu::op::Stream {
            seed: self.seed,
            offset: self.step.wrapping_mul(Self::MOST).wrapping_add(self.drawn),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_gpu::device::cpu::Cpu;
    use weft_gpu::{Crew, Limits};

    use super::*;

    #[test]
    fn tensors_that_come_together_find_room_together() {
        let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
        let tensor = context.full(&[1], DType::F32, 0.0).unwrap();
        let mut tensors = Tensors::default();
        for _ in 1..MAX_TENSORS {
            tensors.hold(tensor.clone()).unwrap();
        }
        assert!(matches!(tensors.hold_all([tensor.clone(), tensor.clone()]), Err(Error::Quota(_))));
        let last = tensors.hold(tensor.clone()).unwrap();
        assert!(matches!(tensors.hold(tensor.clone()), Err(Error::Quota(_))));
        assert!(tensors.take(last.rep()).is_some());
        assert!(tensors.hold_all([tensor]).is_ok());
    }
}
