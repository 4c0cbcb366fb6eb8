//! Which devices a setting lets be seen.

use super::{DeviceId, PoolError, Slot};

pub(super) fn select(devices: Vec<Slot>, setting: &str) -> Result<Vec<Slot>, PoolError> {
    match setting.trim() {
        "all" => return Ok(devices),
        "none" => return Ok(Vec::new()),
        _ => {}
    }
    let mut seen = vec![false; devices.len()];
    for entry in setting.split(',').map(str::trim) {
        let index = match entry.parse::<usize>() {
            Ok(index) => Some(index).filter(|&index| index < devices.len()),
            Err(_) => {
                let id = entry.parse::<DeviceId>().ok();
                id.and_then(|id| devices.iter().position(|slot| slot.id == id))
            }
        };
        let Some(index) = index else {
            let devices = devices.iter().map(|slot| slot.id).collect();
            return Err(PoolError::UnknownVisible { entry: entry.into(), devices });
        };
        seen[index] = true;
    }
    Ok(devices.into_iter().zip(seen).filter_map(|(slot, seen)| seen.then_some(slot)).collect())
}
