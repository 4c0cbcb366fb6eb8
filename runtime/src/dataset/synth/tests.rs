use super::*;

fn read(kind: Kind, seed: u64, samples: Range<u64>, most: usize) -> Rows {
    let mut synthetic = Synthetic::new(kind, seed, samples);
    let mut rows = Rows::of(&synthetic.features);
    while synthetic.read(most, &mut rows).unwrap() > 0 {}
    rows
}

fn share_of_ones(rows: &Rows) -> f64 {
    rows.labels.iter().step_by(4).filter(|label| **label == 1).count() as f64 / rows.count as f64
}

const KINDS: [Kind; 3] = [Kind::Binary20, Kind::Higgs, Kind::Rcv1];

#[test]
fn the_same_seed_gives_the_same_samples_however_they_are_read() {
    for kind in KINDS {
        assert_eq!(read(kind, 5, 0..50, 50), read(kind, 5, 0..50, 7), "{kind}");
    }
}

#[test]
fn another_seed_gives_other_samples() {
    for kind in KINDS {
        assert_ne!(read(kind, 5, 0..50, 50), read(kind, 6, 0..50, 50), "{kind}");
    }
}

#[test]
fn a_range_is_a_part_of_a_longer_one() {
    for kind in KINDS {
        let (all, part) = (read(kind, 1, 0..30, 30), read(kind, 1, 10..30, 20));
        let mut end = Rows::of(&Synthetic::new(kind, 1, 0..0).features);
        assert!(end.extend(&all, 10..30));
        assert_eq!(part, end, "{kind}");
    }
}

#[test]
fn bits_never_change() {
    // What is published with a seed must stay what it was.
    let digests = KINDS.map(|kind| {
        let rows = read(kind, 42, 0..20, 20);
        let features = Synthetic::new(kind, 42, 0..0).features;
        let block = crate::dataset::block::encode(&rows, &features, Some(Labels::Class)).unwrap();
        crate::digest::Digest::of(&block).short()
    });
    assert_eq!(digests, ["0c61f133ee9d", "55198ca73bd1", "436fcb97e647"]);
}

#[test]
fn both_classes_are_common() {
    for kind in KINDS {
        let share = share_of_ones(&read(kind, 3, 0..2000, 2000));
        assert!((0.3..0.7).contains(&share), "{kind}: {share}");
    }
}

#[test]
fn sparse_samples_have_unit_length_and_the_stated_density() {
    let rows = read(Kind::Rcv1, 3, 0..500, 500);
    let Values::Sparse { starts, values, .. } = &rows.features else { panic!("not sparse") };
    let density = values.len() as f64 / (500.0 * f64::from(rcv1::COLUMNS));
    assert!((0.0014..0.0018).contains(&density), "{density}");
    for ends in starts.windows(2) {
        let length: f32 = values[ends[0] as usize..ends[1] as usize].iter().map(|value| value * value).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
}

#[test]
fn the_stated_weights_answer_as_the_labels_do_but_for_the_stated_noise() {
    let synthetic = Synthetic::new(Kind::Binary20, 9, 0..0);
    let rule = synthetic.rule();
    let weights = rule.split_once("w = [").unwrap().1.trim_end_matches(']');
    let weights: Vec<f64> = weights.split(", ").map(|weight| weight.parse().unwrap()).collect();
    let rows = read(Kind::Binary20, 9, 0..4000, 4000);
    let Values::Dense(bytes) = &rows.features else { panic!("not dense") };
    let wrong = bytes.chunks(20).zip(rows.labels.chunks(4)).filter(|(bits, label)| {
        let score: f64 = bits.iter().zip(&weights).map(|(bit, weight)| (f64::from(*bit) - 0.5) * weight).sum();
        (score > 0.0) != (label[0] == 1)
    });
    let share = wrong.count() as f64 / 4000.0;
    assert!((0.03..0.07).contains(&share), "{share}");
}

#[test]
fn derived_masses_tell_signal_from_background_better_than_what_was_measured() {
    let rows = read(Kind::Higgs, 2, 0..4000, 4000);
    let Values::Dense(bytes) = &rows.features else { panic!("not dense") };
    let near = |feature: usize, class: u8| {
        let samples = bytes.chunks(4 * higgs::WIDTH).zip(rows.labels.chunks(4)).filter(|(_, label)| label[0] == class);
        let values =
            samples.map(|(sample, _)| f32::from_le_bytes(sample[4 * feature..4 * feature + 4].try_into().unwrap()));
        let (near, all) =
            values.fold((0, 0), |(near, all), value| (near + u32::from((value - 1.0).abs() < 0.3), all + 1));
        f64::from(near) / f64::from(all)
    };
    let apart = |feature| (near(feature, 1) - near(feature, 0)).abs();
    let (lepton, bb) = (apart(0), apart(25));
    assert!(bb > 0.3 && lepton < 0.05, "{bb} {lepton}");
}

#[test]
fn names_are_those_that_are_shown() {
    for kind in KINDS {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    assert!("mnist".parse::<Kind>().unwrap_err().to_string().contains("binary20"));
}
