//! The order in which steps run. Pure.

use super::file::{BadFile, Step};
use super::reference::{self, Reference};

/// The steps by their places, each after all that it needs; of those that could be next, the one that was written first.
pub fn order(steps: &[Step]) -> Result<Vec<usize>, BadFile> {
    let place = |name: &str| steps.iter().position(|step| step.name == name);
    let mut needs = Vec::with_capacity(steps.len());
    for step in steps {
        let wrong = |problem| BadFile::Step { step: step.name.clone(), line: step.line, problem };
        let mut places = Vec::with_capacity(step.needs.len());
        for need in &step.needs {
            let known = || steps.iter().map(|step| format!("`{}`", step.name)).collect::<Vec<_>>().join(", ");
            let found = place(need).ok_or_else(|| {
                wrong(format!("it needs `{}`, and there is no such step: there are {}", need.escape_debug(), known()))
            })?;
            places.push(found);
        }
        for value in step.words.values() {
            // Words that are no references were refused when the file was read.
            for Reference { step: of, output } in reference::all(value).unwrap_or_default() {
                let Some(of) = place(&of).map(|place| &steps[place]) else { continue };
                let first = output.split('.').next().unwrap_or_default();
                if !of.kind.outputs().contains(&first) {
                    let all = of.kind.outputs().join("`, `");
                    let (name, kind) = (&of.name, of.kind.word());
                    return Err(wrong(format!("step `{name}` ({kind}) has no output `{output}`: it has `{all}`")));
                }
            }
        }
        needs.push(places);
    }
    let (mut order, mut is_done) = (Vec::with_capacity(steps.len()), vec![false; steps.len()]);
    while order.len() < steps.len() {
        let ready = |&step: &usize| !is_done[step] && needs[step].iter().all(|&need| is_done[need]);
        let Some(next) = (0..steps.len()).find(ready) else {
            return Err(cycle(steps, &needs, &is_done));
        };
        is_done[next] = true;
        order.push(next);
    }
    Ok(order)
}

/// What goes round in a circle among the steps that are left, each of which needs another of them.
fn cycle(steps: &[Step], needs: &[Vec<usize>], is_done: &[bool]) -> BadFile {
    let left = |&step: &usize| !is_done[step];
    let mut path: Vec<usize> = (0..steps.len()).find(left).into_iter().collect();
    while let Some(next) = path.last().and_then(|&last| needs[last].iter().copied().find(left)) {
        if let Some(start) = path.iter().position(|&step| step == next) {
            path.drain(..start);
            path.push(next);
            break;
        }
        path.push(next);
    }
    let names: Vec<String> = path.iter().map(|&step| format!("`{}`", steps[step].name)).collect();
    let first = &steps[path.first().copied().unwrap_or(0)];
    let problem = format!("steps need each other: {}", names.join(" needs "));
    BadFile::Step { step: first.name.clone(), line: first.line, problem }
}

#[cfg(test)]
mod tests {
    use super::super::file::read;
    use super::*;

    fn ordered(text: &str) -> Result<Vec<String>, String> {
        let pipeline = read(text).map_err(|error| error.to_string())?;
        let order = order(&pipeline.steps).map_err(|error| error.to_string())?;
        Ok(order.into_iter().map(|step| pipeline.steps[step].name.clone()).collect())
    }

    fn steps(needs: &[(&str, &[&str])]) -> String {
        needs.iter().map(|(name, needs)| format!("[steps.{name}]\nkind = \"push\"\nneeds = {needs:?}\n")).collect()
    }

    #[test]
    fn steps_come_after_what_they_need_and_else_as_they_were_written() {
        let text = steps(&[("d", &["b", "c"]), ("c", &["a"]), ("b", &["a"]), ("a", &[]), ("e", &[])]);
        assert_eq!(ordered(&text).unwrap(), ["a", "c", "b", "d", "e"]);
    }

    #[test]
    fn a_circle_is_shown() {
        let text = steps(&[("x", &["a"]), ("a", &["b"]), ("b", &["c"]), ("c", &["a"])]);
        assert_eq!(
            ordered(&text).unwrap_err(),
            "line 4: step `a`: steps need each other: `a` needs `b` needs `c` needs `a`"
        );
        let itself = ordered(&steps(&[("a", &["a"])])).unwrap_err();
        assert!(itself.ends_with("`a` needs `a`"), "{itself}");
    }

    #[test]
    fn what_is_needed_must_be_there() {
        let error = ordered(&steps(&[("a", &["bb"]), ("b", &[])])).unwrap_err();
        assert_eq!(error, "line 1: step `a`: it needs `bb`, and there is no such step: there are `a`, `b`");
        let text = "[steps.a]\nkind = \"train\"\n[steps.b]\nkind = \"push\"\nmodel = \"${a.models}\"";
        let error = ordered(text).unwrap_err();
        assert!(
            error.starts_with("line 3: step `b`: step `a` (train) has no output `models`: it has `job`"),
            "{error}"
        );
    }
}
