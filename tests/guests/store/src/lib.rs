//! Does to the parameter store what it is told, a line at a time: `set model/w 1 2 3`, `get model/w`. The answer has a line
//! for each; what fails ends it.

use std::time::Duration;

use weft_sdk::params::{self, Bucket, Keeping};
use weft_sdk::{Context, Error, Request, Response, Result, Tensor};

const SOON: Duration = Duration::from_secs(20);

#[weft_sdk::function]
fn store(request: Request) -> Result<Response> {
    let mut bucket = params::open()?;
    let mut answer = String::new();
    for line in request.text()?.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let said = match words[..] {
            ["job", job] => {
                bucket = params::open_job(job)?;
                String::new()
            }
            _ => tell(&bucket, &words)?,
        };
        answer.push_str(&said);
        answer.push('\n');
    }
    Ok(Response::text(answer))
}

fn tell(bucket: &Bucket, words: &[&str]) -> Result<String> {
    Ok(match *words {
        ["set", name, ref values @ ..] => bucket.set(name, &tensor(values)?)?.to_string(),
        ["keep", name, ref values @ ..] => {
            let keeping = Keeping { durable: true, ..Keeping::default() };
            bucket.keep(name, &tensor(values)?, keeping)?.to_string()
        }
        ["get", name] => match bucket.get(name)? {
            Some(found) => show(&found.value)?,
            None => "nothing".to_owned(),
        },
        ["newer", name, known] => match bucket.get_if_newer(name, number(known)?)? {
            Some(found) => show(&found.value)?,
            None => "nothing".to_owned(),
        },
        ["wait", name, known] => show(&bucket.wait_newer(name, number(known)?, SOON)?.value)?,
        ["cas", name, expected, ref values @ ..] => {
            bucket.compare_and_set(name, number(expected)?, &tensor(values)?)?.to_string()
        }
        ["bytes", name, text] => bucket.set_bytes(name, text.as_bytes())?.to_string(),
        ["text", name] => match bucket.get_bytes(name)? {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => "nothing".to_owned(),
        },
        ["count", name, by] => bucket.increment(name, number(by)?)?.to_string(),
        ["delete", name] => bucket.delete(name)?.to_string(),
        ["take", name] => match bucket.take(name)? {
            Some(found) => show(&found.value)?,
            None => "nothing".to_owned(),
        },
        ["expire", name, after] => bucket.expire(name, Some(Duration::from_millis(number(after)?)))?.to_string(),
        ["list", prefix] => bucket.list(prefix, "", 1_000)?.join(" "),
        ["contribute", round, worker, ref values @ ..] => {
            bucket.contribute(round, number(worker)?, &tensor(values)?)?.to_string()
        }
        ["merged", round, workers] => show(&bucket.merged(round, number(workers)?, SOON)?)?,
        ["barrier", name, worker, workers] => {
            bucket.barrier(name, number(worker)?, number(workers)?, SOON)?;
            "here".to_owned()
        }
        ["publish", topic, peer, ref values @ ..] => {
            bucket.publish(topic, number(peer)?, &tensor(values)?)?.to_string()
        }
        ["latest", topic] => {
            let latest = bucket.latest(topic)?;
            let shown: Result<Vec<String>> =
                latest.iter().map(|(peer, found)| Ok(format!("{peer}:{}", show(&found.value)?))).collect();
            shown?.join(" ")
        }
        ["claim", name] => bucket.claim(name)?.to_string(),
        ["flood", count, bytes] => {
            let large = vec![7; number(bytes)?];
            for index in 0..number::<u64>(count)? {
                bucket.set_bytes(&format!("flood/{index}"), &large)?;
            }
            "flooded".to_owned()
        }
        ["large", name, elements] => bucket.set(name, &Tensor::full(&[number(elements)?], 0.5)?)?.to_string(),
        _ => return Err(Error::bad_input(format!("`{}` is nothing that can be told", words.join(" ")))),
    })
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T>
where
    T::Err: std::error::Error + 'static,
{
    text.parse::<T>().bad_input("a number")
}

fn tensor(values: &[&str]) -> Result<Tensor> {
    let values: Vec<f32> = values.iter().map(|text| number(text)).collect::<Result<_>>()?;
    Tensor::new(&values, &[values.len() as u32])
}

fn show(tensor: &Tensor) -> Result<String> {
    Ok(tensor.to_vec::<f32>()?.iter().map(f32::to_string).collect::<Vec<_>>().join(","))
}
