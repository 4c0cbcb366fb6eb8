//! How the numbers of one job are cut, merged and decoded, if its workers merge them.

use std::sync::Arc;

use weft_core::spec::Shape;
use weft_core::sync::accumulate::Arithmetic;
use weft_core::sync::{Handover, Topology, topology};
use weft_gpu::{Codec, Context, Encoded};

use super::exchange::{Decode, Layout, Scheme};
use super::workshop::Workshop;

/// How many numbers a worker hands over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Weights, gradients, statistics or duals.
    pub payload: usize,
    pub buffers: usize,
}

/// Whether workers of a shape merge, rather than the coordinator.
pub fn workers_merge(workshop: &Workshop, shape: &Shape) -> bool {
    shape.workers > 1 && workshop.brief.sync.topology != Topology::Memory && !workshop.brief.sync.pace.is_free()
}

/// The scheme of a job whose workers merge; `None` where the coordinator does. `context` is where encoded numbers are
/// decoded.
pub fn scheme(
    workshop: &Workshop,
    shape: &Shape,
    lengths: Lengths,
    context: &Context,
) -> Result<Option<Scheme>, topology::TopologyError> {
    if !workers_merge(workshop, shape) {
        return Ok(None);
    }
    let kind = &workshop.brief.sync.topology;
    let plan = Arc::new(topology::plan(kind, shape.workers)?);
    let exchange = workshop.exchange(shape);
    let arithmetic = match (exchange.is_sum(), kind) {
        (true, _) => Arithmetic::Sum,
        (false, Topology::Tree(_)) => Arithmetic::WeightedSum,
        (false, _) => Arithmetic::Mean,
    };
    let is_encoded = workshop.codec != Codec::Plain;
    let layout = Layout {
        elements: lengths.payload + appended(exchange, lengths),
        payload: if is_encoded { lengths.payload } else { 0 },
        align: match workshop.codec {
            Codec::Qsgd { bucket, .. } => bucket,
            _ => 1,
        },
    };
    let decode = is_encoded.then(|| decoder(context.clone()));
    Ok(Some(Scheme { plan, layout, arithmetic, decode }))
}

/// Buffers that travel behind the payload. They are averaged, so they do not travel with what is added up.
pub fn appended(exchange: Handover, lengths: Lengths) -> usize {
    if exchange.is_sum() { 0 } else { lengths.buffers }
}

/// Decodes on a device.
pub fn decoder(context: Context) -> Decode {
    Arc::new(move |bytes, length| {
        let decode = || Encoded::from_wire(&context, bytes, length)?.decode()?.to_vec::<f32>();
        decode().map_err(|error: weft_gpu::Error| error.to_string())
    })
}
