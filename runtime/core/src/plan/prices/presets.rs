//! Prices by name: those that the papers calculated with, this node's own defaults, and a public cloud's.

use super::{PriceError, PriceTable};

/// The names of the tables that come with Weft.
pub const PRESETS: [&str; 6] = ["node", "feng", "lambdaml", "p2p", "smlt", "cloud"];

const MIB_PER_GIB: f64 = 1024.0;
const HOUR: f64 = 3600.0;

/// A table by its name.
pub fn preset(name: &str) -> Result<PriceTable, PriceError> {
    match name {
        "node" => Ok(node()),
        "feng" => Ok(feng()),
        "lambdaml" => Ok(lambdaml()),
        "p2p" => Ok(p2p()),
        "smlt" => Ok(smlt()),
        "cloud" => Ok(cloud()),
        other => Err(PriceError::Unknown { name: other.chars().take(40).collect() }),
    }
}

fn machines<const N: usize>(machines: [(&str, f64); N]) -> std::collections::BTreeMap<String, f64> {
    machines.into_iter().map(|(name, price)| (name.to_owned(), price)).collect()
}

/// What a node charges whose operator has set no prices.
fn node() -> PriceTable {
    PriceTable {
        note: "what a node charges unless its operator sets other prices".to_owned(),
        core_second: 0.000_012,
        gib_second: 0.000_001_7,
        device_second: machines([("gpu", 0.000_3)]),
        start: 0.000_000_2,
        ..PriceTable::free("2026-11")
    }
}

/// Feng et al., section III-D: 1.63e-8 dollars for a MB and second; their table I is per 100 ms.
fn feng() -> PriceTable {
    PriceTable {
        note: "Feng et al., section III-D: functions at 1.63e-8 dollars per MB and second, billed by 100 ms".to_owned(),
        gib_second: 1.63e-8 * MIB_PER_GIB,
        billed_by: 0.1,
        ..PriceTable::free("2018")
    }
}

/// LambdaML: functions of 3 GB, and the machines of its comparisons.
fn lambdaml() -> PriceTable {
    PriceTable {
        note: "LambdaML, sections 5.1 to 5.3: functions of 3 GB, and the machines that they are compared with"
            .to_owned(),
        gib_second: 1.666_67e-5,
        machine_second: machines([
            ("t2.medium", 0.0464 / HOUR),
            ("cache.t3.small", 0.034 / HOUR),
            ("g3s.xlarge", 0.75 / HOUR),
        ]),
        device_second: machines([("gpu", 0.75 / HOUR)]),
        ..PriceTable::free("2021")
    }
}

/// The peer-to-peer paper's tables II and III. Its functions' prices are those of Arm processors, by their memory.
fn p2p() -> PriceTable {
    PriceTable {
        note: "the peer-to-peer paper, tables II and III: functions on Arm processors, and two machines".to_owned(),
        gib_second: 1.333_34e-5,
        machine_second: machines([("t2.small", 6.39e-6), ("t2.large", 2.578e-5)]),
        ..PriceTable::free("2023")
    }
}

/// SMLT names the services that it pays for, and no prices: these are the list prices of its time.
fn smlt() -> PriceTable {
    PriceTable {
        note:
            "SMLT names no prices: these are list prices of its time for functions and for the container of its store"
                .to_owned(),
        gib_second: 1.666_67e-5,
        request: 0.2e-6,
        machine_second: machines([("fargate-1vcpu-2gb", (0.040_48 + 2.0 * 0.004_445) / HOUR)]),
        billed_by: 0.001,
        ..PriceTable::free("2021")
    }
}

/// A public cloud's functions. Prices differ by region and change: the note says so.
fn cloud() -> PriceTable {
    PriceTable {
        note:
            "list prices of AWS in us-east-1 (Lambda on x86, S3, traffic to the internet, EC2 on demand), from memory \
               and guides of that year: check them against your own bill before you rely on them"
                .to_owned(),
        gib_second: 1.666_67e-5,
        request: 0.2e-6,
        storage_gib_month: 0.023,
        traffic_gib: 0.09,
        device_second: machines([("gpu", 0.526 / HOUR), ("t4", 0.526 / HOUR)]),
        machine_second: machines([
            ("t3.medium", 0.0416 / HOUR),
            ("c5.large", 0.085 / HOUR),
            ("g4dn.xlarge", 0.526 / HOUR),
        ]),
        billed_by: 0.001,
        ..PriceTable::free("2024")
    }
}
