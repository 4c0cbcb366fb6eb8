//! Changes that run to their end, also when whoever asked for them goes away: what is on disk and what is shown would
//! differ. A client that leaves and comes again must not leave more and more of them behind, so there is a limit.

use std::sync::Arc;

use super::problem::{ApiError, Kind};
use crate::tenant::Tenant;

/// Changes of one tenant that may be under way at once, whoever waits for them.
pub const MAX_CHANGES: u32 = 256;

/// Runs a change to its end, unless too many of the tenant's are under way.
pub async fn to_the_end<T, E>(
    tenant: &Arc<Tenant>,
    change: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, ApiError>
where
    T: Send + 'static,
    E: Into<ApiError> + Send + 'static,
{
    let counted = tenant.changes.begin(MAX_CHANGES).ok_or_else(|| {
        let detail =
            format!("`max_changes` = {MAX_CHANGES} changes of this tenant are under way: wait for some of them");
        ApiError::new(Kind::Busy, detail).limit("max_changes").retry_after(1)
    })?;
    let done = tokio::spawn(async move {
        let _counted = counted;
        change.await
    });
    let interrupted = |error| anyhow::Error::new(error).context("the work was interrupted");
    done.await.map_err(interrupted)?.map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::response::IntoResponse;
    use tokio::sync::watch;

    use super::*;
    use crate::tenant::{Account, Quota};

    impl From<Infallible> for ApiError {
        fn from(never: Infallible) -> Self {
            match never {}
        }
    }

    #[tokio::test]
    async fn changes_that_nobody_waits_for_are_counted_until_they_end() {
        let memory = Account::new("max_memory", 1 << 30, None);
        let tenant = Tenant::unregistered("one".parse().unwrap(), Quota::default(), memory);
        let (release, held) = watch::channel(false);
        for _ in 0..MAX_CHANGES {
            let mut held = held.clone();
            let change = async move {
                held.wait_for(|over| *over).await.ok();
                Ok::<_, Infallible>(())
            };
            let asked = tokio::time::timeout(std::time::Duration::ZERO, to_the_end(&tenant, change));
            assert!(asked.await.is_err(), "it ended at once");
        }
        let refused = to_the_end(&tenant, async { Ok::<_, Infallible>(()) }).await.err().unwrap().into_response();
        assert_eq!(refused.status().as_u16(), 429);
        release.send_replace(true);
        let mut tries = 0;
        while to_the_end(&tenant, async { Ok::<_, Infallible>(()) }).await.is_err() {
            tries += 1;
            assert!(tries < 100_000, "changes that are over are still counted");
            tokio::task::yield_now().await;
        }
    }
}
