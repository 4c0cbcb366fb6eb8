//! `weft node`: how the node is doing, and its devices.

use clap::Subcommand;
use serde_json::json;
use weft_gpu::pool::DeviceId;

use super::client::Client;
use super::output::{Output, bytes, harmless};
use crate::api::types::DeviceView;

#[derive(Subcommand)]
pub enum NodeVerb {
    /// Show what the node computes on, and who has it
    Devices,
    /// Give a GPU up and open it anew; whatever is held on it is lost, and jobs go on
    Reset { device: DeviceId },
}

pub fn run(verb: Option<NodeVerb>, client: &Client, out: &Output) -> anyhow::Result<()> {
    match verb {
        None => show(client, out),
        Some(NodeVerb::Devices) => devices(client, out),
        Some(NodeVerb::Reset { device }) => {
            client.reset_device(device)?;
            let words = format_args!("`{device}` was given up and opened anew");
            out.done(&json!({ "reset": device.to_string() }), words)
        }
    }
}

fn show(client: &Client, out: &Output) -> anyhow::Result<()> {
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
            ("job records", bytes(node.job_bytes)),
        ])
    })
}

fn devices(client: &Client, out: &Output) -> anyhow::Result<()> {
    let devices = client.devices()?.devices;
    out.show(&devices, || {
        let rows: Vec<Vec<String>> = devices.iter().map(row).collect();
        out.table(&["DEVICE", "NAME", "KIND", "RESERVED", "TENANTS"], &rows)
    })
}

fn row(view: &DeviceView) -> Vec<String> {
    let tenants = view.tenants.iter().map(|held| {
        let tenant = harmless(&held.tenant);
        format!("{tenant} ({} leases, {:.1} s)", held.leases, held.device_seconds)
    });
    vec![
        view.device.clone(),
        harmless(&view.name),
        view.kind.clone(),
        format!("{} of {}", bytes(view.reserved), bytes(view.memory)),
        tenants.collect::<Vec<_>>().join(", "),
    ]
}
