//! Sparse rows (CSR), and k-means.
//!
//! Offsets and columns are data: offsets are checked by kernels of their own, before anything goes by them; a column
//! where it is used.

use super::Call;
use super::layout::{Scatter, Scratch, Source, zero};
use crate::device::View;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{CsrTransposedMatMul, Op};

mod kmeans;

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        Op::CsrMatMul(_) => matmul(call),
        Op::CsrTransposedMatMul(op) => transposed_matmul(call, op),
        Op::CsrValuesGradient(_) => values_gradient(call),
        Op::KMeansAssign(_) => kmeans::assign(call),
        Op::KMeansAccumulate(op) => kmeans::accumulate(call, op),
        _ => super::misplaced(op),
    }
}

const ROW_OF: &str = include_str!("sparse/row_of.wgsl");
static ENDS: Kernel = Kernel { name: "csr-ends", sources: &[include_str!("sparse/ends.wgsl")] };
static FALLS: Kernel = Kernel { name: "csr-falls", sources: &[include_str!("sparse/falls.wgsl")] };
static MATMUL: Kernel = Kernel { name: "csr-matmul", sources: &[include_str!("sparse/matmul.wgsl")] };
static MATVEC: Kernel = Kernel { name: "csr-matvec", sources: &[include_str!("sparse/matvec.wgsl")] };
static PRODUCTS: Kernel = Kernel { name: "csr-products", sources: &[ROW_OF, include_str!("sparse/products.wgsl")] };
static ROWS: Kernel = Kernel { name: "csr-rows", sources: &[ROW_OF, include_str!("sparse/rows.wgsl")] };
static VALUES: Kernel = Kernel { name: "csr-values", sources: &[ROW_OF, include_str!("sparse/values.wgsl")] };

/// A matrix of sparse rows, and how wide its dense operand is.
#[derive(Clone, Copy)]
struct Sparse<'a> {
    offsets: View<'a>,
    columns: View<'a>,
    rows: usize,
    stored: usize,
    wide: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct EndsBody {
    rows: u32,
    stored: u32,
    first_is_wrong: u32,
    last_is_wrong: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Body {
    rows: u32,
    /// Columns of the matrix.
    count: u32,
    wide: u32,
    /// Threads that share a row.
    together: u32,
}

/// `Body` of the two products.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ProductBody {
    body: Body,
    /// Which of the stored values are multiplied.
    first: u32,
    last: u32,
}

impl<'a> Sparse<'a> {
    fn new(call: &Call<'a>, dense: usize) -> Self {
        let (offsets, columns) = (call.inputs[0], call.inputs[1]);
        Self {
            offsets,
            columns,
            rows: offsets.layout.shape.elements() - 1,
            stored: columns.layout.shape.elements(),
            wide: call.inputs[dense].layout.shape.get(1).copied().unwrap_or(1),
        }
    }

    fn body(&self, count: usize) -> Body {
        Body { rows: self.rows as u32, count: count as u32, wide: self.wide as u32, together: 1 }
    }

    fn flops(&self) -> u64 {
        (self.stored as u64).saturating_mul(self.wide as u64).saturating_mul(2)
    }

    /// Refuses offsets that are no rows. What comes back is one u32: whether something is wrong with them.
    fn check(&self, call: &Call<'a>) -> Result<Scratch> {
        let wrong = Scratch::take(call, 1, DType::U32)?;
        let code = |what| call.core.fault_code(call.op, what, DType::U32);
        let last_is_wrong = "the last offset is {index}, there are {count} stored values";
        call.launch(&ENDS)
            .lanes(1)
            .bind("offsets", &self.offsets)?
            .bind("wrong", &wrong.view())?
            .checked(last_is_wrong, self.stored, DType::U32)
            .body(&EndsBody {
                rows: self.rows as u32,
                stored: self.stored as u32,
                first_is_wrong: code("the first offset is {index}, not 0"),
                last_is_wrong: code(last_is_wrong),
            })
            .threads(1)?;
        call.launch(&FALLS)
            .bind("offsets", &self.offsets)?
            .bind("wrong", &wrong.view())?
            .checked("the offsets fall at row {index}", self.stored, DType::U32)
            .threads(self.rows as u64)?;
        Ok(wrong)
    }
}

fn matmul(call: Call<'_>) -> Result<()> {
    let sparse = Sparse::new(&call, 3);
    let wrong = sparse.check(&call)?;
    let (values, x, y) = (&call.inputs[2], &call.inputs[3], &call.outputs[0]);
    let count = x.layout.shape[0];
    let threads = y.layout.shape.elements() as u64;
    let mut body = sparse.body(count);
    let vector = sparse.wide == 1 && !call.is_software();
    if vector {
        // As many threads to a row as it has stored values, about.
        let each = (sparse.stored / sparse.rows.max(1)).clamp(1, 64);
        body.together = (each as u32 + 1).next_power_of_two() / 2;
    }
    // Nobody knows here how many of them one row has, so no launch is given more than one thread may go through.
    for first in (0..sparse.stored.max(1)).step_by(call.longest_loop()) {
        let last = sparse.stored.min(first + call.longest_loop());
        let launch = call
            .launch(if vector { &MATVEC } else { &MATMUL })
            .bind("offsets", &sparse.offsets)?
            .bind("columns", &sparse.columns)?
            .bind("values", values)?
            .bind("x", x)?
            .bind("wrong", &wrong.view())?
            .bind("y", y)?
            .checked("column", count, DType::U32)
            .flops((8 * (last - first) as u64).saturating_mul(sparse.wide as u64))
            .body(&ProductBody { body, first: first as u32, last: last as u32 });
        match vector {
            true => launch.groups(threads.div_ceil(u64::from(64 / body.together)))?,
            false => launch.threads(threads)?,
        }
    }
    Ok(())
}

fn transposed_matmul(call: Call<'_>, op: &CsrTransposedMatMul) -> Result<()> {
    let sparse = Sparse::new(&call, 3);
    sparse.check(&call)?;
    let (values, r, y) = (call.inputs[2], call.inputs[3], &call.outputs[0]);
    if sparse.rows == 0 || sparse.stored == 0 {
        return zero(&call, y);
    }
    let scatter = |source: Source<'_>| {
        let scatter = Scatter { source, index: sparse.columns, what: "column", count: op.columns, width: sparse.wide };
        scatter.run(&call, y)
    };
    if sparse.wide == 1 {
        let products = Scratch::take(&call, sparse.stored, DType::F32)?;
        call.launch(&PRODUCTS)
            .bind("offsets", &sparse.offsets)?
            .bind("values", &values)?
            .bind("r", &r)?
            .body(&sparse.body(0))
            .map(&products.view())?;
        return scatter(Source::Rows(products.view()));
    }
    let rows = Scratch::take(&call, sparse.stored, DType::U32)?;
    call.launch(&ROWS).bind("offsets", &sparse.offsets)?.body(&sparse.body(0)).map(&rows.view())?;
    scatter(Source::Scaled { values, rows: r, of: rows.view() })
}

fn values_gradient(call: Call<'_>) -> Result<()> {
    let sparse = Sparse::new(&call, 2);
    sparse.check(&call)?;
    let (x, dy) = (&call.inputs[2], &call.inputs[3]);
    let count = x.layout.shape[0];
    if sparse.rows == 0 {
        return Ok(());
    }
    call.launch(&VALUES)
        .bind("offsets", &sparse.offsets)?
        .bind("columns", &sparse.columns)?
        .bind("x", x)?
        .bind("dy", dy)?
        .checked("column", count, DType::U32)
        .body(&sparse.body(count))
        .flops(sparse.flops().saturating_mul(4))
        .looping(sparse.wide as u64, "columns of the dense matrix")?
        .map(&call.outputs[0])
}
