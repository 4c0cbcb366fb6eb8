use std::collections::HashMap;

use super::*;
use crate::dataset::block;
use crate::dataset::manifest::{BlockRef, Split, Statistics};
use crate::dataset::preview::preview;
use crate::dataset::synth::{Kind, Synthetic};

#[derive(Default)]
struct Store(HashMap<Digest, Vec<u8>>);

impl BlockSink for Store {
    fn write(&mut self, bytes: Vec<u8>) -> io::Result<Digest> {
        let digest = Digest::of(&bytes);
        self.0.insert(digest, bytes);
        Ok(digest)
    }
}

impl Store {
    fn rows(&self, manifest: &Manifest, block: &BlockRef) -> Rows {
        block::decode(&self.0[&block.digest], block, &manifest.features, manifest.labels).unwrap()
    }

    /// The first byte of each sample's features, and its class, in order.
    fn samples(&self, manifest: &Manifest, split: &Split) -> Vec<(u8, i32)> {
        let rows = split.blocks.iter().map(|block| self.rows(manifest, block));
        let samples = rows.flat_map(|rows| {
            let Values::Dense(bytes) = rows.features else { panic!("not dense") };
            let width = manifest.features.sample_bytes().unwrap();
            let firsts = bytes.chunks(width).map(|sample| sample[0]).collect::<Vec<_>>();
            firsts.into_iter().zip(numbers(&rows.labels, i32::from_le_bytes).collect::<Vec<_>>())
        });
        samples.collect()
    }
}

/// Samples from memory, some at a time.
struct Source {
    features: Features,
    labels: Option<Labels>,
    names: Option<Vec<String>>,
    rows: Rows,
    next: usize,
    step: usize,
}

impl Samples for Source {
    fn features(&self) -> &Features {
        &self.features
    }

    fn labels(&self) -> Option<Labels> {
        self.labels
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn class_names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    fn read(&mut self, most: usize, into: &mut Rows) -> Result<usize, ReadError> {
        let count = most.min(self.step).min(self.rows.count - self.next);
        assert!(into.extend(&self.rows, self.next..self.next + count));
        self.next += count;
        Ok(count)
    }
}

fn shaped(shape: &[usize], samples: &[(u8, i32)]) -> Source {
    let width: usize = shape.iter().product();
    let features =
        samples.iter().flat_map(|(first, _)| (0..width).map(|index| first.wrapping_add(index as u8))).collect();
    let labels = samples.iter().flat_map(|(_, class)| class.to_le_bytes()).collect();
    Source {
        features: Features::Dense { element: Element::U8, shape: shape.to_vec() },
        labels: Some(Labels::Class),
        names: None,
        rows: Rows { count: samples.len(), features: Values::Dense(features), labels },
        next: 0,
        step: 3,
    }
}

fn source(samples: &[(u8, i32)]) -> Source {
    shaped(&[4], samples)
}

fn named(names: &[&str], samples: &[(u8, i32)]) -> Source {
    Source { names: Some(names.iter().map(|name| (*name).to_owned()).collect()), ..source(samples) }
}

fn floats(values: &[f32]) -> Source {
    Source {
        features: Features::Dense { element: Element::F32, shape: vec![] },
        labels: None,
        names: None,
        rows: Rows {
            count: values.len(),
            features: Values::Dense(values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            labels: Vec::new(),
        },
        next: 0,
        step: 2,
    }
}

fn sources(train: Vec<Source>, test: Vec<Source>) -> Sources {
    let boxed = |sources: Vec<Source>| sources.into_iter().map(|source| Box::new(source) as Box<dyn Samples>).collect();
    Sources { train: boxed(train), test: boxed(test) }
}

fn build(options: Options, train: Vec<Source>, test: Vec<Source>) -> (Result<Manifest, BuildError>, Store) {
    let mut store = Store::default();
    (Builder::new(options, &mut store).build(sources(train, test)), store)
}

fn refused(options: Options, train: Vec<Source>, test: Vec<Source>) -> String {
    build(options, train, test).0.unwrap_err().to_string()
}

fn many(count: usize) -> Vec<(u8, i32)> {
    (0..count).map(|index| (index as u8, (index % 3) as i32)).collect()
}

#[test]
fn samples_come_back_in_order_from_their_blocks() {
    let (manifest, store) = build(Options::default(), vec![source(&many(50))], vec![source(&[(9, 1)])]);
    let manifest = manifest.unwrap();
    assert_eq!(store.samples(&manifest, &manifest.train), many(50));
    assert_eq!(store.samples(&manifest, &manifest.test), [(9, 1)]);
    assert_eq!(manifest.train.classes, [17, 17, 16]);
}

#[test]
fn blocks_are_cut_alike_however_samples_are_read() {
    let big = |step| Source { step, ..shaped(&[1 << 19], &many(11)) };
    let one = build(Options::default(), vec![big(1)], vec![]).0.unwrap();
    let other = build(Options::default(), vec![big(7)], vec![]).0.unwrap();
    assert_eq!(one.train.blocks.iter().map(|block| block.count).collect::<Vec<_>>(), [4, 4, 3]);
    assert_eq!(one.version(), other.version());
}

#[test]
fn a_sample_larger_than_a_block_has_one_of_its_own() {
    let manifest = build(Options::default(), vec![shaped(&[3 << 20], &many(2))], vec![]).0.unwrap();
    assert_eq!(manifest.train.blocks.len(), 2);
}

#[test]
fn sparse_blocks_are_cut_by_their_numbers() {
    let mut store = Store::default();
    let rcv1 = Synthetic::new(Kind::Rcv1, 1, 0..4000);
    let manifest = Builder::new(Options::default(), &mut store)
        .build(Sources { train: vec![Box::new(rcv1)], test: vec![] })
        .unwrap();
    assert!(manifest.train.blocks.len() > 1);
    assert!(manifest.train.blocks.iter().all(|block| block.bytes < (block::TARGET_BYTES + (300 << 10)) as u64));
    let counted: usize = manifest.train.blocks.iter().map(|block| store.rows(&manifest, block).count).sum();
    assert_eq!(counted, 4000);
}

#[test]
fn a_split_is_exact_and_loses_nothing() {
    let options = Options { split: Some(0.8), ..Options::default() };
    let (manifest, store) = build(options, vec![source(&many(200))], vec![]);
    let manifest = manifest.unwrap();
    assert_eq!((manifest.train.count, manifest.test.count), (160, 40));
    let mut all = store.samples(&manifest, &manifest.train);
    all.extend(store.samples(&manifest, &manifest.test));
    all.sort_unstable();
    let mut expected = many(200);
    expected.sort_unstable();
    assert_eq!(all, expected);
}

#[test]
fn a_split_that_leaves_nothing_to_test_with_is_refused() {
    let options = Options { split: Some(0.95), ..Options::default() };
    assert_eq!(refused(options, vec![source(&many(4))], vec![]), "a split of 0.95 of 4 samples leaves none for test");
}

#[test]
fn a_split_beside_samples_to_test_with_is_refused() {
    let options = Options { split: Some(0.5), ..Options::default() };
    assert!(refused(options, vec![source(&many(4))], vec![source(&many(4))]).contains("leave out the split"));
}

#[test]
fn another_shape_changes_no_number() {
    let options = Options { shape: Some(vec![1, 2, 2]), ..Options::default() };
    let (manifest, store) = build(options, vec![source(&many(5))], vec![]);
    let manifest = manifest.unwrap();
    assert_eq!(manifest.features, Features::Dense { element: Element::U8, shape: vec![1, 2, 2] });
    assert_eq!(store.samples(&manifest, &manifest.train), many(5));
}

#[test]
fn a_shape_of_another_size_is_refused() {
    let options = Options { shape: Some(vec![3, 2]), ..Options::default() };
    let error = refused(options, vec![source(&many(5))], vec![]);
    assert_eq!(error, "samples of 4 of u8 cannot have the shape 3x2: 4 numbers are not 6");
}

#[test]
fn images_are_resized() {
    let options = Options { shape: Some(vec![1, 2, 2]), resize: Some((4, 6)), ..Options::default() };
    let manifest = build(options, vec![source(&many(5))], vec![]).0.unwrap();
    assert_eq!(manifest.features, Features::Dense { element: Element::U8, shape: vec![1, 4, 6] });
    assert_eq!(manifest.statistics.count, 5 * 24);
}

#[test]
fn what_is_no_image_is_not_resized() {
    let options = Options { resize: Some((4, 4)), ..Options::default() };
    assert!(refused(options, vec![source(&many(5))], vec![]).contains("only `HxW` and `CxHxW`"));
}

#[test]
fn an_impossible_size_is_refused_before_anything_is_read() {
    for size in [(0, 4), (usize::MAX, 2), (1 << 20, 1 << 20)] {
        let options = Options { shape: Some(vec![2, 2]), resize: Some(size), ..Options::default() };
        assert!(refused(options, vec![source(&many(5))], vec![]).contains("is not possible"), "{size:?}");
    }
}

#[test]
fn sparse_samples_are_not_standardised() {
    let mut store = Store::default();
    let options = Options { transform: Some(Transform::Standardise), ..Options::default() };
    let train: Vec<Box<dyn Samples>> = vec![Box::new(Synthetic::new(Kind::Rcv1, 1, 0..10))];
    let error = Builder::new(options, &mut store).build(Sources { train, test: vec![] }).unwrap_err();
    assert!(error.to_string().contains("use `normalise`"), "{error}");
}

#[test]
fn train_and_test_of_other_shapes_are_refused() {
    let error = refused(Options::default(), vec![source(&many(5))], vec![shaped(&[2, 2], &many(5))]);
    assert_eq!(error, "test: samples have 2x2 of u8, others have 4 of u8; give a shape");
}

#[test]
fn labels_in_one_split_only_are_refused() {
    let plain = Source { labels: None, ..source(&[]) };
    let error = refused(Options::default(), vec![source(&many(5))], vec![plain]);
    assert_eq!(error, "test: samples have no labels, others have classes as labels");
}

#[test]
fn nothing_to_train_on_is_refused() {
    for train in [vec![], vec![source(&[])]] {
        assert_eq!(refused(Options::default(), train, vec![source(&many(2))]), "no samples to train on");
    }
}

#[test]
fn a_class_that_only_the_test_has_is_counted_in_both() {
    let manifest = build(Options::default(), vec![source(&[(1, 0)])], vec![source(&[(1, 2)])]).0.unwrap();
    assert_eq!((manifest.train.classes, manifest.test.classes), (vec![1, 0, 0], vec![0, 0, 1]));
}

#[test]
fn labels_that_are_no_classes_are_refused() {
    for label in [-1, i32::MAX] {
        let error = refused(Options::default(), vec![source(&[(1, 0), (2, label)])], vec![]);
        assert!(error.contains("sample 1 ") && error.contains(&label.to_string()), "{error}");
    }
}

#[test]
fn numbers_that_are_not_finite_are_refused_with_their_place() {
    let error = refused(Options::default(), vec![floats(&[1.0, 2.0, 3.0, f32::NAN])], vec![]);
    assert!(error.starts_with("train: feature 0 of sample 3 is no finite number"), "{error}");
}

#[test]
fn classes_with_one_name_are_one_class() {
    let train = named(&["cat", "dog"], &[(1, 0), (2, 1)]);
    let test = named(&["dog", "cow"], &[(3, 0), (4, 1)]);
    let (manifest, store) = build(Options::default(), vec![train], vec![test]);
    let manifest = manifest.unwrap();
    assert_eq!(manifest.class_names, ["cat", "dog", "cow"]);
    assert_eq!(store.samples(&manifest, &manifest.test), [(3, 1), (4, 2)]);
}

#[test]
fn given_names_fix_the_order_of_classes() {
    let options = Options { class_names: vec!["dog".into(), "cat".into()], ..Options::default() };
    let (manifest, store) = build(options, vec![named(&["cat", "dog"], &[(1, 0), (2, 1)])], vec![]);
    let manifest = manifest.unwrap();
    assert_eq!(store.samples(&manifest, &manifest.train), [(1, 1), (2, 0)]);
}

#[test]
fn a_name_that_was_not_given_is_refused() {
    let options = Options { class_names: vec!["dog".into()], ..Options::default() };
    let error = refused(options, vec![named(&["cat"], &[(1, 0)])], vec![]);
    assert_eq!(error, "train: class `cat` is not among the class names: `dog`");
}

#[test]
fn a_class_without_one_of_the_given_names_is_refused() {
    let options = Options { class_names: vec!["a".into(), "b".into()], ..Options::default() };
    let error = refused(options, vec![source(&[(1, 0), (1, 2)])], vec![]);
    assert_eq!(error, "train: sample 1 has the class 2, and only 2 classes have names");
}

fn append(manifest: &Manifest, train: Vec<Source>, test: Vec<Source>) -> Result<Manifest, BuildError> {
    Builder::new(Options::default(), &mut Store::default()).append(manifest, sources(train, test))
}

#[test]
fn appending_shares_the_old_blocks_and_counts_all_samples() {
    let old = build(Options::default(), vec![source(&many(30))], vec![source(&many(3))]).0.unwrap();
    let new = append(&old, vec![source(&[(200, 4)])], vec![]).unwrap();
    assert_eq!(new.train.blocks[..old.train.blocks.len()], old.train.blocks);
    assert_eq!((new.train.count, new.test.count), (31, 3));
    assert_eq!(new.train.classes, [10, 10, 10, 0, 1]);
    let whole = build(Options::default(), vec![source(&[many(30), vec![(200, 4)]].concat())], vec![]).0.unwrap();
    assert_eq!(new.statistics.high, whole.statistics.high);
    let apart = new.statistics.mean[0] - whole.statistics.mean[0];
    assert!(apart.abs() < 1e-9, "{apart}");
}

#[test]
fn appending_nothing_is_refused() {
    let old = build(Options::default(), vec![source(&many(3))], vec![]).0.unwrap();
    for train in [vec![], vec![source(&[])]] {
        assert!(matches!(append(&old, train, vec![]), Err(BuildError::NothingToAdd)));
    }
}

#[test]
fn appending_samples_of_another_kind_is_refused() {
    let old = build(Options::default(), vec![source(&many(3))], vec![]).0.unwrap();
    let error = append(&old, vec![shaped(&[5], &many(2))], vec![]).unwrap_err();
    assert_eq!(error.to_string(), "train: samples have 5 of u8, others have 4 of u8");
}

#[test]
fn appended_classes_keep_the_numbers_of_their_names() {
    let old = build(Options::default(), vec![named(&["cat", "dog"], &[(1, 0), (2, 1)])], vec![]).0.unwrap();
    let new = append(&old, vec![named(&["emu", "cat"], &[(1, 0), (1, 1)])], vec![]).unwrap();
    assert_eq!(new.class_names, ["cat", "dog", "emu"]);
    assert_eq!(new.train.classes, [2, 1, 1]);
}

#[test]
fn sparse_data_sets_grow_wider() {
    let sparse = |columns: u32| {
        let features = Values::Sparse { starts: vec![0, 1], columns: vec![columns - 1], values: vec![2.0] };
        Source {
            features: Features::Sparse { columns },
            labels: None,
            names: None,
            rows: Rows { count: 1, features, labels: Vec::new() },
            next: 0,
            step: 1,
        }
    };
    let old = build(Options::default(), vec![sparse(3)], vec![]).0.unwrap();
    let new = append(&old, vec![sparse(5)], vec![]).unwrap();
    assert_eq!(new.features, Features::Sparse { columns: 5 });
    assert_eq!(new.statistics.mean, [0.0, 0.0, 1.0, 0.0, 1.0]);
}

#[test]
fn whoever_watches_is_told_and_can_stop() {
    let (mut store, mut told) = (Store::default(), Vec::new());
    let mut watch = |samples| {
        told.push(samples);
        if samples >= 6 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let built =
        Builder::new(Options::default(), &mut store).watch(&mut watch).build(sources(vec![source(&many(20))], vec![]));
    assert!(matches!(built, Err(BuildError::Cancelled)));
    assert_eq!(told, [3, 6]);
}

#[test]
fn a_manifest_is_read_back_as_it_was_written() {
    let mut store = Store::default();
    let higgs = Synthetic::new(Kind::Higgs, 1, 0..500);
    let options = Options { synthetic: Some(higgs.rule()), split: Some(0.7), ..Options::default() };
    let manifest =
        Builder::new(options, &mut store).build(Sources { train: vec![Box::new(higgs)], test: vec![] }).unwrap();
    let read = Manifest::parse(&manifest.to_bytes()).unwrap();
    assert_eq!(read, manifest);
    assert_eq!(read.version(), manifest.version());
}

#[test]
fn manifests_that_do_not_add_up_are_refused() {
    type Damage = fn(&mut Manifest);
    let damages: [(&str, Damage); 10] = [
        ("format 2", |manifest| manifest.format = 2),
        ("its blocks have", |manifest| manifest.train.count += 1),
        ("its classes have", |manifest| manifest.train.classes[0] += 1),
        ("cannot lie in a block", |manifest| manifest.train.blocks[0].bytes += 1),
        ("cannot lie in a block", |manifest| manifest.train.blocks[0].count = u32::MAX),
        ("no samples", |manifest| manifest.train.blocks[0].count = 0),
        ("samples of", |manifest| {
            manifest.features = Features::Dense { element: Element::F32, shape: vec![usize::MAX; 3] }
        }),
        ("statistics of", |manifest| manifest.statistics = Statistics::default()),
        ("statistics over", |manifest| manifest.statistics.count += 1),
        ("names for", |manifest| manifest.class_names = vec!["a".to_owned()]),
    ];
    let good = build(Options::default(), vec![source(&many(9))], vec![]).0.unwrap();
    for (expected, damage) in damages {
        let mut manifest = good.clone();
        damage(&mut manifest);
        let error = Manifest::parse(&manifest.to_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn what_is_no_manifest_is_refused() {
    for text in ["", "null", "{}", "{\"format\":1}", "[1,2", "{\"format\":1e99}"] {
        assert!(Manifest::parse(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn a_picture_is_shown_in_shades() {
    let options = Options { shape: Some(vec![1, 2, 2]), class_names: vec!["\u{1b}[2J".into()], ..Options::default() };
    let (manifest, store) = build(options, vec![source(&[(0, 0), (4, 0)])], vec![]);
    let manifest = manifest.unwrap();
    let block = &manifest.train.blocks[0];
    let text = preview(&manifest, block, &store.0[&block.digest], 1).unwrap();
    assert_eq!(text, "sample 0, class 0 (\\u{1b}[2J)\n    --\n  **@@\n");
}

#[test]
fn numbers_are_shown_as_numbers() {
    let (manifest, store) = build(Options::default(), vec![floats(&[0.1, -2.0])], vec![]);
    let manifest = manifest.unwrap();
    let block = &manifest.train.blocks[0];
    assert_eq!(preview(&manifest, block, &store.0[&block.digest], 5).unwrap(), "sample 0\n  0.1\nsample 1\n  -2\n");
}
