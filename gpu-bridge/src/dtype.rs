//! The types that tensors hold: `f32` to compute with, integers for images, labels and indices, `f16` for exchange.

use std::fmt;

/// What an element of a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    F32,
    F16,
    U8,
    I32,
    U32,
}

impl DType {
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::U8, Self::I32, Self::U32];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 => 2,
            Self::U8 => 1,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::U8 => "u8",
            Self::I32 => "i32",
            Self::U32 => "u32",
        }
    }

    /// Whether gradients can flow through a tensor of this type.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16)
    }

    /// Whether its values can name rows, classes or columns.
    pub const fn is_index(self) -> bool {
        matches!(self, Self::U8 | Self::I32 | Self::U32)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A Rust type that is a [`DType`].
pub trait Element: bytemuck::Pod + Send + Sync {
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for half::f16 {
    const DTYPE: DType = DType::F16;
}

impl Element for u8 {
    const DTYPE: DType = DType::U8;
}

impl Element for i32 {
    const DTYPE: DType = DType::I32;
}

impl Element for u32 {
    const DTYPE: DType = DType::U32;
}
