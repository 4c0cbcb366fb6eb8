//! A tensor: part of a buffer, seen under a layout, perhaps with a history.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::Context;
use crate::device::View;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::heap::Block;
use crate::op::{Meta, Op};
use crate::shape::{Layout, Shape};
use crate::tape::{History, Leaf};

// The operations as methods, by family.
mod arena;
mod codec;
mod convolution;
mod elementwise;
mod layout;
mod loss;
mod matrix;
mod normalization;
mod pooling;
mod random;
mod reduction;
mod sparse;

/// A tensor of a [`Context`]. Clones are the same tensor; views (what [`Self::permute`], [`Self::expand`],
/// [`Self::slice`] and, where it can, [`Self::reshape`] give) share its memory, so what is written to one is seen
/// through all.
///
/// Operations give new tensors, unless they say that they write in place.
#[derive(Clone)]
pub struct Tensor {
    context: Context,
    storage: Arc<Storage>,
    layout: Layout,
    dtype: DType,
    history: Option<History>,
}

/// Memory, and how often it was written in place.
pub(crate) struct Storage {
    block: Block,
    version: AtomicU64,
}

impl Storage {
    pub(crate) fn new(block: Block) -> Self {
        Self { block, version: AtomicU64::new(0) }
    }

    /// How often the memory was written in place.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Says that the memory is written.
    pub(crate) fn touch(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }
}

impl Tensor {
    pub(crate) fn new(context: Context, storage: Arc<Storage>, layout: Layout, dtype: DType) -> Self {
        Self { context, storage, layout, dtype, history: None }
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    pub fn shape(&self) -> Shape {
        self.layout.shape
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn meta(&self) -> Meta {
        Meta::new(self.layout.shape, self.dtype)
    }

    /// How often the memory, which views share, was written in place.
    pub fn version(&self) -> u64 {
        self.storage.version()
    }

    /// The same values in the same memory, cut off from the tape: no gradient flows through it.
    pub fn detach(&self) -> Self {
        Self { history: None, ..self.clone() }
    }

    /// The same memory as the start of a history: gradients flow to the tensor that this gives and to its clones, not
    /// to `self`. With `gradient` they are written there, else a tensor is made for them. Only f32 can be a parameter.
    pub fn parameter(&self, gradient: Option<&Self>) -> Result<Self> {
        if self.dtype != DType::F32 {
            return Err(Error::dtype("parameter", 0, self.dtype, "f32"));
        }
        if let Some(gradient) = gradient {
            if gradient.meta() != self.meta() {
                return Err(Error::mismatch("parameter", "its gradient differs", &self.shape(), &gradient.shape()));
            }
            if !gradient.layout.is_contiguous() || gradient.shares_storage(self) || !gradient.context.is(&self.context)
            {
                return Err(Error::argument(
                    "parameter",
                    "its gradient must be contiguous memory of its own, of the same context",
                ));
            }
        }
        let leaf = Leaf::new(gradient.map(Self::detach));
        Ok(Self { history: Some(History::Leaf(Arc::new(leaf))), ..self.clone() })
    }

    /// The gradient of a parameter, once a backward has reached it. Of anything else there is none.
    pub fn gradient(&self) -> Option<Self> {
        self.history.as_ref()?.leaf()?.gradient()
    }

    /// Forgets the gradient of a parameter: the next backward starts anew.
    pub fn clear_gradient(&self) {
        if let Some(leaf) = self.history.as_ref().and_then(History::leaf) {
            leaf.clear();
        }
    }

    /// Makes the gradient of a parameter zero if there is none, in the place that it was given.
    pub(crate) fn settle_gradient(&self) -> Result<()> {
        match self.history.as_ref().and_then(History::leaf) {
            Some(leaf) => leaf.settle(&self.context),
            None => Ok(()),
        }
    }

    /// Computes the gradients of all parameters that this loss, a tensor of one element, descends from, and adds them
    /// to those that are there: see [`Self::clear_gradient`]. What was recorded is used up; a second backward is
    /// refused.
    pub fn backward(&self) -> Result<()> {
        crate::tape::backward(self, None)
    }

    /// Like [`Self::backward`] for a tensor that is not a loss: `gradient`, of its shape, is what flows back from here.
    /// Gradients are f32, of f16 too.
    pub fn backward_from(&self, gradient: &Self) -> Result<()> {
        if gradient.dtype != DType::F32 {
            return Err(Error::dtype("backward", 0, gradient.dtype, "f32"));
        }
        if gradient.shape() != self.shape() {
            return Err(Error::mismatch("backward", "the gradient differs in shape", &self.shape(), &gradient.shape()));
        }
        crate::tape::backward(self, Some(gradient.detach()))
    }

    /// Copies bytes in, whole elements in native byte order, from an element on. The tensor must be contiguous.
    pub fn write(&self, element: usize, bytes: &[u8]) -> Result<()> {
        let offset = self.byte_range("write", element, bytes.len())?;
        self.storage.touch();
        self.context.device().write(self.storage.block.memory(), offset, bytes)
    }

    /// Lets `fill` write all bytes of a contiguous tensor, where they lie if the host can reach them.
    pub(crate) fn write_with(&self, mut fill: impl FnMut(&mut [u8])) -> Result<()> {
        let bytes = self.meta().bytes();
        let offset = self.byte_range("write", 0, bytes)?;
        self.storage.touch();
        self.context.device().write_with(self.storage.block.memory(), offset, bytes, &mut fill)
    }

    /// Copies bytes out, whole elements, from an element on: counted row after row, whatever the layout.
    pub fn read(&self, element: usize, bytes: &mut [u8]) -> Result<()> {
        if !self.layout.is_contiguous() {
            let copy = self.context.execute(&Op::Copy(crate::op::Copy), &[self])?;
            return copy[0].read(element, bytes);
        }
        let offset = self.byte_range("read", element, bytes.len())?;
        self.context.device().read(self.storage.block.memory(), offset, bytes)
    }

    /// All elements, row after row. `T` must be the type of the tensor.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype {
            return Err(Error::dtype("read", 0, self.dtype, T::DTYPE.name()));
        }
        // A view may repeat its elements without end. A copy of it on the device is held against the limit, so that no more
        // than that is allocated here.
        let rows = self.detach().contiguous()?;
        let mut elements = vec![T::zeroed(); rows.shape().elements()];
        rows.read(0, bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }

    /// The value of a tensor of one f32.
    pub fn item(&self) -> Result<f32> {
        match self.to_vec::<f32>()?.as_slice() {
            [value] => Ok(*value),
            _ => Err(Error::shape("item", format!("{:?} is not one element", self.shape()))),
        }
    }

    fn byte_range(&self, op: &'static str, element: usize, bytes: usize) -> Result<usize> {
        let size = self.dtype.size();
        let elements = self.shape().elements();
        if !self.layout.is_contiguous() {
            return Err(Error::argument(op, "the tensor is a view whose elements lie apart; copy it first"));
        }
        if element > elements || !bytes.is_multiple_of(size) || bytes / size > elements - element {
            return Err(Error::shape(
                op,
                format!("{bytes} bytes from element {element} do not fit {:?} of {}", self.shape(), self.dtype),
            ));
        }
        Ok((self.layout.offset + element) * size)
    }

    pub(crate) fn view(&self) -> View<'_> {
        View { memory: self.storage.block.memory(), layout: &self.layout, dtype: self.dtype }
    }

    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        Self { layout, history: None, ..self.clone() }
    }

    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    pub(crate) fn shares_storage(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }

    /// Whether nobody else can see its memory.
    pub(crate) fn owns_storage(&self) -> bool {
        Arc::strong_count(&self.storage) == 1
    }

    pub(crate) fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }

    pub(crate) fn set_history(&mut self, history: History) {
        self.history = Some(history);
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Tensor({} {:?})", self.dtype, self.shape())
    }
}
