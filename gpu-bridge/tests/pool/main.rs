//! The pool: exact bytes, fair time, and nobody's data in another's hands.
//!
//! What every shared device must do is one function per behaviour over `Arc<dyn Shared>`; a device is added by one line
//! at the end of this file. Placement and settings are tested with devices that only pretend.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use weft_gpu::device::cpu::{LONGEST_DELAY, SharedCpu};
use weft_gpu::device::gpu::{Adapter, Gpu, IN_FLIGHT};
use weft_gpu::device::{Shared, Wait};

mod host;
mod isolation;
mod ledger;
mod loss;
mod placement;
mod several;
mod support;
mod time;
mod visible;

/// Runs every behaviour on a device: `suite!(name, device, longest wait of a short operation)`.
macro_rules! suite {
    (@behaviours $device:expr; $($module:ident :: $behaviour:ident)+) => {
        $(#[test]
        fn $behaviour() {
            crate::$module::$behaviour(Arc::new($device) as Arc<dyn Shared>);
        })+
    };
    ($name:ident, $device:expr, $delay:expr) => {
        mod $name {
            use super::*;

            suite! { @behaviours $device;
                ledger::a_lease_gives_back_what_it_reserved
                ledger::tensors_keep_the_reservation_until_they_are_gone
                ledger::contexts_of_one_lease_share_its_bytes
                ledger::many_threads_leave_nothing_behind
                isolation::a_new_tenant_never_sees_old_bytes
                time::time_is_counted_per_lease
                time::long_operations_share_by_weight
                time::short_operations_share_by_weight
                time::tenants_share_evenly_however_many_leases_they_have
                time::a_cancelled_lease_stops_while_another_computes
                time::results_do_not_depend_on_who_else_computes
            }

            #[test]
            fn long_operations_delay_short_ones_by_no_more_than_the_bound() {
                crate::time::short_operations_are_not_delayed(Arc::new($device), $delay);
            }
        }
    };
}

suite!(cpu, SharedCpu::new(), Wait { time: LONGEST_DELAY, turns: 0 });
// Time of cores that act as a GPU is the wall's, which passes for other programs too; batches are cut to be of some
// milliseconds.
suite!(gpu, gpu(), Wait { time: Duration::MAX, turns: IN_FLIGHT as u64 });

/// A GPU of the test's own; a software one will do.
fn gpu() -> Gpu {
    let adapter = Adapter::all().into_iter().next().unwrap_or_else(|| panic!("there is no Vulkan device"));
    Gpu::open(adapter, None).unwrap()
}
