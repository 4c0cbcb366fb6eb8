//! Reads handwritten digits: a trained model as a function that anybody can call.
//!
//! ```text
//! $ head -1 digits.csv | weft invoke digit-reader
//! 0
//! ```
//!
//! A line of the body is an image of 8x8: 64 numbers from 0 to 16, separated by commas. A line of the answer is its digit.
//! The model is in the component: `digits.safetensors`, 2,410 parameters of `functions/mlp`, of which 97 % of digits that
//! it has not seen are read right. It was made by
//!
//! ```text
//! weft train-local functions/mlp --dataset digits --transform minmax:0,1 --param features=64 --param classes=10 \
//!     --param layers=1 --param width=32 --epochs 60 --lr 0.02 --batch 32 --device cpu
//! ```

use safetensors::SafeTensors;
use weft_sdk::tensor::{TensorType, UnaryOp};
use weft_sdk::{Context, Error, Request, Response, Result, Tensor};

const MODEL: &[u8] = include_bytes!("digits.safetensors");
const PIXELS: usize = 64;
/// What a pixel can be at most; the model was trained on numbers from 0 to 1.
const WHITE: f32 = 16.0;

#[weft_sdk::function]
fn digit_reader(request: Request) -> Result<Response> {
    let pixels = pixels(request.text()?)?;
    let images = (pixels.len() / PIXELS) as u32;
    if images == 0 {
        return Ok(Response::text(""));
    }
    let model = SafeTensors::deserialize(MODEL).context("the model")?;
    let images = Tensor::new(&pixels, &[images, PIXELS as u32])?;
    let hidden =
        images.linear(&weights(&model, "0.weight")?, Some(&weights(&model, "0.bias")?), Some(UnaryOp::Relu))?;
    let scores = hidden.linear(&weights(&model, "2.weight")?, Some(&weights(&model, "2.bias")?), None)?;
    let digits = scores.arg_max(1)?.cast(TensorType::I32)?.to_vec::<i32>()?;
    Ok(Response::text(digits.into_iter().map(|digit| format!("{digit}\n")).collect::<String>()))
}

fn weights(model: &SafeTensors<'_>, name: &str) -> Result<Tensor> {
    let found = model.tensor(name).context(name)?;
    let numbers: Vec<f32> = found.data().as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
    let dimensions: Vec<u32> = found.shape().iter().map(|&size| size as u32).collect();
    Tensor::new(&numbers, &dimensions)
}

/// The images' pixels one after the other, from 0 to 1.
fn pixels(text: &str) -> Result<Vec<f32>> {
    let mut pixels = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let start = pixels.len();
        for cell in line.split(',') {
            let value: f32 = cell.trim().parse().bad_input(format!("line {}, `{cell}`", index + 1))?;
            pixels.push(value / WHITE);
        }
        let found = pixels.len() - start;
        if found != PIXELS {
            return Err(Error::bad_input(format!("line {}: {found} numbers where {PIXELS} belong", index + 1)));
        }
    }
    Ok(pixels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_all_its_pixels() {
        let line = vec!["8"; PIXELS].join(",");
        assert_eq!(pixels(&format!("{line}\n{line}\n")).unwrap(), [0.5; 2 * PIXELS]);
        let error = pixels(&format!("{line}\n1,2,3\n")).unwrap_err();
        assert!(error.message().contains("line 2: 3 numbers"), "{error}");
        let error = pixels("1,x").unwrap_err();
        assert!(error.message().contains("line 1, `x`"), "{error}");
    }

    #[test]
    fn the_model_is_what_the_function_takes_it_for() {
        let model = SafeTensors::deserialize(MODEL).unwrap();
        assert_eq!(model.tensor("0.weight").unwrap().shape(), [32, PIXELS]);
        assert_eq!(model.tensor("2.weight").unwrap().shape(), [10, 32]);
    }
}
