//! Host memory, and operands that borrow it while a kernel runs.
//!
//! Tensors may be shared between threads, and some operations write in place. So memory counts who uses it: many readers
//! or one writer. A call that comes upon a conflict is refused, not made to wait, so there is nothing to deadlock on.

use std::alloc::{Layout as AllocLayout, alloc_zeroed, dealloc};
use std::any::Any;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicIsize, Ordering};

use super::mapping::Mapping;
use crate::device::{Memory, View};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::heap::Block;
use crate::shape::Layout;

/// A cache line, and the widest vector.
const ALIGNMENT: usize = 64;

pub(super) struct HostMemory {
    start: NonNull<u8>,
    bytes: usize,
    /// What `start` is the start of, until it is dropped.
    _held: Held,
    /// Readers, or -1 while it is written.
    users: AtomicIsize,
}

// SAFETY: the bytes are only reached through `Borrow`, which keeps a writer alone.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl Memory for HostMemory {}

impl HostMemory {
    pub(super) fn zeroed(bytes: usize) -> Result<Self> {
        let out_of_memory = || Error::OutOfMemory { wanted: bytes, used: 0, limit: usize::MAX };
        let (start, held) = match Mapping::zeroed(bytes) {
            Some(mapping) => (mapping.start(), Held::Mapped(mapping)),
            None => {
                let allocated = Allocated::zeroed(bytes).ok_or_else(out_of_memory)?;
                (allocated.start, Held::Allocated(allocated))
            }
        };
        Ok(Self { start, bytes, _held: held, users: AtomicIsize::new(0) })
    }

    pub(super) fn of<'a>(memory: &'a dyn Memory, op: &'static str) -> Result<&'a Self> {
        (memory as &dyn Any)
            .downcast_ref()
            .ok_or_else(|| Error::Internal { op, reason: "the memory belongs to another device".into() })
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let _borrow = Borrow::exclusive(self, "write")?;
        self.check("write", offset, bytes.len())?;
        // SAFETY: within bounds, and nobody else uses the memory while the borrow lives.
        unsafe { self.start.add(offset).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }

    pub(super) fn write_with(&self, offset: usize, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let _borrow = Borrow::exclusive(self, "write")?;
        self.check("write", offset, bytes)?;
        // SAFETY: within bounds, initialised since it was allocated as zeros, and nobody else uses the memory while the
        // borrow lives.
        fill(unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), bytes) });
        Ok(())
    }

    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let _borrow = Borrow::shared(self, "read")?;
        self.check("read", offset, bytes.len())?;
        // SAFETY: within bounds, and nobody writes while the borrow lives.
        unsafe { self.start.add(offset).copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
        Ok(())
    }

    fn check(&self, op: &'static str, offset: usize, bytes: usize) -> Result<()> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(Error::Internal { op, reason: "an operand lies outside its memory".into() });
        }
        Ok(())
    }
}

/// Where memory came from, and where it goes back to.
#[expect(dead_code, reason = "both are there to be dropped")]
enum Held {
    Allocated(Allocated),
    Mapped(Mapping),
}

/// What the allocator gave.
struct Allocated {
    start: NonNull<u8>,
    layout: AllocLayout,
}

impl Allocated {
    fn zeroed(bytes: usize) -> Option<Self> {
        let layout = AllocLayout::from_size_align(bytes.max(1), ALIGNMENT).ok()?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, layout })
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and no borrow outlives the memory.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// The floats of a block that nobody else has.
pub(crate) fn scratch_floats(block: &mut Block, floats: usize) -> &mut [f32] {
    let floats = floats.min(block.bytes() / 4);
    match HostMemory::of(block.memory(), "scratch") {
        // SAFETY: the block is borrowed exclusively and is that long; any bits are floats, and memory starts as zeros.
        Ok(memory) => unsafe { std::slice::from_raw_parts_mut(memory.start.as_ptr().cast(), floats) },
        Err(_) => &mut [],
    }
}

/// The right to use some memory.
struct Borrow<'a> {
    memory: &'a HostMemory,
    exclusive: bool,
}

impl<'a> Borrow<'a> {
    fn shared(memory: &'a HostMemory, op: &'static str) -> Result<Self> {
        memory
            .users
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |users| (users >= 0).then_some(users + 1))
            .map_err(|_| Error::Busy { op })?;
        Ok(Self { memory, exclusive: false })
    }

    fn exclusive(memory: &'a HostMemory, op: &'static str) -> Result<Self> {
        memory.users.compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed).map_err(|_| Error::Busy { op })?;
        Ok(Self { memory, exclusive: true })
    }
}

impl Drop for Borrow<'_> {
    fn drop(&mut self) {
        if self.exclusive {
            self.memory.users.store(0, Ordering::Release);
        } else {
            self.memory.users.fetch_sub(1, Ordering::Release);
        }
    }
}

/// An operand that is read.
pub(super) struct Input<'a> {
    borrow: Borrow<'a>,
    op: &'static str,
    pub layout: &'a Layout,
    pub dtype: DType,
}

impl<'a> Input<'a> {
    pub(super) fn borrow(op: &'static str, view: &View<'a>) -> Result<Self> {
        let memory = HostMemory::of(view.memory, op)?;
        memory.check(op, 0, view.layout.end() * view.dtype.size())?;
        Ok(Self { borrow: Borrow::shared(memory, op)?, op, layout: view.layout, dtype: view.dtype })
    }

    /// The elements from the first to the last that the layout uses: all of them, in order, if it is contiguous.
    pub(super) fn elements<T: Element>(&self) -> Result<&[T]> {
        check_type::<T>(self.op, self.dtype)?;
        let count = self.layout.end() - self.layout.offset;
        // SAFETY: checked to lie within the memory, which nobody writes while it is borrowed; any bits are a `T`.
        Ok(unsafe {
            std::slice::from_raw_parts(self.borrow.memory.start.as_ptr().cast::<T>().add(self.layout.offset), count)
        })
    }

    pub(super) fn floats(&self) -> Result<&[f32]> {
        self.elements()
    }

    /// The elements as indices, whichever integer type they are.
    pub(super) fn indices(&self) -> Result<Indices<'_>> {
        match self.dtype {
            DType::U8 => self.elements().map(Indices::U8),
            DType::I32 => self.elements().map(Indices::I32),
            _ => self.elements().map(Indices::U32),
        }
    }
}

/// An operand that is written.
pub(super) struct Output<'a> {
    borrow: Borrow<'a>,
    op: &'static str,
    pub layout: &'a Layout,
    pub dtype: DType,
    exclusive: PhantomData<&'a mut u8>,
}

impl<'a> Output<'a> {
    pub(super) fn borrow(op: &'static str, view: &View<'a>) -> Result<Self> {
        let memory = HostMemory::of(view.memory, op)?;
        memory.check(op, 0, view.layout.end() * view.dtype.size())?;
        let borrow = Borrow::exclusive(memory, op)?;
        Ok(Self { borrow, op, layout: view.layout, dtype: view.dtype, exclusive: PhantomData })
    }

    pub(super) fn elements<T: Element>(&mut self) -> Result<&mut [T]> {
        check_type::<T>(self.op, self.dtype)?;
        let count = self.layout.end() - self.layout.offset;
        // SAFETY: checked to lie within the memory, which nobody else uses while it is borrowed; any bits are a `T`.
        Ok(unsafe {
            std::slice::from_raw_parts_mut(self.borrow.memory.start.as_ptr().cast::<T>().add(self.layout.offset), count)
        })
    }

    pub(super) fn floats(&mut self) -> Result<&mut [f32]> {
        self.elements()
    }
}

fn check_type<T: Element>(op: &'static str, dtype: DType) -> Result<()> {
    if T::DTYPE != dtype {
        return Err(Error::Internal { op, reason: format!("a kernel for {} was given {dtype}", T::DTYPE) });
    }
    Ok(())
}

/// Labels, rows or columns.
#[derive(Clone, Copy)]
pub(super) enum Indices<'a> {
    U8(&'a [u8]),
    I32(&'a [i32]),
    U32(&'a [u32]),
}

impl Indices<'_> {
    pub(super) fn get(self, at: usize) -> i64 {
        match self {
            Self::U8(values) => i64::from(values[at]),
            Self::I32(values) => i64::from(values[at]),
            Self::U32(values) => i64::from(values[at]),
        }
    }

    /// The index at a place; an error that names `what` if it is not below `count`.
    pub(super) fn checked(self, at: usize, count: usize, op: &'static str, what: &'static str) -> Result<usize> {
        let index = self.get(at);
        usize::try_from(index).ok().filter(|&index| index < count).ok_or(Error::IndexOutOfRange {
            op,
            what,
            index,
            count,
        })
    }
}
