use super::*;
use crate::tune::chance::{Chance, Purpose};
use crate::tune::space::Space;
use crate::tune::study::{Direction, Report, State};
use crate::tune::table::Row;
use crate::tune::table::tests::{row, table};

/// Forty trials whose goal is mostly the learning rate's.
fn many() -> Table {
    let space = Space::parse(&["lr=log:1e-4..1e-1", "units=int:16..256", "optimizer=sgd|adam"]).unwrap();
    let trial = |number: u32| {
        let point = space.draw(&mut Chance::new(3, Purpose::Point, u64::from(number)));
        let value = 0.9 - 0.1 * (point["lr"].number().unwrap().log10() + 2.0).powi(2);
        Row { point, reports: vec![Report { epoch: 1, value }], ..row(number, 0.0, "", &[]) }
    };
    let rows = (0..40).map(trial).collect();
    let (name, goal) = ("many".to_owned(), "accuracy".to_owned());
    Table { name, goal, direction: Direction::Maximise, space, seed: 1, rows }
}

/// Whether every tag that is opened is closed.
fn is_whole(svg: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for part in svg.split('<').skip(1) {
        let Some((tag, _)) = part.split_once('>') else { return false };
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if tag.starts_with('/') {
            if open.pop() != Some(name) {
                return false;
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    open.is_empty()
}

#[test]
fn every_picture_of_every_study_is_whole_and_has_only_numbers() {
    let mut empty = table();
    empty.rows.clear();
    let mut failed = table();
    failed.rows.iter_mut().for_each(|row| row.state = State::Failed("<no>".to_owned()));
    let mut alike = many();
    alike.rows.iter_mut().for_each(|row| row.reports[0].value = 0.5);
    let mut one = table();
    one.rows.truncate(1);
    for (name, table) in
        [("some", table()), ("many", many()), ("empty", empty), ("failed", failed), ("alike", alike), ("one", one)]
    {
        for kind in [Kind::Curve, Kind::Parallel, Kind::Importance] {
            let svg = chart(kind, &table);
            assert!(is_whole(&svg), "{name} {kind:?}: {svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name} {kind:?}: {svg}");
            assert_eq!(svg, chart(kind, &table), "the same trials give the same bytes");
        }
    }
}

#[test]
fn names_from_elsewhere_cannot_leave_their_place() {
    let mut table = table();
    table.name = "</title><script>alert(1)</script>".to_owned();
    table.goal = "a\" onload=\"x".to_owned();
    for kind in [Kind::Curve, Kind::Parallel, Kind::Importance] {
        let svg = chart(kind, &table);
        assert!(!svg.contains("<script") && !svg.contains("a\" onload"), "{svg}");
    }
}

#[test]
fn the_curve_ends_with_the_best_value() {
    let svg = chart(Kind::Curve, &table());
    assert!(svg.contains(">0.95</text>"), "{svg}");
    assert_eq!(svg.matches("<circle").count(), 4, "one for each trial with a value");
}

#[test]
fn a_trial_is_a_line_that_breaks_off_where_a_parameter_does_not_count() {
    let svg = chart(Kind::Parallel, &table());
    assert_eq!(svg.matches("stroke-opacity").count(), 4);
    let of = |number: u32| {
        let title = format!("<title>trial {number}:");
        let lines: Vec<&str> = svg.lines().collect();
        let at = lines.iter().position(|line| line.starts_with(&title)).unwrap();
        lines[at - 1].to_owned()
    };
    // Three parameters and the goal: without `units`, the pen is set down again at the goal.
    assert_eq!((of(1).matches('M').count(), of(1).matches('L').count()), (1, 3));
    assert_eq!((of(0).matches('M').count(), of(0).matches('L').count()), (2, 1));
}

#[test]
fn what_mattered_most_has_the_longest_bar_and_is_first() {
    let svg = chart(Kind::Importance, &many());
    let place = |name: &str| svg.find(&format!(">{name}<")).unwrap();
    assert!(place("lr") < place("units") && place("lr") < place("optimizer"));
    assert_eq!(svg.matches("<rect").count(), 1 + 3);
    assert!(chart(Kind::Importance, &table()).contains("<rect"), "four trials are enough");
}

#[test]
fn pictures_have_words() {
    assert_eq!("parallel".parse(), Ok(Kind::Parallel));
    assert!("pie".parse::<Kind>().unwrap_err().to_string().contains("`importance`"));
}
