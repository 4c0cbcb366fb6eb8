//! A number as every other type: truncated, kept within range, and NaN as 0.

use half::f16;

use crate::dtype::Element;

pub(super) trait Number: Element {
    fn to_f32(self) -> f32;
    fn to_u8(self) -> u8;
    fn to_i32(self) -> i32;
    fn to_u32(self) -> u32;
}

impl Number for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn to_u8(self) -> u8 {
        self as u8
    }

    #[inline(always)]
    fn to_i32(self) -> i32 {
        self as i32
    }

    #[inline(always)]
    fn to_u32(self) -> u32 {
        self as u32
    }
}

impl Number for f16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }

    #[inline(always)]
    fn to_u8(self) -> u8 {
        f16::to_f32(self) as u8
    }

    #[inline(always)]
    fn to_i32(self) -> i32 {
        f16::to_f32(self) as i32
    }

    #[inline(always)]
    fn to_u32(self) -> u32 {
        f16::to_f32(self) as u32
    }
}

impl Number for u8 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from(self)
    }

    #[inline(always)]
    fn to_u8(self) -> u8 {
        self
    }

    #[inline(always)]
    fn to_i32(self) -> i32 {
        i32::from(self)
    }

    #[inline(always)]
    fn to_u32(self) -> u32 {
        u32::from(self)
    }
}

impl Number for i32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn to_u8(self) -> u8 {
        self.clamp(0, 255) as u8
    }

    #[inline(always)]
    fn to_i32(self) -> i32 {
        self
    }

    #[inline(always)]
    fn to_u32(self) -> u32 {
        self.max(0) as u32
    }
}

impl Number for u32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn to_u8(self) -> u8 {
        self.min(255) as u8
    }

    #[inline(always)]
    fn to_i32(self) -> i32 {
        self.min(i32::MAX as u32) as i32
    }

    #[inline(always)]
    fn to_u32(self) -> u32 {
        self
    }
}
