//! Kernels: WGSL text, put together per use, compiled once.
//!
//! A kernel's own text says what is computed. Around it go the parameters, the bindings, and a function or two for each
//! operand `x`, so that kernels know neither how types are packed into words nor how large tensors are cut:
//! - `x_at(i)`, `x_put(i, value)`: element `i` of a contiguous operand (f16 and u8 can be put by [`Main::Map`] alone);
//! - `x_of(i)`: for an operand that is walked: its element for element `i` of the shape that is walked;
//! - `x_index(i)`: element `i` of an index type as u32, negative ones very large;
//! - `x_at4(i)`, `x_put4(i, value)`: elements `4 i` to `4 i + 3` of an operand that is bound by fours.
//!
//! `$NAME` in the text stands for what the launch defines under that name.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::live::{Live, PARAMETER_BYTES};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Threads of a workgroup, unless the launch defines another number.
pub(super) const LANES: u32 = 64;

/// What every kernel has.
const COMMON: &str = include_str!("common.wgsl");

/// For kernels that are launched with `checked`: the first index that is out of range is told to the host.
const OUT_OF_RANGE: &str = "fn wrong(code: u32, index: u32) { if (atomicAdd(&fault_0[0], 1u) == 0u) {\n\
    atomicStore(&fault_0[1], code); atomicStore(&fault_0[2], index);\n\
    atomicStore(&fault_0[3], parameters.fault_count); } }\n\
    fn out_of_range(index: u32) { wrong(parameters.fault_code, index); }\n";

/// Text that computes something.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) name: &'static str,
    /// Put one after the other.
    pub(super) sources: &'static [&'static str],
}

/// What a `$NAME` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Define {
    Text(&'static str),
    Number(u32),
    Flag(bool),
}

impl From<&'static str> for Define {
    fn from(text: &'static str) -> Self {
        Self::Text(text)
    }
}

impl From<u32> for Define {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Define {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// How a kernel is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Main {
    /// `fn value(i: u32)` gives element `i` of the operand `y`.
    Map,
    /// `fn run(group: u32, lane: u32)` does what it likes.
    Run,
}

/// What the elements of a binding are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Packing {
    One(DType),
    /// f32, four at a time.
    Fours,
    Atomic,
}

/// An operand as the text sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub(super) name: &'static str,
    pub(super) packing: Packing,
    /// How many bindings it is cut into.
    pub(super) pieces: u32,
    /// Whether it is walked, or lies in a row.
    pub(super) walked: bool,
}

/// One way to use a kernel: what a pipeline is compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Variant {
    pub(super) kernel: &'static str,
    pub(super) main: Main,
    pub(super) lanes: u32,
    pub(super) body: bool,
    /// Of parameters, the body's among them.
    pub(super) words: usize,
    /// Of the shape that is walked.
    pub(super) rank: u32,
    pub(super) defines: SmallVec<[(&'static str, Define); 6]>,
    pub(super) slots: SmallVec<[Slot; 6]>,
}

type Place = Arc<OnceLock<Result<wgpu::ComputePipeline>>>;

pub(super) struct Pipelines {
    compiled: Mutex<HashMap<Variant, Place>>,
    /// By the number of operands and the bytes of parameters that are part of the command.
    layouts: Mutex<HashMap<(u32, u32), wgpu::PipelineLayout>>,
    cache: Option<wgpu::PipelineCache>,
    file: Option<PathBuf>,
}

impl Pipelines {
    /// With a folder, what the driver made of the kernels is kept there from one start to the next.
    pub(super) fn new(device: &wgpu::Device, supported: bool, info: &wgpu::AdapterInfo, folder: Option<&Path>) -> Self {
        let file = folder.zip(wgpu::util::pipeline_cache_key(info)).map(|(folder, key)| folder.join(key));
        let data = file.as_deref().and_then(stored);
        let cache = supported.then(|| {
            let descriptor = wgpu::PipelineCacheDescriptor { label: None, data: data.as_deref(), fallback: true };
            // SAFETY: the bytes are what `get_data` gave: their digest, kept with them, was just checked.
            unsafe { device.create_pipeline_cache(&descriptor) }
        });
        Self { compiled: Mutex::default(), layouts: Mutex::default(), cache, file }
    }

    /// The pipeline for a variant; compiled by the first who asks, on their own thread.
    pub(super) fn get(&self, live: &Live, kernel: &'static Kernel, variant: &Variant) -> Result<wgpu::ComputePipeline> {
        let place = {
            let mut compiled = self.lock();
            match compiled.get(variant) {
                Some(place) => Arc::clone(place),
                None => Arc::clone(compiled.entry(variant.clone()).or_default()),
            }
        };
        place.get_or_init(|| self.compile(live, kernel, variant)).clone()
    }

    /// How many variants there are.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    fn compile(&self, live: &Live, kernel: &'static Kernel, variant: &Variant) -> Result<wgpu::ComputePipeline> {
        let immediate_bytes = live.immediate_bytes(variant.words);
        let text = variant.text(kernel, live.binding_bytes(), immediate_bytes > 0);
        let bindings: u32 = variant.slots.iter().map(|slot| slot.pieces).sum();
        let operands = live.operand_layout(bindings as usize)?;
        let (pipeline, error) = live.scoped(|| {
            let descriptor = wgpu::ShaderModuleDescriptor {
                label: Some(kernel.name),
                source: wgpu::ShaderSource::Wgsl(text.as_str().into()),
            };
            let mut checks = wgpu::ShaderRuntimeChecks::unchecked();
            // Indices that are data are checked twice: slabs hold what belongs to others too.
            checks.bounds_checks = kernel.sources.iter().any(|source| source.contains("out_of_range("));
            // SAFETY: kernels are our own, index only within what the operation's spec proved or what they clamp, divide
            // by nothing that is zero, and have no loop without an end.
            let module = unsafe { live.device.create_shader_module_trusted(descriptor, checks) };
            let layout = self.layout(live, operands, bindings, immediate_bytes);
            live.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(kernel.name),
                layout: Some(&layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    // Every kernel writes its workgroup memory before it reads it.
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: self.cache.as_ref(),
            })
        });
        match error {
            None => Ok(pipeline),
            Some(_) if live.faults.is_lost() => Err(live.faults.error()),
            Some(error) => {
                tracing::error!("kernel {} does not compile: {error}\n{text}", kernel.name);
                Err(Error::Internal { op: kernel.name, reason: format!("its kernel does not compile: {error}") })
            }
        }
    }

    /// Kernels share layouts: changing from one to another makes the GPU's library forget and clear what was set.
    fn layout(
        &self,
        live: &Live,
        operands: &wgpu::BindGroupLayout,
        bindings: u32,
        immediate_bytes: u32,
    ) -> wgpu::PipelineLayout {
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        let create = || {
            let groups = [Some(operands), Some(live.parameter_layout())];
            live.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: if immediate_bytes > 0 { &groups[..1] } else { &groups },
                immediate_size: immediate_bytes,
            })
        };
        layouts.entry((bindings, immediate_bytes)).or_insert_with(create).clone()
    }

    /// Writes what the driver made of the kernels to disk. What goes wrong costs time at the next start, no more.
    pub(super) fn save(&self) {
        let (Some(file), Some(data)) = (&self.file, self.cache.as_ref().and_then(wgpu::PipelineCache::get_data)) else {
            return;
        };
        let mut stamped = Sha256::digest(&data).to_vec();
        stamped.extend_from_slice(&data);
        let beside = file.with_extension(format!("{}.new", std::process::id()));
        let written = std::fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))
            .and_then(|()| std::fs::write(&beside, stamped))
            .and_then(|()| std::fs::rename(&beside, file));
        if let Err(error) = written {
            tracing::warn!("compiled kernels are not kept in {}: {error}", file.display());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Variant, Place>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was saved, if it is whole.
fn stored(file: &Path) -> Option<Vec<u8>> {
    let mut data = std::fs::read(file).ok()?;
    let rest = data.split_off(data.len().min(32));
    (Sha256::digest(&rest).as_slice() == data).then_some(rest)
}

impl Variant {
    /// The parameters in vectors of four words, which every backend lays out alike.
    fn parameter_vectors(&self) -> usize {
        self.words.div_ceil(4)
    }

    fn text(&self, kernel: &Kernel, binding_bytes: u64, immediate: bool) -> String {
        let mut text = String::from(COMMON);
        for source in kernel.sources {
            text.push_str(source);
        }
        // The longest name first: one may start another.
        let mut defines = self.defines.clone();
        defines.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        defines.push(("LANES", Define::Number(self.lanes)));
        for (name, value) in &defines {
            let value = match value {
                Define::Text(text) => (*text).to_owned(),
                Define::Number(number) => format!("{number}u"),
                Define::Flag(flag) => flag.to_string(),
            };
            text = text.replace(&format!("${name}"), &value);
        }
        self.parameters(&mut text, immediate);
        let mut binding = 0;
        for slot in &self.slots {
            slot.bindings(&mut text, &mut binding);
            slot.accessors(&mut text, binding_bytes);
        }
        self.entry(&mut text);
        text
    }

    /// The parameters, in the order in which [`super::launch::Launch`] writes them. They come as words, part of the
    /// command or a uniform, which is what is read fastest, and are put into a struct, whose arrays both would want otherwise.
    fn parameters(&self, text: &mut String, immediate: bool) {
        let mut fields: Vec<Field> = ["base", "end", "count"].map(Field::word).to_vec();
        if self.main == Main::Map {
            fields.push(Field::word("elements"));
        }
        let walked = self.slots.iter().any(|slot| slot.walked);
        for slot in &self.slots {
            fields.push(Field::word(&format!("{}_offset", slot.name)));
            if slot.walked {
                fields.push(Field::words(&format!("{}_strides", slot.name), self.rank as usize));
            }
        }
        if walked {
            fields.push(Field::words("sizes", self.rank as usize));
        }
        if self.slots.iter().any(|slot| slot.packing == Packing::Atomic) {
            fields.extend(["fault_code", "fault_count"].map(Field::word));
        }
        text.push_str("struct Parameters { ");
        for field in &fields {
            let _ = write!(text, "{}: {}, ", field.name, field.ty());
        }
        if self.body {
            text.push_str("body: Body, ");
            fields.extend(fields_of(text, "Body", "body").unwrap_or_default());
        }
        let (space, vectors) = if immediate {
            ("var<immediate>", self.parameter_vectors() as u64)
        } else {
            ("@group(1) @binding(0) var<uniform>", PARAMETER_BYTES / 16)
        };
        let _ = write!(
            text,
            "}}\nstruct Words {{ at: array<vec4<u32>, {vectors}> }}\n{space} parameter_words: Words;\n\
             var<private> parameters: Parameters;\nfn load_parameters() {{\n",
        );
        let mut at = 0;
        for field in &fields {
            for index in 0..field.count.unwrap_or(1) {
                let place = field.count.map_or(String::new(), |_| format!("[{index}]"));
                let _ = writeln!(
                    text,
                    "parameters.{}{place} = bitcast<{}>(parameter_words.at[{}][{}]);",
                    field.name,
                    field.scalar,
                    at / 4,
                    at % 4
                );
                at += 1;
            }
        }
        text.push_str("}\n");
        if walked {
            for slot in self.slots.iter().filter(|slot| slot.walked) {
                let _ = writeln!(
                    text,
                    "fn {0}_place(i: u32) -> u32 {{ var rest = i; var place = parameters.{0}_offset;",
                    slot.name
                );
                for axis in (0..self.rank).rev() {
                    if axis == 0 {
                        let _ = write!(text, "place += rest * parameters.{}_strides[0]; ", slot.name);
                    } else {
                        let _ = writeln!(
                            text,
                            "{{ let size = parameters.sizes[{axis}]; let next = rest / size; place += (rest - next * size) * parameters.{}_strides[{axis}]; rest = next; }}",
                            slot.name
                        );
                    }
                }
                text.push_str("return place; }\n");
            }
        }
    }

    /// The entry point: finds out which group this is, since more than 65,535 are folded, and long ones are cut.
    fn entry(&self, text: &mut String) {
        let _ = write!(
            text,
            "@compute @workgroup_size({}) fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) \
             number: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{\nload_parameters();\n\
             let group = parameters.base + id.x + id.y * number.x;\nif (group >= parameters.end) {{ return; }}\n",
            self.lanes
        );
        match self.main {
            Main::Run => text.push_str("run(group, lane); }\n"),
            Main::Map => {
                let _ =
                    writeln!(text, "let i = group * {}u + lane; if (i >= parameters.count) {{ return; }}", self.lanes);
                let packing = self.slots.iter().find(|slot| slot.name == "y").map(|slot| slot.packing);
                // A thread has a word to itself, of which only the part that belongs to the tensor is written.
                let narrow = match packing {
                    Some(Packing::One(DType::U8)) => Some((4, "u32(value(at)) & 255u")),
                    Some(Packing::One(DType::F16)) => Some((2, "half_bits(value(at))")),
                    _ => None,
                };
                let Some((elements, bits)) = narrow else {
                    text.push_str("y_put(i, value(i)); }\n");
                    return;
                };
                let width = 32 / elements;
                let _ = write!(
                    text,
                    "let first = parameters.y_offset / {elements}u; var word = y_word(first + i);\n\
                     for (var k = 0u; k < {elements}u; k++) {{ let at = (first + i) * {elements}u + k - parameters.y_offset;\n\
                     if (at < parameters.elements) {{ word = insertBits(word, {bits}, k * {width}u, {width}u); }} }}\n\
                     y_set_word(first + i, word); }}\n"
                );
            }
        }
    }
}

/// A field of the parameters.
#[derive(Clone)]
struct Field {
    name: String,
    scalar: String,
    /// Of an array.
    count: Option<usize>,
}

impl Field {
    fn word(name: &str) -> Self {
        Self { name: name.to_owned(), scalar: "u32".to_owned(), count: None }
    }

    fn words(name: &str, count: usize) -> Self {
        Self { count: Some(count), ..Self::word(name) }
    }

    fn ty(&self) -> String {
        match self.count {
            Some(count) => format!("array<{}, {count}>", self.scalar),
            None => self.scalar.clone(),
        }
    }
}

/// The fields of a struct in a kernel's text, those of structs inside it too: numbers of 32 bits, and arrays of them.
fn fields_of(text: &str, name: &str, prefix: &str) -> Option<Vec<Field>> {
    let (_, rest) = text.split_once(&format!("struct {name} {{"))?;
    let (inside, _) = rest.split_once('}')?;
    let mut inside: String = inside.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
    inside.retain(|character| !character.is_whitespace());
    let mut fields = Vec::new();
    let mut rest = inside.as_str();
    while let Some((name, after)) = rest.split_once(':') {
        let name = format!("{prefix}.{name}");
        let after = if let Some(array) = after.strip_prefix("array<") {
            let (inside, after) = array.split_once('>')?;
            let (scalar, count) = inside.split_once(',')?;
            let count = Some(count.trim_end_matches('u').parse().ok()?);
            fields.push(Field { name, scalar: scalar.to_owned(), count });
            after
        } else {
            let end = after.find(',').unwrap_or(after.len());
            match &after[..end] {
                scalar @ ("u32" | "i32" | "f32") => {
                    fields.push(Field { name, scalar: scalar.to_owned(), count: None });
                }
                structure => fields.extend(fields_of(text, structure, &name)?),
            }
            &after[end..]
        };
        rest = after.trim_start_matches(',');
    }
    Some(fields)
}

impl Slot {
    /// What the words of its bindings are.
    fn word(&self) -> &'static str {
        match self.packing {
            Packing::One(DType::F32) => "f32",
            Packing::One(DType::I32) => "i32",
            Packing::One(DType::U32 | DType::U8 | DType::F16) => "u32",
            Packing::Fours => "vec4<f32>",
            Packing::Atomic => "atomic<u32>",
        }
    }

    fn bindings(&self, text: &mut String, binding: &mut u32) {
        for piece in 0..self.pieces {
            let _ = writeln!(
                text,
                "@group(0) @binding({binding}) var<storage, read_write> {}_{piece}: array<{}>;",
                self.name,
                self.word()
            );
            *binding += 1;
        }
    }

    fn accessors(&self, text: &mut String, binding_bytes: u64) {
        if self.packing == Packing::Atomic {
            text.push_str(OUT_OF_RANGE);
            return;
        }
        let (name, word) = (self.name, self.word());
        let words = binding_bytes / if self.packing == Packing::Fours { 16 } else { 4 };
        let last = self.pieces - 1;
        let _ = write!(text, "fn {name}_word(i: u32) -> {word} {{ ");
        for piece in 0..last {
            let end = words * u64::from(piece + 1);
            let _ = write!(text, "if (i < {end}u) {{ return {name}_{piece}[i - {}u]; }} ", words * u64::from(piece));
        }
        let _ = writeln!(text, "return {name}_{last}[i - {}u]; }}", words * u64::from(last));
        let _ = write!(text, "fn {name}_set_word(i: u32, value: {word}) {{ ");
        for piece in 0..last {
            let (start, end) = (words * u64::from(piece), words * u64::from(piece + 1));
            let _ = write!(text, "if (i < {end}u) {{ {name}_{piece}[i - {start}u] = value; return; }} ");
        }
        let _ = writeln!(text, "{name}_{last}[i - {}u] = value; }}", words * u64::from(last));
        let (ty, load) = match self.packing {
            Packing::One(DType::U8) => ("u32", format!("extractBits({name}_word(i / 4u), (i % 4u) * 8u, 8u)")),
            Packing::One(DType::F16) => ("f32", format!("unpack2x16float({name}_word(i / 2u))[i % 2u]")),
            Packing::Fours => ("vec4<f32>", format!("{name}_word(i)")),
            _ => (word, format!("{name}_word(i)")),
        };
        let _ = writeln!(text, "fn {name}_raw(i: u32) -> {ty} {{ return {load}; }}");
        if self.walked {
            let _ = writeln!(text, "fn {name}_of(i: u32) -> {ty} {{ return {name}_raw({name}_place(i)); }}");
            return;
        }
        let offset = format!("parameters.{name}_offset");
        match self.packing {
            Packing::Fours => {
                let _ = writeln!(
                    text,
                    "fn {name}_at4(i: u32) -> {ty} {{ return {name}_word(i + {offset} / 4u); }}\n\
                     fn {name}_put4(i: u32, value: {ty}) {{ {name}_set_word(i + {offset} / 4u, value); }}"
                );
            }
            Packing::One(dtype) => {
                let _ = writeln!(text, "fn {name}_at(i: u32) -> {ty} {{ return {name}_raw(i + {offset}); }}");
                if dtype.size() == 4 {
                    let _ = writeln!(
                        text,
                        "fn {name}_put(i: u32, value: {word}) {{ {name}_set_word(i + {offset}, value); }}"
                    );
                }
                if dtype.is_index() {
                    let _ = writeln!(text, "fn {name}_index(i: u32) -> u32 {{ return bitcast<u32>({name}_at(i)); }}");
                }
            }
            Packing::Atomic => {}
        }
    }
}
