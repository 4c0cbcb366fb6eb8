//! How many workers a job gets, how large they are, and what that costs: decisions, and why they were made.
//!
//! Nothing here measures or waits. A planner is told what a stretch of training took and asked what to do next; the same
//! words in the same order give the same decisions, so one that died is brought back by telling it its record again.
//!
//! # Layout
//! - [`prices`]: what things cost
//! - [`elastic`]: one worker more, or one fewer, by the time of the last epoch
//! - [`memory`]: how large workers are, by stepping towards lower cost
//! - [`search`]: both at once, by a few tries and a Gaussian process
//! - [`analytic`]: what a job would take, from constants of the machine
//! - [`points`]: what one may choose between, as a table and a picture
//! - [`policy`]: the planner, by any of these
//! - [`course`]: a planner, and the job that it plans
//! - [`aim`], [`bounds`]: what is wanted, and what no decision leaves
//! - [`words`]: numbers with units, as people write them

pub mod aim;
pub mod analytic;
pub mod bounds;
pub mod course;
pub mod elastic;
pub mod memory;
pub mod points;
pub mod policy;
pub mod prices;
pub mod search;
pub mod words;
