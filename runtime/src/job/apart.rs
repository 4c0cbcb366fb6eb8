//! Guest code that runs for a request, on a thread of its own: kernels do not wait, and whatever else the node does on its
//! threads must not wait for a guest. How many there are at once is for a gate to say.

use std::io;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::sandbox::Permit;

/// Runs `work` on a thread of its own, which keeps the permit for as long as that takes, whoever waits for it.
pub(crate) async fn apart<T: Send + 'static, F: Future<Output = T>>(
    name: &'static str,
    permit: Permit,
    work: impl FnOnce() -> F + Send + 'static,
) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    let runtime = Handle::current();
    let run = move || {
        let _permit = permit;
        sender.send(runtime.block_on(work())).ok();
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
    done.await.map_err(|_| io::Error::other("it panicked; the node's log says where"))
}
