//! Requests that change something: each has a number, under which the server keeps its answer for whoever asks again.
//!
//! An answer that has come is not asked for again. Its number goes along with the next request of that tenant, and the
//! server forgets it then; so what it keeps is what is under way, and a little more. What is left of a node that died
//! expires. The server counts the bytes, and refuses changes of a tenant that would have it keep too many: deleting an
//! answer that may still be asked for would let a change be made twice.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;

use super::{incarnation, number, text};
use crate::locks::Lock;
use crate::params::ParamError;
use crate::tenant::StoreId;

/// How long an answer is kept for who asks again: longer than anybody does.
const ANSWERS_KEPT: Duration = Duration::from_secs(60);

/// Bytes of answers that a server keeps for one tenant.
pub const MAX_KEPT_ANSWERS: u64 = 8 << 20;

/// Answers that one request has the server forget.
const FORGOTTEN_AT_ONCE: usize = 64;

/// Answers of one tenant that have come and that the server has not been told of. Further ones are left to expire.
const REMEMBERED: usize = 1_024;

/// The number of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestId(String);

/// Requests whose answers have come, by tenant.
#[derive(Default)]
pub(super) struct Requests {
    answered: Mutex<HashMap<StoreId, Vec<RequestId>>>,
}

impl Requests {
    pub(super) fn next_id() -> Result<RequestId, ParamError> {
        Ok(RequestId(incarnation::random()?))
    }

    /// What a script is told of this request before all else, with answers that it may forget.
    pub(super) fn arguments(&self, tenant: &StoreId, request: &RequestId) -> Vec<Bytes> {
        let forgotten = self.take_answered(tenant);
        let mut arguments = vec![
            text(&request.0),
            number(ANSWERS_KEPT.as_millis() as u64),
            number(MAX_KEPT_ANSWERS),
            number(forgotten.len() as u64),
        ];
        arguments.extend(forgotten.into_iter().map(|RequestId(id)| Bytes::from(id)));
        arguments
    }

    fn take_answered(&self, tenant: &StoreId) -> Vec<RequestId> {
        let mut answered = self.answered.locked();
        let Some(of_tenant) = answered.get_mut(tenant) else { return Vec::new() };
        let rest = of_tenant.split_off(of_tenant.len().min(FORGOTTEN_AT_ONCE));
        let taken = std::mem::replace(of_tenant, rest);
        if of_tenant.is_empty() {
            answered.remove(tenant);
        }
        taken
    }

    /// The answer has come, whatever it was.
    pub(super) fn is_answered(&self, tenant: &StoreId, request: RequestId) {
        let mut answered = self.answered.locked();
        let of_tenant = answered.entry(tenant.clone()).or_default();
        if of_tenant.len() < REMEMBERED {
            of_tenant.push(request);
        }
    }

    /// The tenant is gone.
    pub(super) fn forget(&self, tenant: &StoreId) {
        self.answered.locked().remove(tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_that_came_is_told_once_and_some_at_a_time() {
        let (requests, tenant): (_, StoreId) = (Requests::default(), "ada".parse().unwrap());
        let id = |number: usize| RequestId(number.to_string());
        (0..100).for_each(|number| requests.is_answered(&tenant, id(number)));
        let told = |requests: &Requests| requests.arguments(&tenant, &id(1_000)).len() - 4;
        assert_eq!([told(&requests), told(&requests), told(&requests)], [64, 36, 0]);
        assert!(requests.answered.locked().is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_ends_with_its_tenant() {
        let (requests, tenant): (_, StoreId) = (Requests::default(), "ada".parse().unwrap());
        (0..5_000).for_each(|number| requests.is_answered(&tenant, RequestId(number.to_string())));
        assert_eq!(requests.answered.locked()[&tenant].len(), REMEMBERED);
        requests.forget(&tenant);
        assert!(requests.answered.locked().is_empty());
    }
}
