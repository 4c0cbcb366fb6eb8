//! What workers exchange, in fewer bytes: tensors are encoded and decoded on their device.
//!
//! A [`Codec`] says how; [`Encoded`] is what comes of it: a few tensors on the device, which become a frame of bytes
//! ([`Encoded::to_wire`]) and come back from one ([`Encoded::from_wire`]), on this device or another. The shape of a
//! tensor is not sent: what is decoded is flat.
//!
//! | codec | sends | what is lost |
//! |---|---|---|
//! | `plain` | f32 | nothing |
//! | `f16` | f16 | the lower digits; beyond 65504 all but the sign |
//! | `qsgd:4` | codes of 4 bits, and an f32 for every 512 of them | nothing on average: each element is rounded up or down by chance |
//! | `top-k:0.01` | the largest hundredth, with indices | the rest, for now |
//! | `significance:0.01` | what is at least a hundredth of its weight, with indices | the rest, for now |
//!
//! *For now*: with a residual, what was not sent is kept and added to what is encoded next, so that nothing is lost for
//! good. The residual is a tensor of the caller's, who can store it and bring it back. `qsgd` takes none: its errors
//! have no side, and with few bits a residual could grow from round to round.
//!
//! What is not a number stays visible. `f16` keeps NaN and infinities; a bucket of `qsgd` that holds one is decoded as
//! NaN; `top-k` and `significance` send them first, and they are NaN in the residual from then on.
//!
//! ```
//! # use std::sync::Arc;
//! # use weft_gpu::{Context, Crew, Limits, device::cpu::Cpu};
//! use weft_gpu::op::Stream;
//! use weft_gpu::{Codec, Encoded, Feedback};
//!
//! # let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
//! let gradients = context.tensor(&[4], &[0.5_f32, -3.0, 1.0, 2.0])?;
//! let residual = context.zeros(&[4])?;
//! let codec: Codec = "top-k:0.5".parse()?;
//! let feedback = Feedback { residual: Some(&residual), weights: None };
//! let sent = codec.encode(&gradients, feedback, Stream { seed: 1, offset: 0 })?.to_wire()?;
//!
//! let received = Encoded::from_wire(&context, &sent, 4)?;
//! assert_eq!(received.decode()?.to_vec::<f32>()?, [0.0, -3.0, 0.0, 2.0]);
//! assert_eq!(residual.to_vec::<f32>()?, [0.5, 0.0, 1.0, 0.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Meta, Stream};
use crate::tensor::Tensor;

mod encoded;
mod half;
mod name;
mod plain;
mod qsgd;
mod significance;
mod sparse;
mod top_k;
mod wire;

pub use encoded::Encoded;
pub use name::ParseCodecError;
pub use wire::seal;

/// Elements per scale of `qsgd`, unless something else is asked for.
pub const BUCKET: usize = 512;

/// How a tensor becomes fewer bytes. As text: `plain`, `f16`, `qsgd:4` or `qsgd:4,512`, `top-k:0.01`,
/// `significance:0.01`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Codec {
    Plain,
    F16,
    /// A sign and `2^(bits - 1) - 1` levels of the largest element of each bucket.
    Qsgd {
        /// From 2 to 8.
        bits: u32,
        /// A multiple of 32.
        bucket: usize,
    },
    /// The elements that are largest in size. Of equals those with the lower indices are sent.
    TopK {
        /// Of all elements, above 0 and at most 1. At least one element is sent.
        fraction: f32,
    },
    /// The elements that are large beside the weight that they change: as many as there are.
    Significance {
        /// Times the weight, in size. A weight of 0 makes every change significant.
        threshold: f32,
    },
}

/// What a codec goes by beside the tensor that it encodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Feedback<'a> {
    /// What was not sent so far, zeros at first: for codecs that send a part, who write it. Without it what is not sent is
    /// lost.
    pub residual: Option<&'a Tensor>,
    /// The weights that the tensor is to change: for `significance`.
    pub weights: Option<&'a Tensor>,
}

impl Codec {
    /// Encodes a tensor of f32. With a residual it is the sum of both that is encoded, and the residual becomes what of it
    /// was not sent. After an error the residual holds anything.
    ///
    /// What is drawn by chance follows from the stream alone: use each for one tensor only.
    pub fn encode(&self, tensor: &Tensor, feedback: Feedback<'_>, stream: Stream) -> Result<Encoded> {
        self.check_feedback(tensor, feedback)?;
        let flat = tensor.detach().reshape(&[tensor.shape().elements()])?;
        let parts = match *self {
            Self::Plain => plain::encode(&flat),
            Self::F16 => half::encode(&flat),
            Self::Qsgd { bits, bucket } => qsgd::encode(&flat, bits, bucket, stream),
            Self::TopK { fraction } => top_k::encode(&flat, fraction, feedback.residual),
            Self::Significance { threshold } => significance::encode(&flat, threshold, feedback),
        }?;
        Encoded::new(*self, tensor.shape().elements(), parts)
    }

    /// Whether it sends a part only, and can keep the rest in a residual.
    pub fn takes_residual(&self) -> bool {
        matches!(self, Self::TopK { .. } | Self::Significance { .. })
    }

    /// Whether it goes by the weights that a tensor is to change.
    pub fn takes_weights(&self) -> bool {
        matches!(self, Self::Significance { .. })
    }

    /// What it sends of so many elements, `sent` of them where it sends a part.
    fn parts(&self, elements: usize, sent: usize) -> Result<SmallVec<[Meta; 2]>> {
        match *self {
            Self::Plain => plain::parts(elements),
            Self::F16 => half::parts(elements),
            Self::Qsgd { bits, bucket } => qsgd::parts(elements, bits, bucket),
            Self::TopK { .. } | Self::Significance { .. } => sparse::parts(sent),
        }
    }

    fn check_feedback(&self, tensor: &Tensor, feedback: Feedback<'_>) -> Result<()> {
        let wrong = |reason: String| Err(Error::argument("encode", reason));
        if let Err(error) = self.check() {
            return wrong(error.to_string());
        }
        if tensor.dtype() != DType::F32 {
            return Err(Error::dtype("encode", 0, tensor.dtype(), "f32"));
        }
        if feedback.residual.is_some() && !self.takes_residual() {
            return wrong(format!("`{self}` keeps no residual"));
        }
        if feedback.weights.is_some() != self.takes_weights() {
            let needs = if self.takes_weights() { "needs the weights that are changed" } else { "takes no weights" };
            return wrong(format!("`{self}` {needs}"));
        }
        for (what, other) in [("residual", feedback.residual), ("weights", feedback.weights)] {
            if let Some(other) = other
                && other.meta() != tensor.meta()
            {
                let (have, want) = (other.meta(), tensor.meta());
                return wrong(format!(
                    "the {what} is {} {:?}, the tensor {} {:?}",
                    have.dtype, have.shape, want.dtype, want.shape
                ));
            }
        }
        if let Some(residual) = feedback.residual {
            let shared =
                [Some(tensor), feedback.weights].into_iter().flatten().any(|read| residual.shares_storage(read));
            if shared || !residual.layout().is_contiguous() {
                return wrong("the residual is written: it must be contiguous memory that nothing else shares".into());
            }
        }
        Ok(())
    }
}

/// The tensors that an encoded one consists of.
type Parts = SmallVec<[Tensor; 2]>;
