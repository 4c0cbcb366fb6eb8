//! Four workers that average what they send each other train as well as with everything.

use weft_gpu::op::{Stream, Unary};
use weft_gpu::{Arena, ArenaBuilder, Codec, Context, Encoded, Feedback, Tensor};

use crate::{codec, noise};

const WORKERS: usize = 4;
const SAMPLES: usize = 64;
const FEATURES: usize = 20;
const HIDDEN: usize = 32;
const STEPS: u64 = 200;
const RATE: f32 = 0.5;

/// How much larger than that of `plain` the loss may be in the end.
const MARGIN: f32 = 0.02;

/// One worker's share of the data: which side of a plane a point is on, points close to it left out.
struct Shard {
    x: Tensor,
    y: Tensor,
}

fn shards(context: &Context) -> Vec<Shard> {
    let plane = noise(FEATURES, 50);
    let side = |point: &[f32]| point.iter().zip(&plane).map(|(x, p)| x * p).sum::<f32>();
    let mut points = (0..).map(|seed| noise(FEATURES, 1000 + seed)).filter(|point| side(point).abs() > 0.2);
    let mut shard = || {
        let points: Vec<Vec<f32>> = points.by_ref().take(SAMPLES).collect();
        let y: Vec<f32> = points.iter().map(|point| f32::from(side(point) > 0.0)).collect();
        let x = context.tensor(&[SAMPLES, FEATURES], &points.concat()).unwrap();
        Shard { x, y: context.tensor(&[SAMPLES, 1], &y).unwrap() }
    };
    (0..WORKERS).map(|_| shard()).collect()
}

fn model(context: &Context) -> Arena {
    let mut builder = ArenaBuilder::new();
    builder.add("hidden", &[HIDDEN, FEATURES]).unwrap();
    builder.add("bias", &[HIDDEN]).unwrap();
    builder.add("last", &[1, HIDDEN]).unwrap();
    let arena = builder.build(context).unwrap();
    arena.values().write(0, bytemuck::cast_slice(&noise(arena.elements(), 51))).unwrap();
    arena
}

fn loss(arena: &Arena, shard: &Shard) -> Tensor {
    let [hidden, bias, last] = [0, 1, 2].map(|index| arena.parameter(index).unwrap());
    let inner = shard.x.linear(&hidden, Some(&bias), Some(Unary::Tanh)).unwrap();
    inner.linear(&last, None, None).unwrap().bce_with_logits(&shard.y).unwrap()
}

/// The mean loss of all workers in the end.
fn train(context: &Context, codec: Codec) -> f32 {
    let (arena, shards) = (model(context), shards(context));
    let residuals: Vec<Tensor> = shards.iter().map(|_| context.zeros(&[arena.elements()]).unwrap()).collect();
    for step in 0..STEPS {
        let sum = context.zeros(&[arena.elements()]).unwrap();
        for (worker, (shard, residual)) in shards.iter().zip(&residuals).enumerate() {
            arena.clear_gradients();
            loss(&arena, shard).backward().unwrap();
            let update = arena.gradients().unwrap().affine(RATE, 0.0).unwrap();
            let feedback = Feedback {
                residual: codec.takes_residual().then_some(residual),
                weights: codec.takes_weights().then_some(arena.values()),
            };
            let stream = Stream { seed: worker as u64, offset: step };
            let frame = codec.encode(&update, feedback, stream).unwrap().to_wire().unwrap();
            let received = Encoded::from_wire(context, &frame, arena.elements()).unwrap();
            received.add_to(&sum, 1.0 / WORKERS as f32).unwrap();
        }
        arena.values().accumulate(&sum, -1.0).unwrap();
    }
    shards.iter().map(|shard| loss(&arena, shard).item().unwrap()).sum::<f32>() / WORKERS as f32
}

pub fn every_codec_trains_as_well_as_plain(context: &Context) {
    let plain = train(context, Codec::Plain);
    assert!(plain < 0.1, "plain: {plain}");
    for text in ["f16", "qsgd:8", "qsgd:4", "qsgd:2,32", "top-k:0.1", "top-k:0.02", "significance:0.02"] {
        let loss = train(context, codec(text));
        println!("{text}: {loss}, plain: {plain}");
        assert!(loss < plain + MARGIN, "{text}: {loss}, plain: {plain}");
    }
}
