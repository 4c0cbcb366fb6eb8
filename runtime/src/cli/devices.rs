//! `weft devices`: what this machine can compute on, and what each device would be used for.

use serde::Serialize;
use weft_gpu::device::gpu::Adapter;
use weft_gpu::device::{Kind, Shared, cpu::SharedCpu};

use super::output::Output;

/// Which devices may be used: `all`, `none`, or names such as `cpu,gpu:0`.
pub const VISIBLE_DEVICES: &str = "WEFT_VISIBLE_DEVICES";

#[derive(Serialize)]
struct Device {
    id: String,
    name: String,
    kind: String,
    driver: String,
    memory: Option<u64>,
    /// Cores, where they are the machine's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Limits>,
    used_for: &'static str,
}

/// What one kernel can reach.
#[derive(Serialize)]
struct Limits {
    buffer_bytes: u64,
    binding_bytes: u64,
    bindings: u32,
    workgroup_bytes: u32,
    workgroup_threads: u32,
    groups_per_dimension: u32,
}

pub fn run(out: &Output) -> anyhow::Result<()> {
    let adapters = Adapter::all();
    let real = adapters.iter().any(|adapter| adapter.kind() != Kind::Software);
    let mut devices = vec![cpu(real)];
    devices.extend(adapters.iter().enumerate().map(|(index, adapter)| gpu(index, adapter)));
    out.show(&devices, || {
        let rows: Vec<Vec<String>> = devices.iter().map(Device::row).collect();
        let mut text = out.table(&["DEVICE", "NAME", "KIND", "MEMORY", "LARGEST TENSOR", "DRIVER", "USED FOR"], &rows);
        if adapters.is_empty() {
            text += "\nNo GPU was found. A real one needs its Vulkan driver; `apt-get install mesa-vulkan-drivers` \
                     brings AMD's and Intel's, and a software one to try kernels on.\n";
        }
        text += &format!("\n{VISIBLE_DEVICES}=cpu,gpu:0 hides all but these from whatever opens devices.\n");
        text
    })
}

fn cpu(real_gpu: bool) -> Device {
    let info = SharedCpu::new().info();
    Device {
        id: "cpu".into(),
        name: "the machine's cores".into(),
        kind: info.kind.to_string(),
        driver: "native".into(),
        memory: u64::try_from(info.memory).ok(),
        threads: Some(info.threads),
        limits: None,
        used_for: if real_gpu {
            "when asked for, and when no GPU has room"
        } else {
            "training, unless a device is named"
        },
    }
}

fn gpu(index: usize, adapter: &Adapter) -> Device {
    let limits = adapter.limits();
    Device {
        id: format!("gpu:{index}"),
        name: adapter.name().to_owned(),
        kind: adapter.kind().to_string(),
        driver: adapter.driver(),
        memory: adapter.memory().map(|bytes| bytes as u64),
        threads: None,
        limits: Some(Limits {
            buffer_bytes: limits.max_buffer_size,
            binding_bytes: limits.max_storage_buffer_binding_size,
            bindings: limits.max_storage_buffers_per_shader_stage,
            workgroup_bytes: limits.max_compute_workgroup_storage_size,
            workgroup_threads: limits.max_compute_invocations_per_workgroup,
            groups_per_dimension: limits.max_compute_workgroups_per_dimension,
        }),
        used_for: match adapter.kind() {
            Kind::Software => "checking kernels, when asked for: it is the cores in disguise, and slower",
            _ => "training, unless another device is named",
        },
    }
}

impl Device {
    fn row(&self) -> Vec<String> {
        let size = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
        vec![
            self.id.clone(),
            self.name.clone(),
            self.threads.map_or(self.kind.clone(), |threads| format!("{}, {threads} threads", self.kind)),
            self.memory.map_or("unknown".into(), size),
            self.limits.as_ref().map_or("memory".into(), |limits| size(limits.buffer_bytes)),
            self.driver.clone(),
            self.used_for.into(),
        ]
    }
}
