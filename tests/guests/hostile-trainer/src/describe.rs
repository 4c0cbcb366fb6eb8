//! Harm in what a trainer says of itself, which the seed chooses.
//!
//! | seed   | what it describes                                          |
//! |--------|------------------------------------------------------------|
//! | 90,001 | 257 parameters                                             |
//! | 90,002 | a parameter with a name of a mebibyte                      |
//! | 90,003 | a parameter with a line break in its name                  |
//! | 90,004 | a parameter whose default is a text of a mebibyte          |
//! | 90,005 | a parameter with 65 choices                                |
//! | 90,006 | a parameter with a summary of a mebibyte                   |
//! | 90,007 | as much as is allowed of one parameter, which is no harm   |

use weft_sdk::hyper::{HyperParameter, Value};

/// The parameters that there are, and the harmful ones.
pub fn with_harm(mut parameters: Vec<HyperParameter>, seed: u64) -> Vec<HyperParameter> {
    let usual = HyperParameter {
        name: "extra".to_owned(),
        summary: String::new(),
        default: Value::Text(String::new()),
        low: None,
        high: None,
        choices: Vec::new(),
        logarithmic: false,
    };
    let long = || "m".repeat(1 << 20);
    match seed {
        90_001 => {
            let more = 257 - parameters.len();
            parameters.extend((0..more).map(|n| HyperParameter { name: format!("p{n}"), ..usual.clone() }));
        }
        90_002 => parameters.push(HyperParameter { name: long(), ..usual }),
        90_003 => parameters.push(HyperParameter { name: "a\nb".to_owned(), ..usual }),
        90_004 => parameters.push(HyperParameter { default: Value::Text(long()), ..usual }),
        90_005 => parameters.push(HyperParameter { choices: vec![String::new(); 65], ..usual }),
        90_006 => parameters.push(HyperParameter { summary: long(), ..usual }),
        90_007 => {
            let text = "m".repeat(4 << 10);
            let (summary, default) = (text.clone(), Value::Text(text.clone()));
            parameters.push(HyperParameter { summary, default, choices: vec![text; 64], ..usual });
        }
        _ => {}
    }
    parameters
}
