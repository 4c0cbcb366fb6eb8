//! Broken files: each is refused with its name, the place and the reason, and with little memory.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use weft::dataset::read::{ArrayNames, Format, Header, LabelColumn, LabelKind, Limits, Options, Source, open};
use weft::dataset::rows::{Rows, Values};

use super::files::{Zip, cifar, f32s, gz, idx, npy, npy_of, read, right_files, safetensors, safetensors_pair};
use super::memory::peak;

/// Whatever a header claims.
const MOST_BYTES: usize = 8 << 20;

/// A broken file, and what its error must say.
type Case<'a> = (&'a str, Vec<u8>, &'a [&'a str]);

/// All of these are refused, or the test says which are not.
fn refused(cases: Vec<Case>, options: &Options) {
    let folder = tempfile::tempdir().unwrap();
    let mut problems = Vec::new();
    for (name, bytes, expected) in cases {
        std::fs::write(folder.path().join(name), &bytes).unwrap();
        problems.extend(problem_with(folder.path(), &[name], options, expected));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What is not as it should be when these files are read.
fn problem_with(folder: &Path, files: &[&str], options: &Options, expected: &[&str]) -> Option<String> {
    let (result, most) = peak(|| read(folder, files, options));
    let Err(error) = result else { return Some(format!("{files:?} was read, in spite of {expected:?}")) };
    let text = error.to_string();
    if let Some(part) = expected.iter().find(|part| !text.contains(**part)) {
        return Some(format!("{files:?} should say `{part}`, and says `{text}`"));
    }
    let named = files.iter().any(|name| text.contains(name));
    let proper = named && !text.contains('\n') && most < MOST_BYTES;
    (!proper).then(|| format!("{files:?} took {most} bytes, and its name or one line are missing in `{text}`"))
}

#[test]
fn broken_idx_is_refused() {
    let numbers = [0; 24];
    let mut long = idx(8, &[6, 4], &numbers);
    long.push(0);
    refused(
        vec![
            ("empty.idx", vec![], &["byte 0", "truncated"]),
            ("magic.idx", idx(8, &[6, 4], &numbers).into_iter().map(|byte| byte ^ 1).collect(), &["byte 0", "no idx"]),
            ("type.idx", idx(7, &[6, 4], &numbers), &["byte 2", "0x07"]),
            ("dimensions.idx", idx(8, &[], &numbers), &["byte 3", "0 dimensions"]),
            ("deep.idx", idx(8, &[1; 9], &numbers), &["byte 3", "9 dimensions"]),
            ("header.idx", vec![0, 0, 8, 2, 0, 0], &["byte 6", "header"]),
            ("short.idx", idx(8, &[7, 4], &numbers), &["byte 12", "28 bytes", "24", "truncated"]),
            ("long.idx", long, &["byte 12", "left over"]),
            ("lies.idx", idx(8, &[u32::MAX, 4], &numbers), &["byte 12", "17179869180"]),
            ("wide.idx", idx(8, &[1, u32::MAX], &numbers), &["byte 12", "max_sample_bytes"]),
            ("overflow.idx", idx(0x0e, &[u32::MAX; 8], &numbers), &["byte 36", "max_sample_bytes"]),
            ("large.idx", idx(0x0e, &[u32::MAX, 1 << 20, 1], &numbers), &["byte 16"]),
            ("nothing.idx", idx(8, &[0, 4], &[]), &["byte 12", "holds nothing"]),
            ("narrow.idx", idx(8, &[1 << 31, 0], &[]), &["byte 12", "holds nothing"]),
            ("inf.idx", idx(0x0d, &[1, 2], &[0, 0, 0, 0, 0x7f, 0x80, 0, 0]), &["byte 16", "not finite"]),
            ("far.idx", idx(0x0e, &[1, 1], &1e300_f64.to_be_bytes()), &["byte 12", "not finite"]),
        ],
        &Options::default(),
    );
}

#[test]
fn broken_npy_is_refused() {
    let header = |text: &str| npy(text, &[0; 16]);
    let mut version = npy_of("<f4", "(2, 2)", &[0; 16]);
    version[6] = 9;
    let mut lies = npy_of("<f4", "(2, 2)", &[0; 16]);
    lies[8..10].copy_from_slice(&[0xff, 0xff]);
    let mut long = b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec();
    long.extend([b' '; 100]);
    refused(
        vec![
            ("empty.npy", vec![], &["byte 0", "header"]),
            ("magic.npy", vec![b'x'; 100], &["byte 0", "NUMPY"]),
            ("version.npy", version, &["byte 6", "version 9"]),
            ("lies.npy", lies, &["byte 8", "65535"]),
            ("long.npy", long, &["byte 8", "4294967295", "max_header_bytes"]),
            ("list.npy", header("[1, 2]"), &["byte 10", "`{` expected"]),
            ("open.npy", header("{'descr': '<f4"), &["a string expected"]),
            ("half.npy", header("{'descr': '<f4', }"), &["lacks"]),
            ("more.npy", header("{'descr': '<f4', 'size': 3}"), &["`size`"]),
            ("after.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)} {"), &["after its end"]),
            ("order.npy", header("{'descr': '<f4', 'fortran_order': 1, 'shape': (2, 2)}"), &["neither True nor False"]),
            ("negative.npy", npy_of("<f4", "(-2, 2)", &[0; 16]), &["no whole number"]),
            ("huge.npy", npy_of("<f4", "(99999999999999999999, 2)", &[0; 16]), &["too large"]),
            ("deep.npy", npy_of("<f4", &format!("({})", "1, ".repeat(65)), &[0; 4]), &["64 dimensions"]),
            ("tuple.npy", npy_of("<f4", "(2 2)", &[0; 16]), &["no tuple"]),
            ("complex.npy", npy_of("<c8", "(2, 1)", &[0; 16]), &["`<c8`", "astype"]),
            ("text.npy", npy_of("<U4", "(1, 1)", &[0; 16]), &["`<U4`"]),
            ("object.npy", npy_of("|O", "(2, 2)", &[0; 16]), &["`|O`"]),
            ("fields.npy", header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,)}"), &["structured"]),
            (
                "fortran.npy",
                header("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}"),
                &["Fortran", "ascontiguousarray"],
            ),
            ("number.npy", npy_of("<f4", "()", &[0; 4]), &["single number"]),
            ("short.npy", npy_of("<f4", "(3, 2)", &[0; 16]), &["24 bytes", "16", "truncated"]),
            ("long-data.npy", npy_of("<f4", "(1, 2)", &[0; 16]), &["left over"]),
            ("overflow.npy", npy_of("<f8", "(9223372036854775807, 4)", &[0; 16]), &["no file is as large"]),
            ("product.npy", npy_of("<f8", "(1, 9223372036854775807, 4)", &[0; 16]), &["max_sample_bytes"]),
            ("nan.npy", npy_of("<f4", "(2, 2)", &f32s(&[0.0, 0.0, f32::NAN, 0.0])), &["byte 78", "not finite"]),
            ("half-inf.npy", npy_of("<f2", "(2, 1)", &[0, 0, 0, 0x7c]), &["not finite"]),
            ("truth.npy", npy_of("|b1", "(2, 1)", &[1, 2]), &["neither 0 nor 1"]),
        ],
        &Options::default(),
    );
}

#[test]
fn broken_npz_is_refused() {
    let lie = |at: usize, lie: &[u8]| Zip { lies: vec![(at, lie.to_vec())], ..Zip::PLAIN }.pair();
    let end = |at: usize, lie: &[u8]| Zip { end_lies: vec![(at, lie.to_vec())], ..Zip::PLAIN }.pair();
    let pair = Zip::PLAIN.pair();
    let mut damaged = pair.clone();
    damaged[120] ^= 1;
    let mut deflated = Zip { deflate: true, ..Zip::PLAIN }.pair();
    deflated[35..60].fill(0xff);
    let array = || npy_of("|u1", "(1, 1)", &[0]);
    let many: Vec<String> = (0..1025).map(|index| format!("array{index}")).collect();
    let many: Vec<(&str, Vec<u8>)> = many.iter().map(|name| (name.as_str(), array())).collect();
    refused(
        vec![
            ("empty.npz", vec![], &["no zip archive"]),
            ("truncated.npz", pair[..pair.len() - 10].to_vec(), &["end is missing", "truncated"]),
            ("trailing.npz", [&pair[..], b"xyz"].concat(), &["end is missing"]),
            ("damaged.npz:", damaged, &["x.npy", "checksum"]),
            ("deflated.npz", deflated, &["x.npy", "corrupt"]),
            ("encrypted.npz", lie(8, &[1]), &["`x.npy`", "encrypted"]),
            ("method.npz", lie(10, &[12]), &["method 12"]),
            ("sizes.npz", lie(24, &[0xff, 0xff]), &["two sizes"]),
            ("longer.npz", lie(20, &[255, 255, 9, 0, 255, 255, 9, 0]), &["x.npy", "longer than the archive"]),
            ("checksum.npz", lie(16, &[1, 2, 3, 4]), &["x.npy", "checksum"]),
            ("header.npz", lie(42, &[1, 0, 0, 0]), &["x.npy", "no member"]),
            ("zip64.npz", lie(42, &[255; 4]), &["zip64"]),
            ("beyond.npz", lie(42, &[255, 255, 255, 0]), &["beyond the end"]),
            ("entries.npz", end(10, &[9, 0]), &["byte", "list of members is damaged"]),
            ("fewer.npz", end(10, &[1, 0]), &["longer than the members"]),
            ("directory.npz", end(12, &[255, 255, 255, 127]), &["beyond its end"]),
            ("twice.npz", Zip::PLAIN.write(&[("x", array()), ("x", array())]), &["second member"]),
            ("none.npz", Zip::PLAIN.write(&[]), &["no arrays"]),
            ("many.npz", Zip::PLAIN.write(&many), &["1025 members", "max_arrays"]),
            ("unclear.npz", Zip::PLAIN.write(&[("a.npy", array()), ("b.npy", array())]), &["not clear", "`a`, `b`"]),
            ("inside.npz", Zip::PLAIN.write(&[("x.npy", b"hello, world".to_vec())]), &["x.npy", "byte 0", "NUMPY"]),
            (
                "counts.npz",
                Zip::PLAIN.write(&[("x", npy_of("|u1", "(2, 1)", &[0; 2])), ("y", npy_of("|u1", "(3,)", &[0; 3]))]),
                &["3 labels", "2 samples"],
            ),
            (
                "cube.npz",
                Zip::PLAIN.write(&[("x", array()), ("y", npy_of("|u1", "(1, 1, 1)", &[0]))]),
                &[":y", "one number or one row"],
            ),
            (
                "negative.npz",
                Zip::PLAIN.write(&[("x", array()), ("y", npy_of("|i1", "(1,)", &[0xfd]))]),
                &[":y", "byte", "-3"],
            ),
        ],
        &Options::default(),
    );
    let options =
        Options { arrays: ArrayNames { labels: Some("kinds".into()), ..Default::default() }, ..Options::default() };
    refused(vec![("name.npz", pair, &["`kinds`", "`x`, `y`"])], &options);
}

#[test]
fn broken_csv_is_refused() {
    let text = |text: &str| text.as_bytes().to_vec();
    refused(
        vec![
            ("empty.csv", text(""), &["no rows"]),
            ("blank.csv", text("\n\r\n\n"), &["no rows"]),
            ("header.csv", text("a,b,c\n"), &["no rows but its header"]),
            ("ragged.csv", text("1,2,0\n1,2,3,0\n"), &["line 2", "4 cells", "line 1 has 3"]),
            ("short.csv", text("a,b,c\r\n1,2,0\r\n\r\n1,0\r\n"), &["line 4", "2 cells"]),
            ("word.csv", text("a,b,c\n1,2,0\n3,fo\u{7}ur,1\n"), &["line 3", "column 2", "`fo\\u{7}ur`"]),
            ("long.csv", text(&format!("1,2,0\n1,{},0\n", "x".repeat(5000))), &["line 2", "column 2", "xxx…"]),
            ("nan.csv", text("1,2,0\nNaN,2,0\n"), &["line 2", "column 1", "not finite"]),
            ("inf.csv", text("1,2,0\n1,-inf,0\n"), &["line 2", "column 2", "not finite"]),
            ("far.csv", text("1,2,0\n1,1e50,0\n"), &["line 2", "column 2", "not finite"]),
            ("missing.csv", text("1,2,0\n1,,0\n"), &["line 2", "column 2", "empty"]),
            ("comma.csv", text("1;2;0\n1,5;2;0\n"), &["line 2", "column 1", "`1,5`"]),
            ("label.csv", text("1,2,0\n1,2,\n"), &["line 2", "column 3", "label is empty"]),
            ("mixed.csv", text("1,2,0\n1,2,cat\n"), &["line 2", "column 3", "`cat`"]),
            ("mixed-too.csv", text("1,2,cat\n1,2,0\n"), &["line 2", "column 3", "`0`"]),
            ("nan-label.csv", text("1,2,0\n1,2,nan\n"), &["line 2", "not finite"]),
            ("negative.csv", text("1,2,0\n1,2,-7\n"), &["line 2", "-7"]),
            ("large.csv", text("1,2,0\n1,2,70000\n"), &["line 2", "70000", "65535"]),
            ("quote.csv", text("a,b,c\n1,2,x\n1,2,\"y\n1,2,z\n"), &["line 3", "never closed"]),
            ("single.csv", text("1\n2\n"), &["only column"]),
            ("index.csv", text(",a,b,label\n0,1,2,0\n1,1,2,1\n"), &["line 1", "row numbers", "index=False"]),
            ("utf16.csv", vec![0xff, 0xfe, b'1', 0, b',', 0], &["UTF-16"]),
            ("zeros.csv", vec![0; 100], &["zeros.csv"]),
            ("latin.csv", b"1,2,caf\xe9\n".to_vec(), &["line 1", "UTF-8"]),
            ("half-header.csv", text("a,2,0\n1,2,0\n"), &["line 1", "column 1", "header"]),
        ],
        &Options::default(),
    );
    let limits = Limits { max_line_bytes: 100, max_columns: 10, max_class_name_bytes: 20, ..Limits::default() };
    refused(
        vec![
            ("line.csv", text(&format!("1,2,0\n1,{},0\n", "1".repeat(200))), &["line 2", "max_line_bytes"]),
            ("columns.csv", text(&"1,".repeat(20)), &["line 1", "max_columns"]),
            ("names.csv", text("1,first of all\n1,second of all\n"), &["line 2", "max_class_name_bytes"]),
        ],
        &Options { limits, ..Options::default() },
    );
    let column = |label_column| Options { label_column, ..Options::default() };
    refused(vec![("no-name.csv", text("a,b\n1,2\n"), &["`c`", "`a`, `b`"])], &column(LabelColumn::Name("c".into())));
    refused(vec![("no-index.csv", text("1,2\n1,2\n"), &["column 2"])], &column(LabelColumn::Index(2)));
    let header = Options { header: Header::No, ..Options::default() };
    refused(vec![("no-header.csv", text("a,b\n1,2\n"), &["line 2", "`2`"])], &header);
    let classes = Options { classes: Some(vec!["cat".into()]), ..Options::default() };
    refused(vec![("class.csv", text("1,cat\n1,cow\n"), &["line 2", "`cow`", "known classes"])], &classes);
}

#[test]
fn broken_libsvm_is_refused() {
    let text = |text: &str| text.as_bytes().to_vec();
    refused(
        vec![
            ("empty.libsvm", text(""), &["no samples"]),
            ("comments.libsvm", text("# nothing\n\n"), &["no samples"]),
            ("no-label.libsvm", text("1 1:1\n1:1 2:2\n"), &["line 2", "`1:1`"]),
            ("label.libsvm", text("1 1:1\ncat 1:1\n"), &["line 2", "`cat`"]),
            ("several.libsvm", text("1,2 1:1\n"), &["line 1", "several labels"]),
            ("word.libsvm", text("1 1:1\n1 hello\n"), &["line 2", "`hello`"]),
            ("qid.libsvm", text("1 qid:3 1:1\n"), &["line 1", "qid"]),
            ("index.libsvm", text("1 x:1\n"), &["line 1", "`x:1`"]),
            ("minus.libsvm", text("1 -1:1\n"), &["line 1", "`-1:1`"]),
            ("overflow.libsvm", text("1 99999999999999999999:1\n"), &["line 1", "whole number"]),
            ("wide.libsvm", text("1 4294967295:1\n"), &["line 1", "max_sparse_columns"]),
            ("order.libsvm", text("1 2:1 1:1\n"), &["line 1", "not higher"]),
            ("twice.libsvm", text("1 2:1 2:1\n"), &["line 1", "not higher"]),
            ("value.libsvm", text("1 1:1\n1 2:abc\n"), &["line 2", "`abc`"]),
            ("no-value.libsvm", text("1 1:\n"), &["line 1", "index 1"]),
            ("nan.libsvm", text("1 1:nan\n"), &["line 1", "`nan`"]),
            ("columns.libsvm", text("1\n0\n"), &["0 columns"]),
            ("negative.libsvm", text("1 1:1\n-3 1:1\n"), &["line 2", "-3"]),
        ],
        &Options::default(),
    );
    let narrow = Options { columns: Some(3), index_base: Some(1), ..Options::default() };
    refused(vec![("narrow.libsvm", text("1 3:1\n1 4:1\n"), &["line 2", "index 4"])], &narrow);
    refused(vec![("base.libsvm", text("1 0:1\n"), &["line 1", "index 0"])], &narrow);
    let limits = Limits { max_line_bytes: 100, ..Limits::default() };
    let line = text(&format!("1 1:1\n1 {}\n", "1".repeat(200)));
    refused(vec![("line.libsvm", line, &["line 2", "max_line_bytes"])], &Options { limits, ..Options::default() });
}

#[test]
fn broken_cifar_is_refused() {
    let mut class = cifar(3);
    class[3073] = 10;
    let whole = cifar(2);
    refused(
        vec![
            ("empty.bin", vec![], &["byte 0"]),
            ("short.bin", whole[..4000].to_vec(), &["byte 3073", "3073"]),
            ("long.bin", [&whole[..], &[0]].concat(), &["byte 6146"]),
            ("class.bin", class, &["byte 3073", "class 10"]),
            ("short.bin.gz", gz(&whole[..4000]), &["byte 4000 when expanded", "truncated"]),
            ("empty.bin.gz", gz(&[]), &["empty"]),
        ],
        &Options::default(),
    );
}

#[test]
fn broken_safetensors_is_refused() {
    let pair = safetensors_pair();
    let one = |shape: &str, offsets: &str, kind: &str, bytes: usize| {
        let header = format!(r#"{{"x":{{"dtype":"{kind}","shape":{shape},"data_offsets":{offsets}}}}}"#);
        safetensors(&header, &vec![0; bytes])
    };
    refused(
        vec![
            ("empty.safetensors", vec![], &["byte 0"]),
            ("short.safetensors", pair[..pair.len() - 1].to_vec(), &["byte", "`y`"]),
            ("trailing.safetensors", [&pair[..], &[0]].concat(), &["byte", "1 bytes are left"]),
            ("length.safetensors", [&u64::MAX.to_le_bytes()[..], &pair[8..]].concat(), &["byte 0", "max_header_bytes"]),
            ("json.safetensors", safetensors("{\"x\":", &[]), &["byte 8"]),
            ("deep.safetensors", safetensors(&"[".repeat(100_000), &[]), &["byte 8"]),
            ("none.safetensors", safetensors("{}", &[]), &["no arrays"]),
            ("offsets.safetensors", one("[2,2]", "[4,20]", "F32", 20), &["offset"]),
            ("backwards.safetensors", one("[2,2]", "[16,0]", "F32", 16), &["byte"]),
            ("beyond.safetensors", one("[2,2]", "[0,16]", "F32", 8), &["byte"]),
            ("shape.safetensors", one("[2,3]", "[0,16]", "F32", 16), &["byte"]),
            ("overflow.safetensors", one("[18446744073709551615,2]", "[0,16]", "F32", 16), &["byte"]),
            ("dtype.safetensors", one("[2,2]", "[0,4]", "F8_E4M3", 4), &["F8_E4M3"]),
            ("number.safetensors", one("[]", "[0,4]", "F32", 4), &["single number"]),
        ],
        &Options::default(),
    );
}

#[test]
fn broken_gzip_is_refused() {
    let csv = b"1,2,0\n3,4,1\n".repeat(100);
    let packed = gz(&csv);
    let mut checksum = packed.clone();
    let at = checksum.len() - 8;
    checksum[at] ^= 1;
    let mut damaged = packed.clone();
    damaged[20..].fill(0x55);
    // Headers that claim much, in a file whose size says nothing.
    let idx_lies = gz(&idx(8, &[u32::MAX, 1000, 1000], &[0; 100]));
    let npy_lies = gz(&npy_of("<f8", "(1000000000, 1000)", &[0; 100]));
    refused(
        vec![
            ("plain.csv.gz", csv, &["name says gzip"]),
            ("truncated.csv.gz", packed[..packed.len() - 12].to_vec(), &["when expanded"]),
            ("checksum.csv.gz", checksum, &["when expanded"]),
            ("damaged.csv.gz", damaged, &["when expanded"]),
            ("trailing.csv.gz", [&packed[..], b"hello"].concat(), &["when expanded"]),
            ("lies.idx.gz", idx_lies, &["byte 116 when expanded", "truncated"]),
            ("lies.npy.gz", npy_lies, &["when expanded", "truncated"]),
        ],
        &Options::default(),
    );
}

#[test]
fn bombs_are_refused() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(b"x,y,z\n").unwrap();
    // A hundred megabytes in a hundred kilobytes.
    (0..100).for_each(|_| packed.write_all(&vec![b'\n'; 1 << 20]).unwrap());
    let bomb = packed.finish().unwrap();
    let zeros = npy_of("|u1", "(1024, 1024)", &vec![0; 1 << 20]);
    let zip = Zip { deflate: true, ..Zip::PLAIN }.write(&[("x.npy", zeros.clone())]);
    let small = Limits { max_expanded_bytes: 1 << 16, ..Limits::default() };
    let small = Options { limits: small, ..Options::default() };
    let flat = Limits { free_expanded_bytes: 1 << 16, max_expansion: 100, ..Limits::default() };
    let flat = Options { limits: flat, ..Options::default() };
    refused(vec![("bomb.csv.gz", bomb, &["when expanded", "1000 times", "max_expansion"])], &Options::default());
    for (options, word) in [(&small, "max_expanded_bytes"), (&flat, "max_expansion")] {
        let words = &[word][..];
        refused(
            vec![
                ("bomb.npy.gz", gz(&zeros), words),
                ("bomb.npz", zip.clone(), words),
                ("bomb.npz.gz", gz(&gz(&zeros)), &["bomb.npz.gz"]),
                ("bomb.safetensors.gz", gz(&vec![0; 1 << 20]), words),
            ],
            options,
        );
    }
    let mut lies = Zip { deflate: true, ..Zip::PLAIN };
    lies.lies.push((24, 100_u32.to_le_bytes().to_vec()));
    refused(vec![("more.npz", lies.write(&[("x.npy", zeros)]), &["x.npy"])], &Options::default());
}

#[test]
fn files_that_do_not_fit_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    file("x.npy", &npy_of("|u1", "(4, 2)", &[0; 8]));
    file("x.csv", b"1,2\n3,4\n5,6\n7,8\n");
    file("three.npy", &npy_of("|u1", "(3,)", &[0; 3]));
    file("five.csv", b"0\n1\n0\n1\n0\n");
    file("three.csv", b"0\n1\n0\n");
    file("values.csv", b"0,1\n1,0\n0,0\n");
    file("names.csv", b"a\nb\nc\nd\n");
    file("data.bin", &cifar(4));
    file("data.libsvm", b"1 1:1\n");
    let options = Options::default();
    let cases: [(&[&str], &[&str]); 8] = [
        (&["x.npy", "three.npy"], &["x.npy", "three.npy", "3 labels", "4 samples"]),
        (&["x.npy", "five.csv"], &["x.npy", "five.csv", "5 labels", "4 samples"]),
        (&["x.csv", "five.csv"], &["x.csv", "five.csv", "more labels than the 4 samples"]),
        (&["x.csv", "three.csv"], &["x.csv", "three.csv", "3 labels", "more samples"]),
        (&["x.npy", "values.csv"], &["x.npy", "values.csv", "3 labels"]),
        (&["data.bin", "three.npy"], &["data.bin", "labels itself"]),
        (&["x.npy", "data.libsvm"], &["data.libsvm", "cannot be the labels"]),
        (&["missing.npy"], &["missing.npy", "cannot read"]),
    ];
    for (files, expected) in cases {
        assert_eq!(problem_with(folder.path(), files, &options, expected), None);
    }
    assert_eq!(problem_with(folder.path(), &["."], &options, &["not a regular file"]), None);
    let classes = Options { labels: LabelKind::Class, ..Options::default() };
    let expected = ["names.csv", "line 1", "`a`"];
    assert_eq!(problem_with(folder.path(), &["x.npy", "names.csv"], &classes, &expected), None);
}

#[test]
fn a_format_that_cannot_be_guessed_is_asked_for() {
    refused(
        vec![
            ("thing", vec![1, 2, 3, 0, 255], &["format is not clear", "safetensors"]),
            ("void", vec![], &["is empty"]),
        ],
        &Options::default(),
    );
    assert!("jpeg".parse::<Format>().unwrap_err().contains("idx, npy"));
}

#[test]
fn formats_are_guessed_from_content() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in right_files() {
        let (named, unnamed) = (folder.path().join(name), folder.path().join("unnamed"));
        std::fs::write(named, &bytes).unwrap();
        std::fs::write(unnamed, &bytes).unwrap();
        let rows = |name| read(folder.path(), &[name], &Options::default()).map(|(_, rows)| rows);
        // The names that the error of a failure says are different.
        assert_eq!(rows("unnamed").unwrap(), rows(name).unwrap(), "{name}");
    }
}

#[test]
fn an_error_leaves_whole_samples_only() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("late.csv"), b"1,2,0\n3,4,1\n5,x,0\n").unwrap();
    let mut samples = open(&Source::at(folder.path().join("late.csv")), None, &Options::default()).unwrap();
    let mut rows = Rows::default();
    assert_eq!(samples.read(2, &mut rows).unwrap(), 2);
    let before = rows.clone();
    assert!(samples.read(2, &mut rows).is_err());
    assert_eq!(rows, before);
    assert!(samples.read(2, &mut rows).unwrap_err().to_string().contains("earlier read"));
}

#[test]
fn memory_does_not_depend_on_the_size_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.npy");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&npy_of("<f4", "(262144, 1024)", &[])).unwrap();
    // A gigabyte that takes no room on disk.
    let header = file.metadata().unwrap().len();
    file.set_len(header + (1 << 30)).unwrap();
    let (count, most) = peak(|| {
        let mut samples = open(&Source::at(path), None, &Options::default()).unwrap();
        let (mut rows, mut count) = (Rows::default(), 0);
        while samples.read(usize::MAX, &mut rows).unwrap() > 0 {
            count += rows.count;
            rows.count = 0;
            assert!(matches!(&rows.features, Values::Dense(bytes) if bytes.len() <= 2 << 20));
        }
        count
    });
    assert_eq!(count, 262_144);
    assert!(most < MOST_BYTES, "{most}");
}
