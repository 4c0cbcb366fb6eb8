//! Which GPUs there are, and what kind each is.

use wgpu::{Backends, DeviceType, Features, InstanceDescriptor, InstanceFlags};

use crate::device::Kind;

/// A GPU, or a program that acts as one, that could be opened.
#[derive(Clone, Debug)]
pub struct Adapter {
    pub(super) adapter: wgpu::Adapter,
    info: wgpu::AdapterInfo,
    kind: Kind,
    features: Features,
    /// The most bytes of a binding, if not all that it can.
    binding_bytes: Option<u64>,
}

impl Adapter {
    /// All that the machine has, real GPUs first. GL is never used: it has no compute worth the name.
    pub fn all() -> Vec<Self> {
        let descriptor = InstanceDescriptor {
            backends: Backends::VULKAN | Backends::METAL | Backends::DX12,
            flags: InstanceFlags::empty(),
            ..InstanceDescriptor::new_without_display_handle()
        };
        let backends = descriptor.backends;
        let instance = wgpu::Instance::new(descriptor);
        let mut adapters: Vec<Self> = pollster::block_on(instance.enumerate_adapters(backends))
            .into_iter()
            .map(|adapter| {
                let info = adapter.get_info();
                Self { kind: kind(&info), info, features: adapter.features(), binding_bytes: None, adapter }
            })
            .collect();
        adapters.sort_by_key(|adapter| (rank(adapter.kind()), adapter.info.backend as u8));
        // One GPU may be there through several interfaces; the first is enough.
        let mut seen = Vec::new();
        adapters.retain(|adapter| {
            let bus = adapter.info.device_pci_bus_id.clone();
            let known = !bus.is_empty() && seen.contains(&bus);
            seen.push(bus);
            !known
        });
        adapters
    }

    pub fn name(&self) -> &str {
        &self.info.name
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The same adapter with the kernels for another kind: a software GPU can so prove those for real ones.
    pub fn treated_as(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The same adapter as if parameters could not be part of commands: it can so prove the way of those that cannot.
    pub fn without_immediates(self) -> Self {
        Self { features: self.features - Features::IMMEDIATES, ..self }
    }

    /// The same adapter as if a binding had no more bytes than this: small operands can so prove the way of large ones.
    pub fn with_bindings_of(self, bytes: u64) -> Self {
        Self { binding_bytes: Some(bytes), ..self }
    }

    /// The interface and the driver behind it, such as `vulkan, NVIDIA 570.86`.
    pub fn driver(&self) -> String {
        format!("{:?}, {} {}", self.info.backend, self.info.driver, self.info.driver_info).to_lowercase()
    }

    pub fn limits(&self) -> wgpu::Limits {
        let limits = self.adapter.limits();
        let most = limits.max_storage_buffer_binding_size;
        wgpu::Limits {
            max_storage_buffer_binding_size: self.binding_bytes.map_or(most, |bytes| bytes.min(most)),
            ..limits
        }
    }

    pub(super) fn features(&self) -> Features {
        self.features
    }

    pub(super) fn info(&self) -> &wgpu::AdapterInfo {
        &self.info
    }

    /// The same GPU, found anew: after a loss the driver may have to be asked again.
    pub(super) fn found_again(&self) -> Option<Self> {
        let same = |other: &Self| {
            other.info.name == self.info.name && other.info.device_pci_bus_id == self.info.device_pci_bus_id
        };
        let (kind, features, binding_bytes) = (self.kind, self.features, self.binding_bytes);
        Self::all().into_iter().find(same).map(|adapter| Self { kind, features, binding_bytes, ..adapter })
    }

    /// Bytes of its own memory, where the driver says.
    #[cfg(not(target_os = "macos"))]
    pub fn memory(&self) -> Option<usize> {
        // SAFETY: the handle is only asked for properties, and not kept.
        let adapter = unsafe { self.adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
        let instance = adapter.shared_instance().raw_instance();
        // SAFETY: the physical device belongs to this instance, which lives as long as the guard.
        let memory = unsafe { instance.get_physical_device_memory_properties(adapter.raw_physical_device()) };
        let heaps = &memory.memory_heaps[..memory.memory_heap_count as usize];
        // Bit 0 of a heap's flags: memory of the device itself.
        let local = heaps.iter().filter(|heap| heap.flags.as_raw() & 1 != 0);
        local.map(|heap| usize::try_from(heap.size).unwrap_or(usize::MAX)).max()
    }

    #[cfg(target_os = "macos")]
    pub fn memory(&self) -> Option<usize> {
        None
    }
}

fn kind(info: &wgpu::AdapterInfo) -> Kind {
    match info.device_type {
        DeviceType::DiscreteGpu => Kind::Discrete,
        DeviceType::IntegratedGpu | DeviceType::Other => Kind::Integrated,
        DeviceType::VirtualGpu => Kind::Virtual,
        DeviceType::Cpu => Kind::Software,
    }
}

/// Real GPUs first, what merely acts as one last.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Discrete => 0,
        Kind::Integrated => 1,
        Kind::Virtual => 2,
        Kind::Software => 3,
        Kind::Cpu => 4,
    }
}
