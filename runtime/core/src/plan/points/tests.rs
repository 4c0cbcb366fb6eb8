use super::*;

fn point(workers: u32, seconds: f64, cost: f64) -> Point {
    let around = |value: f64| Interval { expected: value, least: value * 0.9, most: value * 1.1 };
    let (k, codec, device) = (None, None, None);
    let (seconds, cost) = (around(seconds), around(cost));
    Point { workers, memory: 512 << 20, k, codec, device, seconds, cost, is_measured: true }
}

fn points() -> Vec<Point> {
    vec![point(1, 100.0, 1.0), point(4, 40.0, 1.5), point(8, 45.0, 2.0), point(16, 20.0, 4.0), point(32, 20.0, 5.0)]
}

fn workers(points: &[Point]) -> Vec<u32> {
    points.iter().map(|it| it.workers).collect()
}

#[test]
fn only_what_nothing_beats_in_both_is_shown() {
    assert_eq!(workers(&pareto(&points())), [16, 4, 1]);
    let broken = [point(1, f64::NAN, 1.0), point(2, 1.0, f64::INFINITY), point(3, 5.0, 1.0)];
    assert_eq!(workers(&pareto(&broken)), [3]);
    assert!(pareto(&[]).is_empty());
}

#[test]
fn the_recommendation_follows_the_aim_and_keeps_limits_with_their_intervals() {
    let points = points();
    let chosen = |aim, seconds, cost| {
        let recommended = recommend(&points, aim, &Limits { seconds, cost }).unwrap();
        (points[recommended.point].workers, recommended.is_within)
    };
    assert_eq!(chosen(Aim::Cheapest, None, None), (1, true));
    assert_eq!(chosen(Aim::Fastest, None, None), (16, true));
    assert_eq!(chosen(Aim::Cheapest, Some(50.0), None), (4, true));
    // 40 s may be 44 s: that is too late for 43 s.
    assert_eq!(chosen(Aim::Cheapest, Some(43.0), None), (16, true));
    assert_eq!(chosen(Aim::Fastest, None, Some(2.0)), (4, true));
}

#[test]
fn where_no_point_keeps_the_limits_the_nearest_is_given_and_called_so() {
    let points = points();
    let recommended = recommend(&points, Aim::Cheapest, &Limits { seconds: Some(10.0), cost: None }).unwrap();
    assert_eq!((points[recommended.point].workers, recommended.is_within), (16, false));
    assert!(recommended.why.starts_with("No setting is sure to be done within 10.0 s."), "{}", recommended.why);
    assert_eq!(recommend(&[], Aim::Cheapest, &Limits::default()), None);
}

#[test]
fn the_reason_names_setting_time_and_cost() {
    let with_words = Point { k: Some("16".to_owned()), codec: Some("qsgd:4".to_owned()), ..point(8, 75.0, 0.5) };
    let recommended = recommend(&[with_words], Aim::Cheapest, &Limits { seconds: Some(600.0), cost: None }).unwrap();
    let words = "8 workers of 512 MiB, k 16, codec qsgd:4 is the cheapest within 10.0 min of 1 settings: about 75.0 s";
    assert!(recommended.why.starts_with(words), "{}", recommended.why);
}

#[test]
fn the_chart_marks_the_recommended_point_and_the_limit() {
    let points = pareto(&points());
    let svg = chart("lenet <on> digits", &points, Some(1), &Limits { seconds: Some(50.0), cost: None });
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("lenet &lt;on&gt; digits"));
    assert!(svg.contains("4 workers of 512 MiB (recommended)"));
    assert_eq!(svg.matches("stroke-dasharray").count(), 1);
    assert_eq!(svg.matches(r#"r="4""#).count(), 3);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    for tag in ["text", "title", "circle", "svg"] {
        let (opened, closed) = (svg.matches(&format!("<{tag}")).count(), svg.matches(&format!("</{tag}>")).count());
        let alone = svg.lines().filter(|it| it.starts_with(&format!("<{tag} ")) && it.ends_with("/>")).count();
        assert_eq!(opened, closed + alone, "{tag}");
    }
}

#[test]
fn ticks_are_round_and_enclose_all_points() {
    let svg = chart("t", &[point(1, 97.0, 0.83)], None, &Limits::default());
    for label in [">0<", ">20.0 s<", ">100.0 s<", ">0.200<"] {
        assert!(svg.contains(label), "{label} is not in {svg}");
    }
}

#[test]
fn a_chart_of_nothing_is_still_a_picture() {
    let broken = [point(1, f64::NAN, 1.0)];
    for points in [&[][..], &broken[..], &[point(1, 0.0, 0.0)][..]] {
        let svg = chart("", points, Some(0), &Limits::default());
        assert!(svg.contains("</svg>") && !svg.contains("NaN"), "{svg}");
    }
}
