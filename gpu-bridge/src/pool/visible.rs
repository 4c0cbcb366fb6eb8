//! Which devices a setting lets be seen.

use super::{DeviceId, PoolError, Slot};

/// How often one device may be opened.
const MOST_TIMES: usize = 16;

pub(super) fn select(devices: Vec<Slot>, setting: &str) -> Result<Vec<Slot>, PoolError> {
    match setting.trim() {
        "all" => return Ok(devices),
        "none" => return Ok(Vec::new()),
        _ => {}
    }
    let mut times = vec![0; devices.len()];
    for entry in setting.split(',').map(str::trim) {
        let Some((index, opened)) = read(&devices, entry) else {
            let devices = devices.iter().map(|slot| slot.id).collect();
            return Err(PoolError::UnknownVisible { entry: entry.into(), devices });
        };
        times[index] = opened.max(times[index]);
    }
    let mut gpus = devices.iter().filter(|slot| slot.info.kind.is_gpu()).count()..;
    let (mut seen, mut copies) = (Vec::new(), Vec::new());
    for (slot, times) in devices.into_iter().zip(times) {
        for id in gpus.by_ref().map(DeviceId::Gpu).take(times.saturating_sub(1)) {
            copies.push(Slot { id, info: slot.info.clone(), device: slot.device.again()? });
        }
        if times > 0 {
            seen.push(slot);
        }
    }
    seen.append(&mut copies);
    Ok(seen)
}

/// Which device an entry names, and how often it is to be opened.
fn read(devices: &[Slot], entry: &str) -> Option<(usize, usize)> {
    let (name, times) = match entry.split_once('*') {
        Some((name, times)) => (name, times.parse().ok().filter(|times| (1..=MOST_TIMES).contains(times))?),
        None => (entry, 1),
    };
    let index = match name.parse::<usize>() {
        Ok(index) => Some(index).filter(|&index| index < devices.len()),
        Err(_) => {
            let id = name.parse::<DeviceId>().ok();
            id.and_then(|id| devices.iter().position(|slot| slot.id == id))
        }
    };
    Some((index?, times))
}
