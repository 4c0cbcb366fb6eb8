//! Guest code that runs for a request, on a thread of its own: kernels do not wait, and whatever else the node does on its
//! threads must not wait for a guest. How many there are at once is for a gate to say.

use std::io;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use weft_gpu::Cancel;

use super::JobError;
use crate::sandbox::Permit;
use crate::tenant::Tenant;

/// Runs `work` on a thread of its own, which keeps the permit for as long as that takes. When nobody waits for it any more,
/// or its tenant is deleted, it is cancelled: it goes on only until the guest, or the kernel, that runs has noticed.
pub(crate) async fn apart<T: Send + 'static, F: Future<Output = Result<T, JobError>>>(
    what: &'static str,
    tenant: &Tenant,
    permit: Permit,
    cancel: &Cancel,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T, JobError> {
    let (sender, done) = oneshot::channel();
    let runtime = Handle::current();
    let run = move || {
        let _permit = permit;
        sender.send(runtime.block_on(work())).ok();
    };
    let failed = |error| JobError::Io { what, error };
    std::thread::Builder::new().name(what.to_owned()).spawn(run).map_err(failed)?;
    let _cancelled = CancelOnDrop(cancel);
    tokio::select! {
        outcome = done => outcome.map_err(|_| failed(io::Error::other("it panicked; the node's log says where")))?,
        () = tenant.ended() => Err(JobError::TenantDeleted),
    }
}

/// Stops what is computed when it is dropped.
struct CancelOnDrop<'a>(&'a Cancel);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
