use super::*;

/// All combinations of so many workers.
fn all(workers: u32) -> Vec<Combination> {
    let mut all = Vec::new();
    for (rule, pace) in rules_and_paces() {
        for (&topology, &channel) in TopologyKind::ALL
            .iter()
            .flat_map(|topology| ChannelKind::ALL.iter().map(move |channel| (topology, channel)))
        {
            for bits in 0..8 {
                let on_loss = if bits & 1 == 0 { OnLoss::Wait } else { OnLoss::Drop };
                let (is_plain, fans_out) = (bits & 2 == 0, bits & 4 != 0);
                all.push(Combination { rule, topology, pace, is_plain, channel, on_loss, fans_out, workers });
            }
        }
    }
    all
}

#[test]
fn the_table_says_of_every_combination_what_the_check_says() {
    let is_ok = |combination: Combination| check(&combination).is_ok();
    for combination in all(2) {
        let Combination { rule, pace, topology, is_plain, channel, on_loss, fans_out, .. } = combination;
        // The first table, and then the row of the second one, which is made with the first topology that goes.
        let first = is_ok(Combination { topology, ..plain(rule, pace) });
        let second = topologies(rule, pace).next().is_some_and(|topology| {
            let plain = Combination { topology, ..plain(rule, pace) };
            is_ok(Combination { is_plain, ..plain })
                && is_ok(Combination { on_loss, ..plain })
                && is_ok(Combination { fans_out, ..plain })
                && is_ok(Combination { channel, ..plain })
        });
        assert_eq!(is_ok(combination), first && second, "{combination:?}");
    }
}

#[test]
fn whatever_is_refused_says_what_to_use_instead() {
    let mut refused = 0;
    for error in all(2).iter().filter_map(|combination| check(combination).err()) {
        assert!(error.reason.contains("Use ") && error.reason.contains(": "), "{error}");
        assert!(["pace", "topology", "codec", "channel", "on_loss", "fan_out"].contains(&error.word));
        assert!(table().contains(error.reason), "the table leaves out: {error}");
        refused += 1;
    }
    assert!(refused > 1_000);
}

#[test]
fn the_barrier_goes_with_every_rule_topology_and_channel() {
    for combination in all(2) {
        let is_plain = combination.is_plain && !combination.fans_out && combination.on_loss == OnLoss::Wait;
        if combination.pace == PaceKind::Barrier && is_plain {
            assert_eq!(check(&combination), Ok(()), "{combination:?}");
        }
    }
}

#[test]
fn what_is_valid_without_a_barrier() {
    let valid: Vec<_> = rules_and_paces()
        .filter(|(_, pace)| *pace != PaceKind::Barrier)
        .filter(|&(rule, pace)| topologies(rule, pace).next().is_some())
        .map(|(rule, pace)| {
            (rule.word(), pace.word(), topologies(rule, pace).map(TopologyKind::word).collect::<Vec<_>>())
        })
        .collect();
    let expected = [
        ("gradient-average", "staleness", vec!["memory"]),
        ("gradient-average", "on-arrival", vec!["memory"]),
        ("gradient-average", "quorum", vec!["peers"]),
        ("k-average", "overwrite", vec!["memory"]),
    ];
    assert_eq!(valid, expected);
}

#[test]
fn codecs_drops_and_fan_outs_go_with_some() {
    let refused = |change: fn(&mut Combination)| {
        let of = |(rule, pace): (RuleKind, PaceKind)| {
            let mut combination = Combination { topology: topologies(rule, pace).next()?, ..plain(rule, pace) };
            change(&mut combination);
            check(&combination).is_err().then(|| (rule.word(), pace.word()))
        };
        rules_and_paces().filter_map(of).collect::<Vec<_>>()
    };
    let without_codec = [("k-average", "overwrite"), ("statistic-sum", "barrier"), ("admm", "barrier")];
    assert_eq!(refused(|combination| combination.is_plain = false), without_codec);
    assert_eq!(refused(|combination| combination.on_loss = OnLoss::Drop), [("admm", "barrier")]);
    assert_eq!(refused(|combination| combination.fans_out = true), [("statistic-sum", "barrier")]);
}

#[test]
fn one_worker_exchanges_nothing() {
    for combination in all(1) {
        let is_refused = combination.rule == RuleKind::StatisticSum && combination.fans_out;
        assert_eq!(check(&combination).is_err(), is_refused, "{combination:?}");
    }
}

#[test]
fn the_documentation_has_this_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/combinations.md");
    if std::env::var_os("WEFT_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(path, table()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == table(), "docs/combinations.md is old: run this test with WEFT_UPDATE_SNAPSHOTS=1");
}
