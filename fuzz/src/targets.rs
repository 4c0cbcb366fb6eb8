//! What is fuzzed: everything that reads bytes which a tenant, a file, a store or a worker has made.
//!
//! A target takes any bytes. It may refuse them, and must not panic, overflow, or use much time or memory for them. What it
//! accepts is used as the node would use it, and where it can be written again, it must come out the same.

use std::io::Cursor;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use tempfile::TempDir;
use weft::blob::BlobPlace;
use weft::catalog::spec::DataSetSpec;
use weft::dataset::Manifest;
use weft::dataset::manifest::{BlockRef, Split};
use weft::dataset::read::{self, Format, Options, Source};
use weft::dataset::rows::{Element, Features, Labels, Rows};
use weft::job::JobSpec;
use weft::job::channel::message::Summed;
use weft::job::channel::{Content, Message};
use weft::job::checkpoint::{Progress, Training};
use weft::job::model::{GlobalModel, WorkerState};
use weft::model::{Dtype, Meta, Model, TensorInfo, export_npz};
use weft::params::embedded::frame::Record;
use weft::params::{Entry, Form, Key, Moment, Space, Value};
use weft_core::learning::Learning;
use weft_core::sync::Slot;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::Stream;
use weft_gpu::{Codec, Context, Crew, DType, Encoded, Feedback, Limits, codec};

mod wire;

/// Something that reads bytes.
pub struct Target {
    pub name: &'static str,
    /// Reads them; what it makes of them is its own business.
    pub run: fn(&[u8]),
    /// Right inputs, to start from.
    pub seeds: fn() -> Result<Vec<Vec<u8>>>,
    /// The longest input that is tried.
    pub longest: usize,
    /// Memory that one input may take, in bytes.
    pub memory: usize,
}

/// For what reads an input of a few kilobytes.
const LITTLE: usize = 32 << 20;

macro_rules! data_sets {
    ($($name:literal $format:ident $extension:literal $seeds:expr;)+) => {
        [$(Target {
            name: $name,
            run: |bytes| read_file(Format::$format, $extension, bytes),
            seeds: || Ok($seeds),
            longest: 8 << 10,
            memory: LITTLE,
        }),+]
    };
}

/// All of them.
pub fn all() -> Vec<Target> {
    let data_sets = data_sets! {
        "idx" Idx "idx" vec![idx(8, &[6, 4, 4]), idx(0x0b, &[6, 8]), idx(0x0e, &[3, 4])];
        "npy" Npy "npy" vec![npy("<f4", "(4, 3)"), npy(">i8", "(4, 3)"), npy("|u1", "(24, 2)")];
        "npz" Npz "npz" vec![npz()?];
        "csv" Csv "csv" vec![
            b"a,b,c\n1,2.5,0\n3,4e2,1\n-5,\"6\",1\n".to_vec(),
            b"1;2;cat\r\n3;4;\"d\"\"og\"\r\n5;6;cat\r\n".to_vec(),
        ];
        "libsvm" LibSvm "libsvm" vec![b"+1 1:0.5 7:2 # comment\n-1 3:1e-3\n+1\n-1 2:7 3:8 4:9\n".to_vec()];
        "cifar" Cifar "bin" vec![(0..2 * 3073).map(|at| (at % 7) as u8).collect()];
        "safetensors" SafeTensors "safetensors" vec![model()?];
    };
    let others = [
        Target { name: "component", run: component, seeds: components, longest: 64 << 10, memory: 1 << 30 },
        Target { name: "job-spec", run: job_spec, seeds: job_specs, longest: 4 << 10, memory: LITTLE },
        Target { name: "data-set-spec", run: data_set_spec, seeds: data_set_specs, longest: 4 << 10, memory: LITTLE },
        Target { name: "manifest", run: manifest, seeds: manifests, longest: 4 << 10, memory: LITTLE },
        Target { name: "block", run: block, seeds: || Ok(vec![vec![0; 60]]), longest: 4 << 10, memory: LITTLE },
        Target { name: "checkpoint", run: checkpoint, seeds: checkpoints, longest: 8 << 10, memory: LITTLE },
        Target { name: "params-form", run: form, seeds: forms, longest: 1 << 10, memory: LITTLE },
        Target { name: "params-record", run: record, seeds: records, longest: 4 << 10, memory: LITTLE },
        Target { name: "codec-frame", run: frame, seeds: frames, longest: 4 << 10, memory: LITTLE },
        Target { name: "backup", run: backup, seeds: backups, longest: 32 << 10, memory: 64 << 20 },
        Target { name: "message", run: message, seeds: messages, longest: 4 << 10, memory: LITTLE },
        Target { name: "model", run: read_model, seeds: || Ok(vec![model()?]), longest: 4 << 10, memory: LITTLE },
    ];
    data_sets.into_iter().chain(others).chain(wire::targets()).collect()
}

// Archives of `weft restore`.

/// Bytes of a header, and of what a file is filled up to.
const TAR_BLOCK: usize = 512;

fn backup(bytes: &[u8]) {
    restore(bytes);
    // Few changes of a header leave its checksum right: it is put right, so that what comes after it is read.
    restore(&with_checksums(bytes.to_vec()));
}

fn restore(bytes: &[u8]) {
    let Some(folder) = &*FOLDER else { return };
    let (archive, data) = (folder.path().join("archive"), folder.path().join("restored"));
    if std::fs::write(&archive, bytes).is_err() {
        return;
    }
    if weft::backup::restore(&archive, &data, &BlobPlace::Folder).is_ok() {
        assert!(data.join("meta.redb").is_file(), "a restore that went well left no records");
    }
    let beside = std::fs::read_dir(folder.path()).map_or(0, Iterator::count);
    assert!(beside <= 3, "something was written outside of the data directory");
    std::fs::remove_dir_all(&data).ok();
}

/// Puts the checksum of every header right.
fn with_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while let Some(header) = bytes.get_mut(at..at + TAR_BLOCK) {
        // What ends an archive has none.
        if header.iter().all(|&byte| byte == 0) {
            break;
        }
        let size = std::str::from_utf8(&header[124..135]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size.trim_matches(['\0', ' ']), 8).ok()).unwrap_or(0);
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        at = at.saturating_add(TAR_BLOCK).saturating_add(size.next_multiple_of(TAR_BLOCK));
    }
    bytes
}

fn backups() -> Result<Vec<Vec<u8>>> {
    let blob = b"a component".as_slice();
    let records = concat!(
        r#"[{"table":"identity","key":"node","value":{"id":"0123456789abcdef0123456789abcdef"}},"#,
        r#"{"table":"usage","key":"0000000000000001","value":{"tenant":1,"usage":{}}},"#,
        r#"{"table":"odd","key":"k","value":[1,2,3]}]"#
    );
    let head = br#"{"format":1,"weft":"0.1.0","created_ms":0}"#.as_slice();
    let name = format!("blobs/{}", weft::digest::Digest::of(blob).hex());
    let files = [
        ("weft-backup.json", head),
        ("metadata.json", records.as_bytes()),
        ("params/snapshot", b"values"),
        (name.as_str(), blob),
        ("complete", b""),
    ];
    let archive = |files: &[(&str, &[u8])]| {
        let mut bytes = Vec::new();
        for (name, content) in files {
            let mut header = [0; TAR_BLOCK];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[100..107].copy_from_slice(b"0000600");
            header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
            header[156] = b'0';
            header[257..265].copy_from_slice(b"ustar  \0");
            bytes.extend(header);
            bytes.extend(*content);
            bytes.resize(bytes.len().next_multiple_of(TAR_BLOCK), 0);
        }
        bytes.extend([0; 2 * TAR_BLOCK]);
        with_checksums(bytes)
    };
    let whole = archive(&files);
    // The seeds must be right, or only what refuses them is fuzzed.
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("archive"), &whole)?;
    weft::backup::restore(&folder.path().join("archive"), &folder.path().join("data"), &BlobPlace::Folder)?;
    Ok(vec![whole, archive(&files[..3])])
}

// Data sets.

/// Readers take files. In memory, where that is possible: some file systems wait for the disk.
static FOLDER: LazyLock<Option<TempDir>> = LazyLock::new(|| {
    let in_memory = Path::new("/dev/shm");
    if in_memory.is_dir() { tempfile::tempdir_in(in_memory) } else { tempfile::tempdir() }.ok()
});

fn read_file(format: Format, extension: &str, bytes: &[u8]) {
    let Some(folder) = &*FOLDER else { return };
    let source = Source { name: format!("input.{extension}"), path: folder.path().join("input") };
    if std::fs::write(&source.path, bytes).is_err() {
        return;
    }
    let options = Options { format: Some(format), spool_in: Some(folder.path().to_owned()), ..Options::default() };
    let Ok(mut samples) = read::open(&source, None, &options) else { return };
    let mut rows = Rows::default();
    while samples.read(5, &mut rows).is_ok_and(|count| count > 0) {}
}

fn idx(kind: u8, shape: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, shape.len() as u8];
    shape.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
    bytes.extend(0..96);
    bytes
}

fn npy(descr: &str, shape: &str) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(0..96);
    bytes
}

fn npz() -> Result<Vec<u8>> {
    let mut bytes = Cursor::new(Vec::new());
    export_npz(&mut Model::open(Cursor::new(model()?))?, &mut bytes)?;
    Ok(bytes.into_inner())
}

fn data_set_spec(bytes: &[u8]) {
    // Whether its words make sense is asked by whoever reads the files; here they only must not do harm.
    let _ = serde_json::from_slice::<DataSetSpec>(bytes);
}

fn data_set_specs() -> Result<Vec<Vec<u8>>> {
    let specs = [
        r#"{"shipped":"digits"}"#,
        r#"{"train":[{"upload":"sha256:00"}],"format":"csv","label":"y","header":true,"split":0.8,"seed":3,"shape":[1,8,8],
            "resize":[4,4],"transform":"minmax:0,1","class_names":["a","b"]}"#,
    ];
    Ok(specs.map(|spec| spec.as_bytes().to_vec()).to_vec())
}

fn manifest(bytes: &[u8]) {
    let Ok(manifest) = Manifest::parse(bytes) else { return };
    let again = Manifest::parse(&manifest.to_bytes());
    assert!(again.is_ok_and(|again| again == manifest), "it comes out as another one");
}

fn manifests() -> Result<Vec<Vec<u8>>> {
    let digest = weft::digest::Digest::of(b"weft");
    let dense = Features::Dense { element: Element::F32, shape: vec![2, 3] };
    let blocks = vec![BlockRef { digest, count: 2, bytes: 56 }];
    let split = Split { count: 2, blocks, classes: vec![1, 1] };
    let manifest = Manifest {
        format: weft::dataset::manifest::FORMAT,
        features: dense,
        labels: Some(Labels::Class),
        class_names: vec!["cat".to_owned(), "dog".to_owned()],
        transform: Default::default(),
        statistics: Default::default(),
        train: split.clone(),
        test: split,
        synthetic: None,
    };
    Ok(vec![manifest.to_bytes()])
}

/// The bytes as blocks of every kind. The first one says how many samples there are.
fn block(bytes: &[u8]) {
    let Some((&count, rest)) = bytes.split_first() else { return };
    let block = BlockRef { digest: weft::digest::Digest::of(rest), count: u32::from(count), bytes: rest.len() as u64 };
    for features in [Features::Dense { element: Element::F32, shape: vec![2] }, Features::Sparse { columns: 100 }] {
        for labels in [None, Some(Labels::Class), Some(Labels::Values { width: 2 })] {
            if let Ok(rows) = weft::dataset::block::decode(rest, &block, &features, labels) {
                let again = weft::dataset::block::encode(&rows, &features, labels);
                assert!(again.is_ok_and(|again| again == rest), "it comes out as another block");
            }
        }
    }
}

// Models.

fn model() -> Result<Vec<u8>> {
    let tensor =
        |name: &str, shape: &[usize], dtype| TensorInfo { name: name.to_owned(), dtype, shape: shape.to_vec() };
    let tensors = [tensor("x", &[4, 2], Dtype::F32), tensor("y", &[4], Dtype::U8)];
    let meta = Meta { step: Some(7), metrics: [("accuracy".to_owned(), 0.5)].into(), ..Meta::default() };
    let mut bytes = Vec::new();
    weft::model::write(&tensors, [vec![1; 32], vec![0, 1, 1, 0]].map(Ok), &meta, &mut bytes)?;
    Ok(bytes)
}

fn read_model(bytes: &[u8]) {
    let Ok(mut model) = Model::open(Cursor::new(bytes)) else { return };
    let names: Vec<String> = model.tensors().map(|tensor| tensor.name.clone()).collect();
    for name in names {
        // Whether it can be read is not asked here, only that nothing panics.
        let _ = model.tensor(&name);
    }
    // As above: a damaged model may be refused.
    let _ = export_npz(&mut model, std::io::sink());
}

fn checkpoint(bytes: &[u8]) {
    let Ok(training) = Training::from_file(Cursor::new(bytes)) else { return };
    assert!(training.file_size().is_ok(), "it was read, and cannot be written");
}

fn checkpoints() -> Result<Vec<Vec<u8>>> {
    let shared =
        || Arc::new(GlobalModel { weights: vec![1.0, -0.0].into(), buffers: vec![2.5].into(), of: None, version: 0 });
    let private = WorkerState {
        moments: vec![0.25; 2],
        steps: 9,
        locals: vec![4.0],
        residual: vec![0.5; 2],
        weights: vec![1.5; 2],
        duals: vec![-0.5; 2],
    };
    let training = Training {
        model: shared(),
        optimizer: private.clone(),
        worker_states: vec![Arc::new(private)],
        best: Some(shared()),
        progress: Progress {
            epoch: 2,
            cuts: Vec::new(),
            earlier: 0,
            done: 3,
            step: 11,
            learning: Learning::new(&JobSpec::new("f", None)),
            sums: Default::default(),
            best: Default::default(),
            shape: None,
        },
    };
    let mut file = Vec::new();
    training.write(Meta::default(), &mut file)?;
    Ok(vec![file])
}

// What is deployed and asked for.

fn component(bytes: &[u8]) {
    let _ = weft::sandbox::precompile(bytes);
}

fn components() -> Result<Vec<Vec<u8>>> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    let mut seeds = vec![std::fs::read(tests.join("stored/task-0.1.0.wasm"))?];
    for entry in std::fs::read_dir(tests.join("guests/wat"))? {
        let path = entry?.path();
        seeds.push(wat::parse_file(&path).with_context(|| format!("`{}`", path.display()))?);
    }
    Ok(seeds)
}

fn job_spec(bytes: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<JobSpec>(bytes) else { return };
    if spec.check().is_ok() {
        let text =
            serde_json::to_vec(&spec).unwrap_or_else(|error| panic!("it was read, and cannot be written: {error}"));
        let again = serde_json::from_slice::<JobSpec>(&text);
        assert!(again.is_ok_and(|again| again == spec), "it comes out as another one");
    }
}

fn job_specs() -> Result<Vec<Vec<u8>>> {
    let specs = [
        r#"{"function":"lenet","dataset":"digits","name":"first","workers":4,"k":8,"epochs":5}"#,
        r#"{"function":"f","dataset":"d","batch":16,"lr":0.02,"seed":7,"memory":67108864,"device":"gpu:0","codec":"qsgd:4",
            "rule":"k-average","k":4,"goal_accuracy":0.9,"goal_loss":0.1,"straggler_ms":2000,"on_loss":"drop","keep":"best",
            "plateau":{"factor":0.5,"patience":1,"min":1e-8},"early_stop":{"patience":4,"delta":10.0},
            "batch_schedule":{"2":32},"params":{"classes":"9"},"init_from":"m","max_time_ms":1000,"fan_out":2}"#,
    ];
    Ok(specs.map(|spec| spec.as_bytes().to_vec()).to_vec())
}

// The parameter store.

fn form(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(form) = text.parse::<Form>() {
        assert!(form.to_string().parse::<Form>().is_ok_and(|again| again == form), "it comes out as another one");
    }
}

fn forms() -> Result<Vec<Vec<u8>>> {
    Ok(["f32 [2, 3]", "counter", "bytes", "u8 []"].map(|form| form.as_bytes().to_vec()).to_vec())
}

/// Bytes before a record: the lengths of its two parts, and a checksum of all of it.
const RECORD_PREFIX: usize = 16;

/// The first bytes as they are, and again with the checksum that they should have.
fn record(bytes: &[u8]) {
    let _ = Record::read(&mut Cursor::new(bytes));
    if let Some((prefix, rest)) = bytes.split_at_checked(RECORD_PREFIX) {
        let meta = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]) as usize % (rest.len() + 1);
        let mut right = (meta as u32).to_le_bytes().to_vec();
        right.extend(((rest.len() - meta) as u64).to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&right);
        hasher.update(rest);
        right.extend(hasher.finalize().to_le_bytes());
        right.extend(rest);
        if let Ok(Some(record)) = Record::read(&mut Cursor::new(&right)) {
            let mut again = Vec::new();
            assert!(record.write(&mut again).is_ok(), "it was read, and cannot be written");
            let read = Record::read(&mut Cursor::new(&again)).unwrap_or(None);
            assert!(read.as_ref() == Some(&record), "it comes out as another one");
        }
    }
}

fn records() -> Result<Vec<Vec<u8>>> {
    let space = Space::of_job("tenant".parse()?, "job".parse()?);
    let key: Key = "name".parse()?;
    let values =
        [Value::bytes(vec![1_u8, 2, 3]), Value::counter(-7), Value::tensor(DType::F32, vec![2, 1], vec![0_u8; 8])?];
    let expires = [None, Some(Moment(1 << 40)), None];
    let puts =
        values.into_iter().zip(expires).zip(1..).map(|((value, expires), version)| {
            Record::put(&space, &key, &Entry { version, value, expires }, version == 1)
        });
    let others = [Record::delete(&space, &key, 9), Record::claim(&space, &key, 3)];
    let written = puts.chain(others).map(|record| {
        let mut bytes = Vec::new();
        record.write(&mut bytes).map(|_| bytes)
    });
    Ok(written.collect::<std::io::Result<_>>()?)
}

// What workers send each other.

const SLOT: Slot = Slot { round: 12, layer: 0, shard: 3, worker: 7, claim: 1 };

/// The bytes as they are, and again with the checksum that their header should have.
fn message(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    weft::job::channel::message::seal(&mut sealed);
    for bytes in [bytes, &sealed] {
        let Ok(message) = Message::from_wire(SLOT, Bytes::copy_from_slice(bytes)) else { continue };
        let again = [Summed::All, Summed::Header].map(|summed| message.to_wire(SLOT, summed).concat());
        assert!(again.iter().any(|again| again == bytes), "it comes out as another message");
        let _ = Message::from_parts(SLOT, Bytes::copy_from_slice(bytes), Some(Bytes::copy_from_slice(bytes)));
    }
}

fn messages() -> Result<Vec<Vec<u8>>> {
    let encoded = Message {
        samples: 9,
        payload: Content::Encoded(Bytes::from_static(b"a frame")),
        buffers: vec![1.5_f32, -0.0].into(),
    };
    let plain = Message::plain(64, vec![0.25_f32; 10]);
    let written = [(&encoded, Summed::All), (&plain, Summed::Header)]
        .map(|(message, summed)| message.to_wire(SLOT, summed).concat());
    Ok(written.to_vec())
}

static DEVICE: LazyLock<Context> =
    LazyLock::new(|| Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default()));

/// More than any input here has room for, unless it says less than it means.
const MOST_ELEMENTS: usize = 1 << 20;

fn frame(bytes: &[u8]) {
    let _ = Encoded::from_wire(&DEVICE, bytes, MOST_ELEMENTS);
    let mut sealed = bytes.to_vec();
    codec::seal(&mut sealed);
    if let Ok(encoded) = Encoded::from_wire(&DEVICE, &sealed, MOST_ELEMENTS) {
        assert!(encoded.to_wire().is_ok_and(|again| again == sealed), "it comes out as another frame");
        // Indices may still be wrong, which decoding says.
        let _ = encoded.decode();
    }
}

fn frames() -> Result<Vec<Vec<u8>>> {
    let codecs = [
        Codec::Plain,
        Codec::F16,
        Codec::Qsgd { bits: 4, bucket: 32 },
        Codec::TopK { fraction: 0.25 },
        Codec::Significance { threshold: 0.5 },
    ];
    let numbers: Vec<f32> = (0..40).map(|at| (at as f32 - 20.0) / 7.0).collect();
    let tensor = DEVICE.tensor(&[numbers.len()], &numbers)?;
    let weights = DEVICE.full(&[numbers.len()], DType::F32, 0.5)?;
    let frames = codecs.into_iter().map(|codec| -> Result<Vec<u8>> {
        let feedback = Feedback { residual: None, weights: codec.takes_weights().then_some(&weights) };
        Ok(codec.encode(&tensor, feedback, Stream { seed: 1, offset: 0 })?.to_wire()?)
    });
    frames.collect()
}
