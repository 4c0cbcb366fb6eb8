//! What comes over a wire: heads from a Redis, what coordinators and workers tell each other, and events from a node.

use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use weft::cli::Events;
use weft::dataset::shard::Cut;
use weft::job::contribution::{Contribution, Payload};
use weft::job::model::{GlobalModel, WorkerState};
use weft::job::work_order::{Assignment, MergeOrder, ModelRef, TakeOrder, Task, WorkOrder};
use weft::job::worker::{Declaration, Report, WorkerError};
use weft::job::workshop::Cursor;
use weft::params::redis::head::{Frame, StoredHead};
use weft::params::{Form, Value};
use weft::train::declared::{Initial, Plan, Role, TensorDeclaration};
use weft_core::spec::Shape;
use weft_core::sync::barrier::{MergePart, MergeResult};
use weft_core::sync::topology::Source;
use weft_core::sync::{Slot, Who};
use weft_core::usage::Used;
use weft_gpu::DType;

use crate::{LITTLE, Target};

pub fn targets() -> Vec<Target> {
    let target = |name, run, seeds| Target { name, run, seeds, longest: 4 << 10, memory: LITTLE };
    vec![
        target("redis-head", redis_head, redis_heads),
        target("work-order", written::<WorkOrder>, work_orders),
        target("report", written::<Report>, reports),
        target("plan", written::<Plan>, plans),
        target("events", events, streams),
    ]
}

// Heads.

/// The bytes as a head of a value, and as that of a counter.
fn redis_head(bytes: &[u8]) {
    for count in ["", "-7"] {
        let Ok(head) = StoredHead::parse(count, Bytes::copy_from_slice(bytes)) else { continue };
        let (told, _) = (head.head(), head.lacks_bytes());
        if let Ok(data) = head.inline() {
            assert!(told.form == Form::Counter || data.len() as u64 == told.bytes, "it has other bytes than it says");
            // What is inside may still be no value of that form.
            let _ = head.entry(data);
        }
    }
}

/// A head's line, and what follows it.
fn head(chunks: &str, count: usize, is_counter: u8, frame: &[u8], inline: &[u8]) -> Vec<u8> {
    let line = format!("7 1700000000000 64 {chunks} {count} {is_counter} {}\n", frame.len());
    [line.as_bytes(), frame, inline].concat()
}

fn redis_heads() -> Result<Vec<Vec<u8>>> {
    let tensor = Value::tensor(DType::F32, vec![2, 1], vec![1_u8; 8])?;
    let frame = |value: &Value| -> Result<Vec<u8>> {
        let checksums = vec![crc32fast::hash(&value.data)];
        Ok(rmp_serde::to_vec(&Frame { form: value.form.clone(), bytes: value.data.len() as u64, checksums })?)
    };
    let (bytes, counter) = (Value::bytes(b"a value".to_vec()), Value::counter(-7));
    let heads = vec![
        head("-", 0, 0, &frame(&tensor)?, &tensor.data),
        head("-", 0, 0, &frame(&bytes)?, &bytes.data),
        head("-", 0, 1, &frame(&counter)?, b""),
        head("0123456789abcdef", 1, 0, &frame(&tensor)?, b""),
    ];
    // The seeds must be right, or only what refuses them is fuzzed.
    for head in &heads {
        StoredHead::parse("-7", Bytes::copy_from_slice(head))?;
    }
    Ok(heads)
}

// Coordinators and workers.

/// Reads MessagePack, and writes it again as often as it comes out the same.
fn written<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(read) = rmp_serde::from_slice::<T>(bytes) else { return };
    let once = packed(&read).unwrap_or_else(|error| panic!("it was read, and cannot be written: {error}"));
    let again = rmp_serde::from_slice::<T>(&once).map(|again| packed(&again));
    assert!(again.is_ok_and(|again| again.is_ok_and(|again| again == once)), "it comes out as another one");
}

fn packed<T: Serialize>(value: &T) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    rmp_serde::to_vec_named(value)
}

const WHO: Who = Who { worker: 3, claim: 1 };
const SLOT: Slot = Slot { round: 5, layer: 1, shard: 0, worker: 2, claim: 1 };

fn model() -> GlobalModel {
    GlobalModel { weights: vec![0.5, f32::INFINITY].into(), buffers: vec![7.0].into(), of: Some(WHO), version: 12 }
}

fn state() -> WorkerState {
    WorkerState {
        moments: vec![0.5],
        steps: 9,
        locals: vec![1.0],
        residual: vec![0.25],
        weights: vec![2.0],
        duals: vec![-1.0],
    }
}

fn work_orders() -> Result<Vec<Vec<u8>>> {
    let results = Arc::new(vec![MergeResult { shard: 1, merge: 2, who: WHO }]);
    let at = Cursor {
        epoch: 2,
        cuts: [Cut { shards: 4, taken: 17 }].into(),
        done: 5,
        step: 40,
        batch: NonZeroU32::MIN,
        rate: 0.1,
        shape: Shape::LEAST,
    };
    let assignment = Assignment {
        round: 6,
        task: Task::Train { steps: 3, joins: true },
        at,
        model: ModelRef::whole(&model()),
        take: Some(TakeOrder { round: 5, results, rate: 1e-3 }),
        optimizer: Some(Arc::new(state())),
        worker_state: None,
        is_new_state: true,
        is_new_model: false,
        tells_checksum: true,
        average: Some(vec![0.25].into()),
        statistics: vec![1.0].into(),
    };
    let elsewhere = Assignment { model: ModelRef::elsewhere(&model(), Some(SLOT)), take: None, ..assignment.clone() };
    let parts = vec![
        MergePart { source: Source::Worker(1), who: WHO, layer: 0, samples: 64 },
        MergePart { source: Source::Merge(0), who: WHO, layer: 1, samples: 9 },
    ];
    let orders = [
        WorkOrder::Work { assignment: Box::new(assignment), generation: 1 },
        WorkOrder::Work { assignment: Box::new(elsewhere), generation: 0 },
        WorkOrder::Merge(MergeOrder { round: 6, merge: 1, generation: 2, parts, total: 73 }),
    ];
    Ok(orders.iter().map(packed).collect::<Result<_, _>>()?)
}

fn reports() -> Result<Vec<Vec<u8>>> {
    let contribution = |payload| Contribution {
        samples: 9,
        loss: 0.5,
        latest: 0.25,
        payload,
        buffers: vec![1.0],
        worker_state: Some(Arc::new(state())),
        model_checksum: Some(7),
        metrics: [("loss".to_owned(), 0.5)].into(),
        used: Used::default(),
    };
    let payloads =
        [Payload::Plain(vec![1.0, -0.0].into()), Payload::Encoded(Bytes::from_static(b"frame")), Payload::Stored(SLOT)];
    let done = payloads.map(|payload| Report::Done {
        who: WHO,
        round: 5,
        generation: 1,
        contribution: Box::new(contribution(Some(payload))),
    });
    let declaration = Declaration { plan: plan()?, model: model(), worker_state: state(), statistics: 2 };
    let others = [
        Report::Ready { who: WHO, declaration: Some(Box::new(declaration)), used: Used::default() },
        Report::Merged { who: WHO, round: 5, merge: 1, generation: 0, used: Used::default() },
        Report::Missing { who: WHO, round: 5, merge: 1, generation: 0, sources: vec![Source::Worker(1)] },
        Report::Lost { who: WHO, error: WorkerError::Node("a full disk".to_owned()) },
        Report::Progress { who: WHO, steps: 3, loss: 0.5, samples: 48 },
    ];
    Ok(done.iter().chain(&others).map(packed).collect::<Result<_, _>>()?)
}

fn plan() -> Result<Plan> {
    let mut plan = Plan::default();
    for (name, role) in [("w", Role::Weight), ("mean", Role::Buffer), ("sum", Role::Statistic), ("own", Role::Local)] {
        let initial = Initial::Uniform { low: -0.5, high: 0.5 };
        plan.declare(TensorDeclaration {
            name: name.to_owned(),
            role,
            shape: weft_gpu::Shape::new(&[2, 3])?,
            initial,
        })?;
    }
    plan.clip = Some(1.0);
    Ok(plan)
}

fn plans() -> Result<Vec<Vec<u8>>> {
    Ok(vec![packed(&plan()?)?, packed(&Plan::default())?])
}

// Events.

fn events(bytes: &[u8]) {
    for event in Events::new(bytes) {
        let Ok(event) = event else { return };
        assert!(event.data.len() <= bytes.len(), "an event has more than came");
    }
}

fn streams() -> Result<Vec<Vec<u8>>> {
    Ok(vec![
        b": hello\r\n\r\nretry: 5\r\nid: 7\r\nevent: epoch\r\ndata: {\"a\":1}\r\n\r\n".to_vec(),
        b"data: one\ndata:two\n\nid\n\ndata: cut o".to_vec(),
    ])
}
