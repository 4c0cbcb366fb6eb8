//! What a tenant may use. Every limit has a name, a default, and an error that names it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Declares [`Quota`], its defaults, and [`QuotaPatch`], which changes some of it, from one list.
macro_rules! quota {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr,)+) => {
        /// The limits of one tenant.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct Quota {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Default for Quota {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        /// New values for some of a tenant's limits; what is left out stays as it is.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct QuotaPatch {
            $(
                $(#[doc = $doc])+
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$type>,
            )+
        }

        impl Quota {
            /// Every limit's name, in the order they are shown.
            pub const NAMES: &[&str] = &[$(stringify!($name)),+];

            pub fn apply(&mut self, patch: &QuotaPatch) {
                $(if let Some(value) = patch.$name { self.$name = value; })+
            }

            /// The limits as name and number.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), u64::from(self.$name))),+]
            }
        }
    };
}

quota! {
    /// How many functions may be deployed.
    functions: u32 = 100,
    /// How many data sets there may be.
    datasets: u32 = 100,
    /// How many models there may be.
    models: u32 = 1_000,
    /// Bytes of everything that is kept: functions, data sets, models, uploads.
    stored_bytes: u64 = 16 * GIB,
    /// Bytes of one uploaded component.
    upload_bytes: u64 = 64 * MIB,
    /// Instances that run at once; further invocations queue.
    instances: u32 = 64,
    /// Linear memory of one instance, summed over its memories, in bytes.
    instance_memory: u64 = 512 * MIB,
    /// Linear memory of all instances, and bodies in flight, in bytes.
    memory: u64 = 2 * GIB,
    /// What is in the parameter store, names and all, in bytes.
    params_bytes: u64 = GIB,
    /// Device memory of one invocation that computes with tensors, in bytes.
    device_memory: u64 = 256 * MIB,
    /// Device memory of all invocations that compute at once, in bytes; further ones queue.
    call_memory: u64 = 4 * GIB,
    /// CPU time of one invocation in milliseconds (of a trainer: of one exported call).
    cpu_ms: u64 = 30_000,
    /// Wall-clock time of one invocation in milliseconds (of a trainer: of one exported call).
    wall_ms: u64 = 60_000,
    /// Training jobs that run at once; further ones queue.
    jobs: u32 = 16,
    /// Training jobs that may queue.
    queued_jobs: u32 = 1_000,
    /// Training jobs that follow their data sets, those that wait for data included.
    following_jobs: u32 = 100,
    /// Workers of all running jobs, their further functions counted too.
    workers: u32 = 256,
    /// Memory of all workers, in bytes.
    worker_memory: u64 = 16 * GIB,
    /// Memory of what is known of jobs, finished ones too, with their histories and events, in bytes.
    job_bytes: u64 = 64 * MIB,
    /// Seconds of devices that training may use, in all.
    device_seconds: u64 = 1_000_000_000,
    /// Requests per second over the API, with bursts of one second's worth.
    requests_per_second: u32 = 10_000,
    /// Log bytes that are kept; the oldest lines go first.
    log_bytes: u64 = 4 * MIB,
    /// Log bytes that one invocation may write; the rest is dropped and counted.
    invocation_log_bytes: u64 = 64 * KIB,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_changes_only_what_it_names() {
        let mut quota = Quota::default();
        quota.apply(&QuotaPatch { functions: Some(3), ..QuotaPatch::default() });
        assert_eq!(quota, Quota { functions: 3, ..Quota::default() });
    }

    #[test]
    fn an_unknown_limit_is_refused() {
        let error = serde_json::from_str::<QuotaPatch>(r#"{"instnces": 3}"#).unwrap_err().to_string();
        assert!(error.contains("instnces") && error.contains("instances"), "{error}");
    }
}
