//! `weft node`: how the node is doing.

use super::client::Client;
use super::output::{Output, bytes};

pub fn run(client: &Client, out: &Output) -> anyhow::Result<()> {
    let node = client.node()?;
    out.show(&node, || {
        out.fields(&[
            ("url", client.url().to_owned()),
            ("version", node.version.clone()),
            ("state", if node.draining { "stopping" } else { "running" }.to_owned()),
            ("tenants", node.tenants.to_string()),
            ("functions", node.functions.to_string()),
            ("instances", format!("{} of {}", node.instances, node.max_instances)),
            ("waiting", node.waiting.to_string()),
            ("memory", format!("{} of {}", bytes(node.memory), bytes(node.max_memory))),
            ("loaded", format!("{} components, {}", node.loaded, bytes(node.loaded_bytes))),
        ])
    })
}
