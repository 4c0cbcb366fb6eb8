//! Products of matrices, many at once, on the node's devices: a task that computes.
//!
//! The body has four counts, `batch`, `rows`, `inner` and `columns`, as u32, and then the elements of `batch` matrices of
//! `rows` x `inner` and of as many of `inner` x `columns`, as f32, all in little endian. The answer has those of `batch`
//! matrices of `rows` x `columns`. In Python:
//!
//! ```text
//! body = numpy.array([batch, rows, inner, columns], "<u4").tobytes() + a.astype("<f4").tobytes() + b.astype("<f4").tobytes()
//! answer = urllib.request.urlopen(f"{node}/v1/functions/matrix-product/invoke", body).read()
//! c = numpy.frombuffer(answer, "<f4").reshape(batch, rows, columns)
//! ```
//!
//! The device's time and memory are the tenant's, as `weft usage` tells.

use weft_sdk::{Context, Error, Request, Response, Result, Tensor};

#[weft_sdk::function]
fn matrix_product(request: Request) -> Result<Response> {
    let [(a, left), (b, right)] = matrices(&request.body)?;
    let product = Tensor::new(&a, &left)?.matmul(&Tensor::new(&b, &right)?).context("the product")?;
    Ok(Response::bytes(product.to_vec::<f32>()?.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>()))
}

/// Elements and their dimensions.
type Matrices = (Vec<f32>, [u32; 3]);

fn matrices(body: &[u8]) -> Result<[Matrices; 2]> {
    let short = || Error::bad_input("four counts are missing");
    let (counts, elements) = body.split_first_chunk::<16>().ok_or_else(short)?;
    let (words, _) = counts.as_chunks::<4>();
    let counts: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let &[batch, rows, inner, columns] = counts.as_slice() else { return Err(short()) };
    let (left, right) = ([batch, rows, inner], [batch, inner, columns]);
    // As counts are the caller's, their product may be any number.
    let bytes = |dimensions: [u32; 3]| dimensions.iter().map(|&size| u128::from(size)).product::<u128>() * 4;
    if bytes(left) + bytes(right) != elements.len() as u128 {
        let expected = bytes(left) + bytes(right);
        return Err(Error::bad_input(format!("{expected} bytes of elements are told of, {} came", elements.len())));
    }
    let (a, b) = elements.split_at(bytes(left) as usize);
    let numbers = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
    Ok([(numbers(a), left), (numbers(b), right)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(counts: [u32; 4], elements: &[f32]) -> Vec<u8> {
        let counts = counts.iter().flat_map(|count| count.to_le_bytes());
        counts.chain(elements.iter().flat_map(|element| element.to_le_bytes())).collect()
    }

    #[test]
    fn a_body_is_taken_apart() {
        let [(a, left), (b, right)] = matrices(&body([2, 1, 2, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])).unwrap();
        assert_eq!((a, left), (vec![1.0, 2.0, 3.0, 4.0], [2, 1, 2]));
        assert_eq!((b, right), (vec![5.0, 6.0, 7.0, 8.0], [2, 2, 1]));
    }

    #[test]
    fn counts_that_do_not_fit_the_elements_are_refused() {
        for counts in [[1, 1, 1, 2], [u32::MAX; 4], [0, 1, 1, 1]] {
            let error = matrices(&body(counts, &[1.0, 2.0])).unwrap_err();
            assert!(error.message().contains("8 came"), "{error}");
        }
        assert!(matrices(&[0; 15]).is_err());
    }
}
