//! How a fold is cut: which lanes and workgroups share a result. Chosen by sizes and class of adapter alone.

use crate::shape::{Axes, Shape};

/// Lanes of a workgroup.
const LANES_SOFTWARE: usize = 64;
const LANES_HARDWARE: usize = 256;

/// Lanes that are enough to keep all of a GPU, or all cores, at work.
const ENOUGH_SOFTWARE: usize = 2048;
const ENOUGH_HARDWARE: usize = 1 << 17;

/// The most elements of one lane where there are enough for many.
const MOST: usize = 1024;

/// Neighbouring results whose lanes read one run of memory together.
const SIDE_BY_SIDE: usize = 32;

/// How many elements are kept and folded, from the outermost axes to the innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Sizes {
    kept_outer: usize,
    folded_outer: usize,
    kept_inner: usize,
    folded_inner: usize,
}

impl Sizes {
    pub(in super::super) fn new(
        kept_outer: usize,
        folded_outer: usize,
        kept_inner: usize,
        folded_inner: usize,
    ) -> Self {
        match (folded_outer * folded_inner, kept_inner) {
            // No loop runs over what is empty.
            (0, _) => Self { kept_outer, folded_outer: 0, kept_inner, folded_inner: 0 },
            (folded, 1) => Self { kept_outer, folded_outer: 1, kept_inner: 1, folded_inner: folded },
            _ => Self { kept_outer, folded_outer, kept_inner, folded_inner },
        }
    }

    /// Rows, each folded into one.
    pub(in super::super) fn rows(rows: usize, length: usize) -> Self {
        Self::new(rows, 1, 1, length)
    }

    /// Rows that are folded into one row.
    pub(in super::super) fn columns(rows: usize, columns: usize) -> Self {
        Self::new(1, rows, columns, 1)
    }

    /// The channels of a batch `[n, c, ...]`.
    pub(in super::super) fn channels(shape: &Shape) -> Self {
        Self::new(1, shape[0], shape[1], shape[2..].iter().product())
    }

    /// None if kept and folded axes alternate too often.
    pub(in super::super) fn of(shape: &Shape, axes: Axes) -> Option<Self> {
        // Alternating from the innermost on: folded, kept, folded, kept.
        let mut sizes = [1; 4];
        let mut place = 0;
        for (axis, &size) in shape.iter().enumerate().rev().filter(|&(_, &size)| size != 1) {
            if axes.contains(axis) != (place % 2 == 0) {
                place += 1;
            }
            *sizes.get_mut(place)? *= size;
        }
        let [folded_inner, kept_inner, folded_outer, kept_outer] = sizes;
        Some(Self::new(kept_outer, folded_outer, kept_inner, folded_inner))
    }

    pub(in super::super) fn results(&self) -> usize {
        self.kept_outer * self.kept_inner
    }

    /// Elements that are folded into one.
    pub(in super::super) fn folded(&self) -> usize {
        self.folded_outer * self.folded_inner
    }

    pub(super) fn elements(&self) -> usize {
        self.results() * self.folded()
    }

    /// Whether neighbouring elements belong to neighbouring results.
    fn is_columns(&self) -> bool {
        self.folded_inner == 1 && self.kept_inner > 1
    }
}

/// What lanes are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Fold elements.
    Fold,
    /// Fold states.
    Rest,
    /// Give each element something.
    Put,
}

/// Who does what. Sharers and results of a workgroup are powers of two, and their product is its lanes.
pub(super) struct Plan {
    sizes: Sizes,
    /// Whether lanes that share a result meet.
    meets: bool,
    lanes: usize,
    sharers: usize,
    sharers_inner: usize,
    parts_outer: usize,
    parts_inner: usize,
}

/// `struct Fold` of the frame.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Body {
    results: u32,
    kept_inner: u32,
    folded_outer: u32,
    folded_inner: u32,
    step_outer: u32,
    step_inner: u32,
    sharers: u32,
    sharer_stride: u32,
    sharers_inner: u32,
    per_group: u32,
    result_stride: u32,
    parts_outer: u32,
    parts_inner: u32,
    state_stride: u32,
    part_stride: u32,
}

impl Plan {
    pub(super) fn new(sizes: &Sizes, software: bool, purpose: Purpose) -> Self {
        let (results, folded) = (sizes.results().max(1), sizes.folded());
        let lanes = if software { LANES_SOFTWARE } else { LANES_HARDWARE };
        let together = most_sharers(sizes, lanes);
        let sharers = match (software, purpose) {
            // A lane for each few elements.
            (true, Purpose::Put) => folded.div_ceil(32),
            (false, Purpose::Put) => folded.div_ceil(8),
            (true, Purpose::Rest) if folded <= 2 * MOST => 1,
            (true, _) if folded <= 128 => 1,
            (true, _) => ENOUGH_SOFTWARE.div_ceil(results).min(folded.div_ceil(32)).max(folded.div_ceil(MOST)),
            (false, _) => {
                let wanted = folded.div_ceil(8);
                // One pass, where that keeps the GPU at work.
                let one_pass = results * together >= ENOUGH_HARDWARE / 4 || wanted <= 2 * together;
                let most = if one_pass { together } else { together.max(ENOUGH_HARDWARE / results) };
                wanted.min(most).max(folded.div_ceil(MOST))
            }
        };
        Self::shared(sizes, lanes, sharers, !software && purpose != Purpose::Put)
    }

    /// All of a result in one workgroup, or one lane where these work alone; None where that would leave others idle.
    pub(super) fn fused(sizes: &Sizes, software: bool) -> Option<Self> {
        let (results, folded) = (sizes.results(), sizes.folded());
        if software {
            let worth = results >= ENOUGH_SOFTWARE / 4 && folded <= 4 * MOST || folded <= 64;
            return worth.then(|| Self::shared(sizes, LANES_SOFTWARE, 1, false));
        }
        let together = most_sharers(sizes, LANES_HARDWARE);
        let sharers = folded.div_ceil(8).min(together);
        let worth = folded <= 16 * together || results >= 64 && folded <= MOST * together;
        worth.then(|| Self::shared(sizes, LANES_HARDWARE, sharers, true))
    }

    /// With at least so many sharers of each result, as far as there is something for each.
    fn shared(sizes: &Sizes, lanes: usize, wanted: usize, meets: bool) -> Self {
        let wanted = wanted.max(1);
        let sharers = wanted.next_power_of_two().min(most_sharers(sizes, lanes));
        let sharers_inner = sharers.min(sizes.folded_inner.max(1).next_power_of_two());
        let parts = wanted.div_ceil(sharers);
        let parts_outer = parts.min(sizes.folded_outer.div_ceil(sharers / sharers_inner)).max(1);
        let parts_inner = parts.div_ceil(parts_outer).min(sizes.folded_inner.div_ceil(sharers_inner)).max(1);
        Self { sizes: *sizes, meets, lanes, sharers, sharers_inner, parts_outer, parts_inner }
    }

    pub(super) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    pub(super) fn lanes(&self) -> u32 {
        self.lanes as u32
    }

    fn per_group(&self) -> usize {
        self.lanes / self.sharers
    }

    pub(super) fn groups(&self) -> u64 {
        (self.sizes.results().div_ceil(self.per_group()) * self.parts_outer * self.parts_inner) as u64
    }

    fn steps(&self) -> (usize, usize) {
        (self.parts_outer * (self.sharers / self.sharers_inner), self.parts_inner * self.sharers_inner)
    }

    /// States of each result that this leaves.
    pub(super) fn parts(&self) -> usize {
        let (outer, inner) = self.steps();
        if self.meets { self.parts_outer * self.parts_inner } else { outer * inner }
    }

    /// What is left to fold: the states of the parts.
    pub(super) fn left(&self) -> Sizes {
        if self.sizes.is_columns() {
            Sizes::columns(self.parts(), self.sizes.results())
        } else {
            Sizes::rows(self.sizes.results(), self.parts())
        }
    }

    pub(super) fn body(&self) -> Body {
        let Sizes { folded_outer, kept_inner, folded_inner, .. } = self.sizes;
        let results = self.sizes.results();
        let (step_outer, step_inner) = self.steps();
        let columns = self.sizes.is_columns();
        // Neighbours in memory are neighbours among lanes.
        let (sharer_stride, result_stride) = if columns { (self.per_group(), 1) } else { (1, self.sharers) };
        let (state_stride, part_stride) = if columns { (1, results) } else { (self.parts(), 1) };
        Body {
            results: results as u32,
            kept_inner: kept_inner as u32,
            folded_outer: folded_outer as u32,
            folded_inner: folded_inner as u32,
            step_outer: step_outer as u32,
            step_inner: step_inner as u32,
            sharers: self.sharers as u32,
            sharer_stride: sharer_stride as u32,
            sharers_inner: self.sharers_inner as u32,
            per_group: self.per_group() as u32,
            result_stride: result_stride as u32,
            parts_outer: self.parts_outer as u32,
            parts_inner: self.parts_inner as u32,
            state_stride: state_stride as u32,
            part_stride: part_stride as u32,
        }
    }
}

/// The most lanes of a workgroup that share a result, if neighbours are to read neighbours.
fn most_sharers(sizes: &Sizes, lanes: usize) -> usize {
    if sizes.is_columns() { lanes / SIDE_BY_SIDE.min(sizes.results().next_power_of_two()) } else { lanes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each element is seen by a lane, found as the frame's `place_of` finds it.
    fn visits(plan: &Plan) -> Vec<u32> {
        let body = plan.body();
        let mut visits = vec![0; plan.sizes.elements()];
        let parts = body.parts_outer * body.parts_inner;
        for (group, lane) in
            (0..plan.groups() as u32).flat_map(|group| (0..plan.lanes()).map(move |lane| (group, lane)))
        {
            let result = group / parts * body.per_group + lane / body.result_stride % body.per_group;
            if result >= body.results {
                continue;
            }
            let (part, sharer) = (group % parts, lane / body.sharer_stride % body.sharers);
            let outer = part / body.parts_inner * (body.sharers / body.sharers_inner) + sharer / body.sharers_inner;
            let inner = part % body.parts_inner * body.sharers_inner + sharer % body.sharers_inner;
            for row in (outer..body.folded_outer).step_by(body.step_outer as usize) {
                for column in (inner..body.folded_inner).step_by(body.step_inner as usize) {
                    let (kept_outer, kept_inner) = (result / body.kept_inner, result % body.kept_inner);
                    let row = (kept_outer * body.folded_outer + row) * body.kept_inner + kept_inner;
                    visits[(row * body.folded_inner + column) as usize] += 1;
                }
            }
        }
        visits
    }

    const SIZES: [[usize; 4]; 14] = [
        [1, 1, 1, 1],
        [1, 1, 1, 70_001],
        [300, 1, 1, 10],
        [5000, 1, 1, 3],
        [3, 1, 1, 9000],
        [1, 1031, 97, 1],
        [3, 700, 50, 1],
        [1, 50_009, 2, 1],
        [1, 32, 100, 16],
        [1, 32, 3, 49],
        [1, 2, 2, 7000],
        [2, 3, 5, 7],
        [2, 100, 1, 33],
        [4, 1, 6, 1],
    ];

    #[test]
    fn every_element_belongs_to_one_lane() {
        for [kept_outer, folded_outer, kept_inner, folded_inner] in SIZES {
            let sizes = Sizes::new(kept_outer, folded_outer, kept_inner, folded_inner);
            for software in [false, true] {
                let purposes = [Purpose::Fold, Purpose::Rest, Purpose::Put];
                let plans = purposes.map(|purpose| Plan::new(&sizes, software, purpose)).into_iter();
                for plan in plans.chain(Plan::fused(&sizes, software)) {
                    assert!(visits(&plan).into_iter().all(|visits| visits == 1), "{sizes:?}, software {software}");
                }
            }
        }
    }

    #[test]
    fn folding_parts_comes_to_an_end() {
        for elements in [1, 100, 3_000, 1 << 20, 1 << 26, u32::MAX as usize] {
            for sizes in [Sizes::rows(1, elements), Sizes::columns(elements / 2, 2), Sizes::new(1, elements / 3, 3, 1)]
            {
                for software in [false, true] {
                    let mut left = Plan::new(&sizes, software, Purpose::Fold).left();
                    let mut levels = 1;
                    while left.folded() > 1 {
                        left = Plan::new(&left, software, Purpose::Rest).left();
                        levels += 1;
                    }
                    assert!(levels <= 4, "{levels} levels for {sizes:?}, software {software}");
                }
            }
        }
    }
}
