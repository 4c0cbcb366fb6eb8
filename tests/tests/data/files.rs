//! Files made here, right and wrong ones, and how they are read.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use weft::dataset::read::{Options, ReadError, Source, open};
use weft::dataset::{Rows, Samples};

/// All samples of some files, read a few at a time.
pub fn read(folder: &Path, files: &[&str], options: &Options) -> Result<(Box<dyn Samples>, Rows), ReadError> {
    let sources: Vec<Source> =
        files.iter().map(|&name| Source { name: name.into(), path: folder.join(name) }).collect();
    let mut samples = open(&sources[0], sources.get(1), options)?;
    let mut rows = Rows::default();
    while samples.read(5, &mut rows)? > 0 {}
    assert!(samples.count().is_none_or(|count| count == rows.count as u64));
    Ok((samples, rows))
}

pub fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

pub fn idx(kind: u8, shape: &[u32], numbers: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, shape.len() as u8];
    shape.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
    [&bytes[..], numbers].concat()
}

pub fn npy(header: &str, numbers: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    [&bytes[..], header.as_bytes(), numbers].concat()
}

pub fn npy_of(descr: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
    npy(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n"), numbers)
}

pub fn f32s(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

pub fn safetensors(header: &str, tensors: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), tensors].concat()
}

/// A right file of two tensors: four samples of two numbers, and their labels.
pub fn safetensors_pair() -> Vec<u8> {
    let header = r#"{"x":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]},"y":{"dtype":"U8","shape":[4],"data_offsets":[32,36]}}"#;
    let numbers = f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    safetensors(header, &[&numbers[..], &[0, 1, 1, 0]].concat())
}

pub fn cifar(count: usize) -> Vec<u8> {
    (0..count).flat_map(|sample| std::iter::once((sample % 10) as u8).chain(vec![sample as u8; 3072])).collect()
}

/// What a zip archive is to say, which need not be true.
pub struct Zip {
    pub deflate: bool,
    pub zip64: bool,
    /// Fields of the first member that are replaced: where in its entry of the list, and by what.
    pub lies: Vec<(usize, Vec<u8>)>,
    /// The same for the end of the archive.
    pub end_lies: Vec<(usize, Vec<u8>)>,
}

impl Zip {
    pub const PLAIN: Self = Self { deflate: false, zip64: false, lies: Vec::new(), end_lies: Vec::new() };

    pub fn write(&self, members: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let (mut bytes, mut list) = (Vec::new(), Vec::new());
        for (index, (name, content)) in members.iter().enumerate() {
            let mut packed = content.clone();
            if self.deflate {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(content).unwrap();
                packed = encoder.finish().unwrap();
            }
            let mut checksum = flate2::Crc::new();
            checksum.update(content);
            let start = bytes.len() as u32;
            let method: u16 = if self.deflate { 8 } else { 0 };
            let (real, real_size) = (packed.len() as u32, content.len() as u32);
            let (size, full, offset) =
                if self.zip64 { (u32::MAX, u32::MAX, u32::MAX) } else { (real, real_size, start) };
            let mut common = [20_u16, 0, method, 0, 0].map(u16::to_le_bytes).concat();
            common.extend([checksum.sum(), size, full].map(u32::to_le_bytes).concat());
            common.extend((name.len() as u16).to_le_bytes());
            bytes.extend([&b"PK\x03\x04"[..], &common, &[0, 0], name.as_bytes(), &packed].concat());
            let mut extra = Vec::new();
            if self.zip64 {
                extra.extend([9, 0, 1, 0, 7, 1, 0, 24, 0]);
                extra.extend([real_size.into(), real.into(), u64::from(start)].map(u64::to_le_bytes).concat());
            }
            let mut entry = [&b"PK\x01\x02\x14\x00"[..], &common].concat();
            entry.extend((extra.len() as u16).to_le_bytes());
            entry.extend([0; 10]);
            entry.extend(offset.to_le_bytes());
            entry.extend(name.as_bytes());
            entry.extend(extra);
            if index == 0 {
                self.lies.iter().for_each(|(at, lie)| entry[*at..at + lie.len()].copy_from_slice(lie));
            }
            list.extend(entry);
        }
        let (start, count) = (bytes.len(), members.len());
        bytes.extend(&list);
        if self.zip64 {
            let end = bytes.len() as u64;
            bytes.extend(b"PK\x06\x06");
            bytes.extend([44_u64, 0x2d_002d, 0].map(u64::to_le_bytes).concat()[..20].to_vec());
            bytes.extend([count as u64, count as u64, list.len() as u64, start as u64].map(u64::to_le_bytes).concat());
            bytes.extend([&b"PK\x06\x07\0\0\0\0"[..], &end.to_le_bytes(), &[1, 0, 0, 0]].concat());
        }
        let mut end = b"PK\x05\x06\0\0\0\0".to_vec();
        end.extend([count as u16; 2].map(u16::to_le_bytes).concat());
        end.extend([list.len() as u32, start as u32].map(u32::to_le_bytes).concat());
        end.extend([0, 0]);
        self.end_lies.iter().for_each(|(at, lie)| end[*at..at + lie.len()].copy_from_slice(lie));
        bytes.extend(end);
        bytes
    }

    /// A right archive of two arrays, but for the lies.
    pub fn pair(&self) -> Vec<u8> {
        let features = npy_of("<f4", "(4, 2)", &f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]));
        self.write(&[("x.npy", features), ("y.npy", npy_of("|u1", "(4,)", &[0, 1, 1, 0]))])
    }
}

/// A right file of every format and way to write it.
pub fn right_files() -> Vec<(&'static str, Vec<u8>)> {
    let numbers: Vec<u8> = (0..96).collect();
    vec![
        ("u8.idx", idx(8, &[6, 4, 4], &numbers)),
        ("i16.idx", idx(0x0b, &[6, 8], &numbers)),
        ("f64.idx", idx(0x0e, &[3, 4], &[0; 96])),
        ("f32.npy", npy_of("<f4", "(4, 3)", &f32s(&[0.5; 12]))),
        ("i64.npy", npy_of(">i8", "(4, 3)", &numbers)),
        ("stored.npz", Zip::PLAIN.pair()),
        ("deflated.npz", Zip { deflate: true, ..Zip::PLAIN }.pair()),
        ("large.npz", Zip { zip64: true, ..Zip::PLAIN }.pair()),
        ("numbers.csv", b"a,b,c\n1,2.5,0\n3,4e2,1\n-5,\"6\",1\n".to_vec()),
        ("names.csv", b"1;2;cat\r\n3;4;\"dog\"\r\n5;6;cat\r\n".to_vec()),
        ("sparse.libsvm", b"+1 1:0.5 7:2 # comment\n-1 3:1e-3\n+1\n-1 2:7 3:8 4:9\n".to_vec()),
        ("data_batch.bin", cifar(3)),
        ("pair.safetensors", safetensors_pair()),
    ]
}

#[test]
fn right_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in right_files() {
        std::fs::write(folder.path().join(name), &bytes).unwrap();
        let (_, rows) = read(folder.path(), &[name], &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        assert!(rows.count >= 3, "{name}");
    }
}
