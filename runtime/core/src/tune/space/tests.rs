use super::*;
use crate::tune::chance::Purpose;

fn space(texts: &[&str]) -> Space {
    Space::parse(texts).unwrap()
}

fn chance(number: u64) -> Chance {
    Chance::new(3, Purpose::Point, number)
}

const ALL: [&str; 9] = [
    "lr=log:0.0001..0.1",
    "momentum=0.0..0.99",
    "drop=0.0..0.5:0.1",
    "hidden=int:16..512:16",
    "steps=int:log:1..1000",
    "batch=32|64|128",
    "optimizer=sgd|adam|lion",
    "beta=0.9..0.999 if optimizer=adam|lion and hidden>=64",
    "epochs=3",
];

#[test]
fn every_parameter_is_read_as_it_is_written() {
    for text in ALL {
        assert_eq!(text.parse::<Parameter>().unwrap().to_string(), text);
    }
    let written: Vec<String> = space(&ALL).into_parameters().into_iter().map(String::from).collect();
    assert_eq!(written, ALL);
    let json = serde_json::to_string(&space(&ALL)).unwrap();
    assert_eq!(serde_json::from_str::<Space>(&json).unwrap(), space(&ALL));
    assert_eq!("a = int:1..10:4 if b >= 2".parse::<Parameter>().unwrap().to_string(), "a=int:1..9:4 if b>=2");
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    for (text, why) in [
        ("lr", "write a name"),
        ("=1..2", "no name"),
        ("l r=1..2", "no name"),
        ("lr=", "empty"),
        ("lr=1..", "`` is no number"),
        ("lr=log:..1", "no number"),
        ("lr=2..1", "wrong way round"),
        ("lr=1..1", "one value only"),
        ("lr=NaN..1", "not a finite"),
        ("lr=0..inf", "not a finite"),
        ("lr=log:0..1", "above zero"),
        ("lr=log:-1..1", "above zero"),
        ("lr=-1e308..1e308", "too long"),
        ("n=int:1.5..3", "whole number"),
        ("n=int:1..9:0", "leads nowhere"),
        ("n=int:1..3:7", "one value only"),
        ("n=int:log:1..9:2", "no step"),
        ("n=int:-9223372036854775808..9223372036854775807", "too long"),
        ("n=int:3", "range"),
        ("x=0..1:-0.1", "part of the range"),
        ("x=0..1:1e-30", "part of the range"),
        ("batch=32|", "empty"),
        ("batch=32|32.0", "twice"),
        ("batch=1|NaN", "not a finite"),
        ("a=1..2 if b", "compares nothing"),
        ("a=1..2 if b>x", "only one number"),
        ("a=1..2 if b>", "empty"),
        ("a=1..2 if b>=1|2", "only one number"),
    ] {
        let error = text.parse::<Parameter>().expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn parameters_that_do_not_fit_together_are_refused() {
    let error = |texts: &[&str]| Space::parse(texts).unwrap_err();
    assert_eq!(error(&[]), SpaceError::Empty);
    assert_eq!(error(&["a=1", "b=x"]), SpaceError::Constant);
    assert_eq!(error(&["a=1|2", "a=0..1"]), SpaceError::Twice("a".into()));
    assert!(matches!(error(&["a=1|2 if b=1"]), SpaceError::Missing { .. }));
    assert!(matches!(error(&["a=1|2 if a=1"]), SpaceError::Circle(_)));
    assert!(matches!(error(&["a=1|2 if b=1", "b=1|2 if a=1"]), SpaceError::Circle(_)));
    for never in ["b>4", "b>=5", "b<1", "b=7", "b=x", "c=x", "c>0.5", "c<0"] {
        assert!(
            matches!(error(&[&format!("a=1|2 if {never}"), "b=int:1..4", "c=0..0.5"]), SpaceError::Never { .. }),
            "{never}"
        );
    }
}

#[test]
fn a_parameter_counts_only_where_its_conditions_hold() {
    let space = space(&["units3=int:16..64 if layers>=3", "layers=int:1..4", "more=1|2 if units3>40"]);
    let (mut with, mut without) = (0, 0);
    for number in 0..500 {
        let point = space.draw(&mut chance(number));
        let layers = point["layers"].number().unwrap();
        assert_eq!(point.contains_key("units3"), layers >= 3.0);
        let units = point.get("units3").and_then(Value::number);
        assert_eq!(point.contains_key("more"), units.is_some_and(|units| units > 40.0));
        if units.is_some() { with += 1 } else { without += 1 }
    }
    assert!(with > 180 && without > 180);
}

#[test]
fn points_survive_being_encoded() {
    let space = space(&ALL);
    for number in 0..500 {
        let point = space.draw(&mut chance(number));
        let again = space.decode(&space.filled(&point));
        assert_eq!(again.keys().collect::<Vec<_>>(), point.keys().collect::<Vec<_>>());
        for (name, value) in &point {
            let (have, want) = (&again[name], value);
            let is_near = have.is_same(want) || (have.number().unwrap() / want.number().unwrap() - 1.0).abs() < 1e-9;
            assert!(is_near, "{name}: {have} {want}");
            let parameter = space.parameters().iter().find(|parameter| parameter.name == *name).unwrap();
            assert!(parameter.domain.contains(value), "{name}: {value}");
        }
        let json = serde_json::to_string(&point).unwrap();
        assert_eq!(serde_json::from_str::<Point>(&json).unwrap(), point);
    }
}

#[test]
fn every_value_of_a_countable_domain_is_the_middle_of_its_piece() {
    for text in ["int:16..512:16", "int:log:1..9", "int:-3..3", "0..0.5:0.1", "a|b|c"] {
        let domain: Domain = text.parse().unwrap();
        let count = domain.count().unwrap();
        for piece in 0..count {
            let middle = domain.middle_of_piece(piece);
            assert_eq!(domain.piece(middle), piece, "{text}");
            let (from, to) = domain.piece_around(middle);
            assert!(
                from < middle && middle < to && domain.value(from + 1e-9).is_same(&domain.value(to - 1e-9)),
                "{text}"
            );
        }
        assert!(!domain.value(0.0).is_same(&domain.value(1.0)));
    }
}

#[test]
fn small_integers_are_as_likely_as_a_logarithm_says() {
    let space = space(&["n=int:log:1..1000"]);
    let small = (0..2_000).filter(|&n| space.draw(&mut chance(n))["n"].number().unwrap() <= 31.0).count();
    assert!((1_000..1_250).contains(&small), "{small}");
}

#[test]
fn a_mutation_is_another_point_of_the_space() {
    let space = space(&ALL);
    for number in 0..300 {
        let mut chance = chance(number);
        let point = space.draw(&mut chance);
        let other = space.mutate(&point, &mut chance);
        assert_ne!(point, other);
        assert!(space.check(&other, &other).is_ok());
    }
}

#[test]
fn a_point_given_in_part_is_completed_or_refused() {
    let space = space(&["layers=int:1..4", "units3=int:16..64 if layers>=3", "lr=log:1e-4..1e-1"]);
    let others = Point::from([("layers".into(), Value::Integer(1)), ("lr".into(), Value::Number(0.01))]);
    let given = Point::from([("layers".into(), Value::Integer(4))]);
    let full = space.complete(&given, &others).unwrap();
    assert_eq!(full["lr"], Value::Number(0.01));
    assert!(full.contains_key("units3"));
    let refused =
        |name: &str, value: Value| space.complete(&Point::from([(name.to_owned(), value)]), &others).unwrap_err();
    assert!(matches!(refused("rate", Value::Integer(1)), PointError::Unknown(..)));
    assert!(matches!(refused("lr", Value::Number(1.0)), PointError::Outside { .. }));
    assert!(matches!(refused("lr", Value::Text("high".into())), PointError::Outside { .. }));
    assert!(matches!(refused("layers", Value::Number(f64::NAN)), PointError::Outside { .. }));
    assert!(matches!(refused("units3", Value::Integer(20)), PointError::Inactive(_)));
}

#[test]
fn only_choices_between_numbers_in_order_are_ordered() {
    for (text, is_ordered) in [("1|2|4", true), ("0.5|0.1", true), ("1|4|2", false), ("a|b", false), ("0..1", true)] {
        assert_eq!(text.parse::<Domain>().unwrap().is_ordered(), is_ordered, "{text}");
    }
    let space = space(&["a=x|y|z", "b=0..1", "c=7", "d=1|2|3"]);
    assert_eq!(space.feature_groups(), [0, 0, 0, 1, 2]);
    let point = space.draw(&mut chance(1));
    assert_eq!(space.features(&point).len(), 5);
}

#[test]
fn points_are_counted() {
    assert_eq!(space(&["a=x|y|z", "d=int:1..9:2"]).count(), Some(15));
    assert_eq!(space(&["a=x|y|z", "d=0..1"]).count(), None);
}
