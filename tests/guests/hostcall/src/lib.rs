//! Calls the host as often as it is told: `rank 1000`, or `add 1000`.

use std::hint::black_box;

use weft_sdk::{Context, Error, Request, Response, Result, Tensor};

#[weft_sdk::function]
fn call(request: Request) -> Result<Response> {
    let (what, times) = request.text()?.split_once(' ').ok_or_else(|| Error::bad_input("WHAT TIMES"))?;
    let times: u64 = times.parse().bad_input("how often")?;
    let x = Tensor::new(&[1.0_f32], &[1])?;
    match what {
        "rank" => {
            for _ in 0..times {
                black_box(black_box(&x).rank());
            }
        }
        "add" => {
            for _ in 0..times {
                black_box((&x + &x)?);
            }
        }
        _ => return Err(Error::bad_input("`rank` or `add`")),
    }
    Ok(Response::text("done"))
}
