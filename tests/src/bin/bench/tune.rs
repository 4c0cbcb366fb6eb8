//! Tuning: how good the samplers are beside Optuna's, what a trial costs beyond its training, and how well trials fill the
//! cores.

use anyhow::Result;

use crate::is_wanted;

mod regret;
mod trials;

const BENCH: &str = "tune";

pub fn run() -> Result<()> {
    if ["regret.bbob", "regret.hpobench", "regret.nasbench201"].into_iter().any(is_wanted) {
        regret::run()?;
    }
    if is_wanted("overhead") || is_wanted("scaling") {
        trials::run()?;
    }
    Ok(())
}
