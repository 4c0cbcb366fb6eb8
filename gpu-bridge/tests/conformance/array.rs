//! Tensors of the reference: f64 whatever their type, row after row.

use weft_gpu::{Context, DType, Tensor};

#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
    pub dtype: DType,
    pub data: Vec<f64>,
}

impl Array {
    pub fn new(shape: &[usize], dtype: DType, data: Vec<f64>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "the data fills {shape:?}");
        Self { shape: shape.to_vec(), dtype, data }
    }

    pub fn f32(shape: &[usize], data: Vec<f64>) -> Self {
        Self::new(shape, DType::F32, data)
    }

    pub fn build(shape: &[usize], dtype: DType, mut element: impl FnMut(usize) -> f64) -> Self {
        let count = shape.iter().product();
        Self::new(shape, dtype, (0..count).map(&mut element).collect())
    }

    /// Numbers that look random, the same in every run, in `[low, high)`; each exactly an f32.
    pub fn noise(shape: &[usize], seed: u64, low: f64, high: f64) -> Self {
        Self::build(shape, DType::F32, |index| f64::from((low + (high - low) * unit(seed, index)) as f32))
    }

    /// Integers in `0..below`.
    pub fn integers(shape: &[usize], dtype: DType, seed: u64, below: usize) -> Self {
        Self::build(shape, dtype, |index| (unit(seed, index) * below as f64).floor())
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The element at these coordinates.
    pub fn at(&self, coordinates: &[usize]) -> f64 {
        self.data[self.index(coordinates)]
    }

    pub fn index(&self, coordinates: &[usize]) -> usize {
        self.shape.iter().zip(coordinates).fold(0, |index, (&size, &coordinate)| index * size + coordinate)
    }

    /// The element that lands at these coordinates of a larger shape when this one is broadcast to it.
    pub fn broadcast_at(&self, coordinates: &[usize]) -> f64 {
        let missing = coordinates.len() - self.rank();
        let own: Vec<usize> =
            self.shape.iter().zip(&coordinates[missing..]).map(|(&size, &c)| if size == 1 { 0 } else { c }).collect();
        self.at(&own)
    }

    /// On the device, row after row.
    pub fn upload(&self, context: &Context) -> Tensor {
        upload(context, &self.shape, self.dtype, &self.data)
    }

    /// On the device, as a view whose elements lie apart: stored with the axes reversed, every other element of the last
    /// stored axis and the borders of the first being garbage, and looked at in order.
    pub fn upload_apart(&self, context: &Context) -> Tensor {
        if self.rank() == 0 {
            let among = [self.garbage(), self.data[0], self.garbage()];
            return upload(context, &[3], self.dtype, &among).narrow(0, 1, 1).unwrap().reshape(&[]).unwrap();
        }
        let rank = self.rank();
        let reversed: Vec<usize> = self.shape.iter().rev().copied().collect();
        let (mut starts, mut stored, mut steps) = (vec![0; rank], reversed.clone(), vec![1; rank]);
        if rank > 1 {
            starts[0] = 1;
            stored[0] += 2;
        }
        starts[rank - 1] = 1;
        stored[rank - 1] = 2 * stored[rank - 1] + 1;
        steps[rank - 1] = 2;
        let mut stored = Self::build(&stored, self.dtype, |_| self.garbage());
        for c in coordinates(&reversed) {
            let place: Vec<usize> = (0..rank).map(|axis| starts[axis] + c[axis] * steps[axis]).collect();
            let index = stored.index(&place);
            stored.data[index] = self.at(&c.into_iter().rev().collect::<Vec<_>>());
        }
        let order: Vec<usize> = (0..rank).rev().collect();
        stored.upload(context).slice(&starts, &reversed, &steps).unwrap().permute(&order).unwrap()
    }

    /// Bytes of the memory that holds it once it is uploaded, apart or not.
    pub fn stored_bytes(&self, apart: bool) -> usize {
        let mut sizes = self.shape.clone();
        match sizes.len() {
            _ if !apart => {}
            0 => sizes.push(3),
            rank => {
                sizes[rank - 1] += if rank > 1 { 2 } else { 0 };
                sizes[0] = 2 * sizes[0] + 1;
            }
        }
        sizes.iter().product::<usize>() * self.dtype.size()
    }

    /// What spoils any result that it gets into.
    fn garbage(&self) -> f64 {
        match self.dtype {
            DType::F32 | DType::F16 => f64::NAN,
            DType::U8 => f64::from(u8::MAX),
            DType::I32 => -1.0,
            DType::U32 => f64::from(u32::MAX),
        }
    }

    pub fn download(tensor: &Tensor) -> Self {
        let data = match tensor.dtype() {
            DType::F32 => tensor.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
            DType::F16 => tensor.to_vec::<half::f16>().unwrap().into_iter().map(f64::from).collect(),
            DType::U8 => tensor.to_vec::<u8>().unwrap().into_iter().map(f64::from).collect(),
            DType::I32 => tensor.to_vec::<i32>().unwrap().into_iter().map(f64::from).collect(),
            DType::U32 => tensor.to_vec::<u32>().unwrap().into_iter().map(f64::from).collect(),
        };
        Self::new(&tensor.shape(), tensor.dtype(), data)
    }
}

fn upload(context: &Context, shape: &[usize], dtype: DType, data: &[f64]) -> Tensor {
    let result = match dtype {
        DType::F32 => context.tensor(shape, &data.iter().map(|&x| x as f32).collect::<Vec<_>>()),
        DType::F16 => context.tensor(shape, &data.iter().map(|&x| half::f16::from_f64(x)).collect::<Vec<_>>()),
        DType::U8 => context.tensor(shape, &data.iter().map(|&x| x as u8).collect::<Vec<_>>()),
        DType::I32 => context.tensor(shape, &data.iter().map(|&x| x as i32).collect::<Vec<_>>()),
        DType::U32 => context.tensor(shape, &data.iter().map(|&x| x as u32).collect::<Vec<_>>()),
    };
    result.unwrap()
}

/// All coordinates of a shape, row after row.
pub fn coordinates(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let shape = shape.to_vec();
    (0..shape.iter().product::<usize>()).map(move |mut index| {
        let mut coordinates = vec![0; shape.len()];
        for (coordinate, &size) in coordinates.iter_mut().zip(&shape).rev() {
            *coordinate = index % size;
            index /= size;
        }
        coordinates
    })
}

/// A number in `[0, 1)` that depends on both.
pub fn unit(seed: u64, index: usize) -> f64 {
    let mut bits =
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index as u64 + 1).wrapping_mul(0xD134_2543_DE82_EF95);
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits ^= bits >> 32;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
