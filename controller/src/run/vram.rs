//! GPU memory before and after a trial (contract G.7; review finding C-03): read from sysfs, waited for, attributed
//! only where the config says that the GPUs were this trial's own. Nothing is ever reset.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::timings::Timings;
use crate::result::observed::{GpuMemory, HeldGpu};

/// AMD's PCI vendor id.
const AMD: &str = "0x1002";

/// Used memory per GPU of the node, by position among the AMD GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sample {
    gpus: BTreeMap<usize, Gpu>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Gpu {
    used: u64,
    address: Option<String>,
}

impl Sample {
    /// Whether this host shows no GPU memory at all.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }
}

/// Reads `<sysfs>/class/drm/card<n>/device/mem_info_vram_used`, sorted by card number and indexed by position: DRM
/// numbers may run 0, 8, 16 while the reset tool counts 0, 1, 2. Cards of other vendors are not counted; a card that
/// cannot be read keeps its position.
pub fn sample(sysfs: &Path) -> Sample {
    let devices = devices(sysfs);
    let gpus = devices.iter().enumerate();
    let gpus = gpus.filter_map(|(index, device)| {
        let used = fs::read_to_string(device.join("mem_info_vram_used")).ok()?.trim().parse().ok()?;
        let address = fs::canonicalize(device).ok().and_then(|p| Some(p.file_name()?.to_str()?.to_owned()));
        // On real hardware the device link leads to a folder named by the PCI address.
        let address = address.filter(|a| a.contains(':'));
        Some((index, Gpu { used, address }))
    });
    Sample { gpus: gpus.collect() }
}

/// The AMD GPUs of the node by their PCI ids, each with its count: `1002:75a0 x 8`. `None` without any.
pub fn models(sysfs: &Path) -> Option<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for device in devices(sysfs) {
        let id = |name: &str| {
            let text = fs::read_to_string(device.join(name)).unwrap_or_default();
            text.trim().trim_start_matches("0x").to_owned()
        };
        *counts.entry(format!("{}:{}", id("vendor"), id("device"))).or_default() += 1;
    }
    let words: Vec<String> = counts.iter().map(|(id, count)| format!("{id} x {count}")).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Folders of the AMD GPUs, by card number.
fn devices(sysfs: &Path) -> Vec<PathBuf> {
    let mut cards: BTreeMap<u32, PathBuf> = BTreeMap::new();
    for entry in fs::read_dir(sysfs.join("class/drm")).into_iter().flatten().flatten() {
        // Connectors are called card0-DP-1.
        let number = entry.file_name().to_str().and_then(|n| n.strip_prefix("card")?.parse().ok());
        if let Some(number) = number {
            cards.insert(number, entry.path().join("device"));
        }
    }
    let amd = |device: &Path| match fs::read_to_string(device.join("vendor")) {
        Ok(vendor) => vendor.trim() == AMD,
        // Without a vendor the counter itself, which only this driver has, tells.
        Err(_) => device.join("mem_info_vram_used").exists(),
    };
    cards.into_values().filter(|device| amd(device)).collect()
}

/// Whether the container could have allocated on a GPU: those of `hip_visible_devices` when every entry is plain digits,
/// otherwise all.
fn watches(hip_visible_devices: Option<&str>) -> impl Fn(usize) -> bool {
    let digits = |entry: &str| {
        let entry = entry.trim();
        let digits = !entry.is_empty() && entry.bytes().all(|b| b.is_ascii_digit());
        if digits { entry.parse().ok() } else { None }
    };
    let only: Option<Vec<usize>> = match hip_visible_devices {
        // An empty list shows the container no GPU.
        Some(list) if list.trim().is_empty() => Some(Vec::new()),
        Some(list) => list.split(',').map(digits).collect(),
        None => None,
    };
    move |index| only.as_ref().is_none_or(|list| list.contains(&index))
}

/// Watched GPUs that had a reading before and have none now: nobody can say what they hold.
fn unreadable(before: &Sample, now: &Sample, hip_visible_devices: Option<&str>) -> Vec<usize> {
    let watched = watches(hip_visible_devices);
    before.gpus.keys().copied().filter(|index| watched(*index) && !now.gpus.contains_key(index)).collect()
}

/// GPUs that hold more than before by the threshold or beyond. A GPU that vanished is not counted.
pub fn held(before: &Sample, now: &Sample, hip_visible_devices: Option<&str>, threshold: u64) -> Vec<HeldGpu> {
    let watched = watches(hip_visible_devices);
    before
        .gpus
        .iter()
        .filter(|(index, _)| watched(**index))
        .filter_map(|(index, gpu)| {
            let growth = now.gpus.get(index)?.used.saturating_sub(gpu.used);
            (growth >= threshold).then(|| HeldGpu {
                index: *index,
                pci_address: gpu.address.clone(),
                held_bytes: growth,
                gpus_on_node: before.gpus.len(),
            })
        })
        .collect()
}

/// Waits until the memory is back, at most `gpu_wait`: an immediate sample, then one per `gpu_poll`.
pub async fn wait(sysfs: &Path, before: &Sample, hip_visible_devices: Option<&str>, timings: &Timings) -> GpuMemory {
    if before.is_empty() {
        return GpuMemory::NotChecked;
    }
    let started = tokio::time::Instant::now();
    loop {
        let now = sample(sysfs);
        let held = held(before, &now, hip_visible_devices, timings.gpu_held_bytes);
        if held.is_empty() {
            let blind = unreadable(before, &now, hip_visible_devices);
            return if blind.is_empty() { GpuMemory::Released } else { GpuMemory::Unreadable(blind) };
        }
        let waited = started.elapsed();
        if waited >= timings.gpu_wait {
            return GpuMemory::Outstanding(held);
        }
        if waited < Duration::from_millis(1) {
            let gpus: Vec<_> = held.iter().map(|g| g.index.to_string()).collect();
            tracing::info!("waiting for memory of GPU {} to be released", gpus.join(", "));
        }
        tokio::time::sleep(timings.gpu_poll.min(timings.gpu_wait.saturating_sub(waited))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// A sysfs with cards: (number, vendor, used).
    fn sysfs(cards: &[(u32, Option<&str>, Option<&str>)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (number, vendor, used) in cards {
            let device = dir.path().join(format!("devices/0000:{number:02x}:00.0"));
            fs::create_dir_all(&device).unwrap();
            let card = dir.path().join(format!("class/drm/card{number}"));
            fs::create_dir_all(&card).unwrap();
            std::os::unix::fs::symlink(&device, card.join("device")).unwrap();
            if let Some(vendor) = vendor {
                fs::write(device.join("vendor"), vendor).unwrap();
            }
            if let Some(used) = used {
                fs::write(device.join("mem_info_vram_used"), used).unwrap();
            }
        }
        dir
    }

    fn set(dir: &tempfile::TempDir, number: u32, used: &str) {
        fs::write(dir.path().join(format!("devices/0000:{number:02x}:00.0/mem_info_vram_used")), used).unwrap();
    }

    #[test]
    fn positions_not_card_numbers_row_245() {
        let dir = sysfs(&[(0, Some("0x1002\n"), Some("1\n")), (8, None, Some("2")), (16, Some("0x1002"), Some("3"))]);
        let before = sample(dir.path());
        set(&dir, 8, &(9 * GIB).to_string());
        let held = held(&before, &sample(dir.path()), None, 8 * GIB);
        assert_eq!(held.len(), 1);
        assert_eq!((held[0].index, held[0].gpus_on_node), (1, 3));
        assert_eq!(held[0].pci_address.as_deref(), Some("0000:08:00.0"));
    }

    #[test]
    fn a_foreign_display_adapter_takes_no_position_c03() {
        let dir = sysfs(&[(0, Some("0x10de"), None), (1, Some("0x1002"), Some("0")), (2, Some("0x1002"), Some("0"))]);
        fs::create_dir_all(dir.path().join("class/drm/card1-DP-1/device")).unwrap();
        let before = sample(dir.path());
        set(&dir, 2, &(9 * GIB).to_string());
        let held = held(&before, &sample(dir.path()), None, 8 * GIB);
        assert_eq!((held[0].index, held[0].pci_address.as_deref()), (1, Some("0000:02:00.0")));
    }

    /// FS-87.
    #[test]
    fn growth_and_watched_set_rows_244_246() {
        let dir = sysfs(&(0..6).map(|n| (n, Some("0x1002"), Some("0"))).collect::<Vec<_>>());
        let before = sample(dir.path());
        set(&dir, 5, &(8 * GIB).to_string());
        set(&dir, 0, &(8 * GIB - 1).to_string());
        let now = sample(dir.path());
        let held = |hip| held(&before, &now, hip, 8 * GIB).iter().map(|h| h.index).collect::<Vec<_>>();
        assert_eq!(held(None), [5]);
        assert_eq!(held(Some("0, 1")), [0_usize; 0]);
        assert_eq!(held(Some("5")), [5]);
        assert_eq!(held(Some("GPU-abc")), [5]);
        assert_eq!(held(Some("0,GPU-abc")), [5]);
        assert_eq!(held(Some("")), [0_usize; 0]);
    }

    /// FS-88: neither a leak nor a release.
    #[tokio::test]
    async fn broken_readings_are_no_leak_and_no_crash_fs88() {
        let dir = sysfs(&[(0, Some("0x1002"), Some("text")), (1, Some("0x1002"), Some("")), (2, Some("0x1002"), None)]);
        assert!(sample(dir.path()).is_empty());
        assert!(sample(Path::new("/nonexistent")).is_empty());
        let dir = sysfs(&[(0, Some("0x1002"), Some("0")), (1, Some("0x1002"), Some("0"))]);
        let before = sample(dir.path());
        set(&dir, 0, "gone");
        assert_eq!(held(&before, &sample(dir.path()), None, 8 * GIB), []);
        let timings = Timings::default();
        assert_eq!(wait(dir.path(), &before, None, &timings).await, GpuMemory::Unreadable(vec![0]));
        assert_eq!(wait(dir.path(), &before, Some("1"), &timings).await, GpuMemory::Released);
    }

    /// FS-85, FS-86.
    #[tokio::test(start_paused = true)]
    async fn waits_until_it_is_back_or_gives_up_rows_243_247() {
        let timings = Timings::default();
        let dir = sysfs(&[(0, Some("0x1002"), Some("0"))]);
        let before = sample(dir.path());
        assert_eq!(wait(dir.path(), &Sample::default(), None, &timings).await, GpuMemory::NotChecked);
        assert_eq!(wait(dir.path(), &before, None, &timings).await, GpuMemory::Released);

        set(&dir, 0, &(9 * GIB).to_string());
        let started = tokio::time::Instant::now();
        let GpuMemory::Outstanding(held) = wait(dir.path(), &before, None, &timings).await else { panic!("released") };
        assert_eq!((held[0].held_bytes, started.elapsed()), (9 * GIB, timings.gpu_wait));

        let started = tokio::time::Instant::now();
        let path = dir.path().to_owned();
        let device = path.join("devices/0000:00:00.0/mem_info_vram_used");
        let release = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(12)).await;
            fs::write(device, "0").unwrap();
        });
        assert_eq!(wait(&path, &before, None, &timings).await, GpuMemory::Released);
        assert_eq!(started.elapsed(), Duration::from_secs(15));
        release.await.unwrap();
    }
}
