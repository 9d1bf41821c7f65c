//! What a campaign folder already holds and may be trusted: the state file, the phase markers, and the judgement of a
//! leg file. A leg counts only if it was recorded for exactly this question, its bytes are still those that were
//! judged, and enough of its requests were answered.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::file::Campaign;
use super::order::Leg;
use crate::corpus::source::hex;
use crate::whole_file::WholeFile;

/// Version of the state file.
const VERSION: u32 = 1;

/// The state file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    version: u32,
    /// By label.
    legs: BTreeMap<String, Recorded>,
    /// Seconds of every boot, by arm.
    pub boots: BTreeMap<String, Vec<f64>>,
    /// Decisions of the draft-route probe, by arm.
    probes: BTreeMap<String, Decision>,
    /// Files that were hashed, by path.
    pins: BTreeMap<PathBuf, Hashed>,
}

/// A leg that was judged good.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Recorded {
    fingerprint: String,
    sha256: String,
    seconds: f64,
}

/// What the probe decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Decision {
    fingerprint: String,
    fell_back: bool,
}

/// A file whose digest was right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Hashed {
    sha256: String,
    bytes: u64,
    modified_ns: u128,
}

/// A campaign's folder.
#[derive(Debug)]
pub struct Folder {
    /// Legs, report, logs.
    pub dir: PathBuf,
    /// What is known.
    pub state: State,
    // Held until the end: two campaigns in one folder would take each other's legs for their own.
    _lock: nix::fcntl::Flock<fs::File>,
}

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Not to be written.
    #[error("{path:?}: {source}")]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Someone else is at work.
    #[error("{0:?} is in use by another campaign; wait for it, or take another --output-dir")]
    Busy(PathBuf),
}

impl Folder {
    /// Opens or makes the folder. A state file that cannot be read is as good as none: its legs are run again.
    pub fn open(dir: &Path) -> Result<Self, FolderError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| FolderError::Io { path, source }
        };
        for part in ["", "markers", "logs", "work", "set-aside"] {
            let path = dir.join(part);
            fs::create_dir_all(&path).map_err(failed(&path))?;
        }
        let path = dir.join("work/lock");
        let lock = fs::File::create(&path).map_err(failed(&path))?;
        let lock = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusiveNonblock)
            .map_err(|_| FolderError::Busy(dir.to_path_buf()))?;
        let state =
            fs::read(dir.join("campaign.state.json")).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let state = state.filter(|state: &State| state.version == VERSION);
        let state = state.unwrap_or_else(|| State { version: VERSION, ..State::default() });
        Ok(Self { dir: dir.to_path_buf(), state, _lock: lock })
    }

    /// Where a leg stands.
    pub fn leg_file(&self, leg: &Leg) -> PathBuf {
        self.dir.join(format!("{}.json", leg.label()))
    }

    /// Writes the state.
    pub fn save(&self) -> io::Result<()> {
        let file = WholeFile::create(&self.dir.join("campaign.state.json"))?;
        serde_json::to_writer_pretty(file.handle(), &self.state)?;
        file.commit()
    }

    /// Leaves the marker of a phase.
    pub fn mark(&self, phase: &str, words: &str) -> io::Result<()> {
        let file = WholeFile::create(&self.dir.join("markers").join(phase))?;
        writeln!(file.handle(), "{words}")?;
        file.commit()
    }

    /// Adds a line to the results, which later runs only add to.
    pub fn note(&self, words: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(self.dir.join("results.txt"))?;
        writeln!(file, "RESULT {words}")
    }

    /// Whether a leg is recorded for this question; seconds that it took.
    pub fn trusted(&self, leg: &Leg, fingerprint: &str, campaign: &Campaign) -> Option<f64> {
        let recorded = self.state.legs.get(&leg.label()).filter(|recorded| recorded.fingerprint == fingerprint)?;
        let bytes = fs::read(self.leg_file(leg)).ok()?;
        let good = digest(&bytes) == recorded.sha256 && judge(&bytes, leg, campaign).is_ok();
        good.then_some(recorded.seconds)
    }

    /// Takes what stands in a leg's place out of the report's sight.
    pub fn set_aside(&self, leg: &Leg) -> io::Result<()> {
        let from = self.leg_file(leg);
        if !from.exists() {
            return Ok(());
        }
        let free = (1..10_000_u32)
            .map(|n| self.dir.join("set-aside").join(format!("{}.{n}", leg.label())))
            .find(|to| !to.exists());
        free.map_or(Ok(()), |to| fs::rename(from, to))
    }

    /// Judges a leg that the client has written beside its place, and puts it there or aside.
    pub fn record(
        &mut self,
        leg: &Leg,
        written: &Path,
        fingerprint: &str,
        seconds: f64,
        campaign: &Campaign,
    ) -> Result<(), String> {
        let bytes = fs::read(written).map_err(|error| format!("no leg file ({error})"))?;
        let verdict = judge(&bytes, leg, campaign);
        let moved = fs::rename(written, self.leg_file(leg)).map_err(|error| error.to_string());
        if let Err(reason) = verdict {
            moved.and_then(|()| self.set_aside(leg).map_err(|error| error.to_string()))?;
            return Err(reason);
        }
        moved?;
        let recorded = Recorded { fingerprint: fingerprint.to_owned(), sha256: digest(&bytes), seconds };
        self.state.legs.insert(leg.label(), recorded);
        self.save().map_err(|error| format!("state file: {error}"))
    }

    /// What the probe of an arm decided for this question.
    pub fn probe(&self, arm: &str, fingerprint: &str) -> Option<bool> {
        self.state.probes.get(arm).filter(|decision| decision.fingerprint == fingerprint).map(|d| d.fell_back)
    }

    /// Notes what the probe decided.
    pub fn decide(&mut self, arm: &str, fingerprint: &str, fell_back: bool) -> io::Result<()> {
        self.state.probes.insert(arm.to_owned(), Decision { fingerprint: fingerprint.to_owned(), fell_back });
        self.save()
    }

    /// Checks a pinned file; one that is unchanged since its digest was right is not read again.
    pub fn check_pin(&mut self, path: &Path, sha256: &str) -> Result<(), String> {
        let meta = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let modified = meta.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let seen = Hashed {
            sha256: sha256.to_owned(),
            bytes: meta.len(),
            modified_ns: modified.map_or(0, |at| at.as_nanos()),
        };
        if self.state.pins.get(path) == Some(&seen) {
            return Ok(());
        }
        let found = file_digest(path).map_err(|error| format!("{}: {error}", path.display()))?;
        if found != sha256 {
            return Err(format!("{}: sha256 is {found}, not {sha256}", path.display()));
        }
        self.state.pins.insert(path.to_path_buf(), seen);
        self.save().map_err(|error| format!("state file: {error}"))
    }
}

/// Lower-case hex of the SHA-256.
pub fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The same of a file of any size.
pub fn file_digest(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut file = io::BufReader::with_capacity(1 << 20, fs::File::open(path)?);
    loop {
        let chunk = io::BufRead::fill_buf(&mut file)?;
        if chunk.is_empty() {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(chunk);
        let used = chunk.len();
        io::BufRead::consume(&mut file, used);
    }
}

/// Whether a leg file may be trusted. The original took one success of 128 for a recorded leg; that is not enough.
pub fn judge(bytes: &[u8], leg: &Leg, campaign: &Campaign) -> Result<(), String> {
    let file: Value = serde_json::from_slice(bytes).map_err(|error| format!("the leg file is damaged ({error})"))?;
    let summary = &file["summary"];
    let wanted = u64::from(campaign.client.num_prompts);
    let is_ours = summary["leg"] == leg.label()
        && summary["arm"] == leg.arm_name
        && summary["round"] == leg.round
        && summary["concurrency"] == leg.rung
        && summary["measured_requests"] == wanted;
    if !is_ours || !file["records"].is_array() {
        return Err("the leg file is of another leg".to_owned());
    }
    let headline = &summary["headline_warm"];
    if let Some(error) = headline["error"].as_str() {
        return Err(error.to_owned());
    }
    let ok = headline["ok"].as_u64().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "request counts stay far below 2^52")]
    let share = ok as f64 / wanted as f64;
    if share < campaign.min_ok_share {
        return Err(format!("{ok} of {wanted} requests were answered, below min_ok_share {}", campaign.min_ok_share));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn campaign() -> Campaign {
        let value = json!({"corpus": {"file": "c"}, "client": {"num_prompts": 10}, "min_ok_share": 0.9,
            "arms": [{"name": "A", "url": "http://127.0.0.1:1"}]});
        serde_json::from_value(value).unwrap()
    }

    fn leg() -> Leg {
        Leg { arm: 0, arm_name: "A".to_owned(), round: 1, rung: 4 }
    }

    fn file(ok: u64) -> Value {
        json!({"summary": {"leg": "A-r1-c4", "arm": "A", "round": 1, "concurrency": 4, "measured_requests": 10,
            "headline_warm": {"ok": ok, "requests": 10}}, "records": []})
    }

    #[test]
    fn only_a_good_leg_of_this_question_is_trusted() {
        let judged = |file: &Value| judge(file.to_string().as_bytes(), &leg(), &campaign());
        assert_eq!(judged(&file(9)), Ok(()));
        assert!(judged(&file(8)).unwrap_err().contains("8 of 10"));
        let mut other = file(10);
        other["summary"]["concurrency"] = json!(8);
        assert!(judged(&other).is_err());
        let mut unpublishable = file(10);
        unpublishable["summary"]["headline_warm"] =
            json!({"ok": 10, "error": "a request reported no usage token count"});
        assert!(judged(&unpublishable).unwrap_err().contains("usage"));
        let whole = file(10).to_string();
        assert!(judge(&whole.as_bytes()[..whole.len() - 1], &leg(), &campaign()).unwrap_err().contains("damaged"));
    }

    #[test]
    fn a_rerun_trusts_what_is_unchanged_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (campaign, leg) = (campaign(), leg());
        let mut folder = Folder::open(dir.path()).unwrap();
        assert!(matches!(Folder::open(dir.path()), Err(FolderError::Busy(_))));
        let written = dir.path().join("work/x.json");
        fs::write(&written, file(10).to_string()).unwrap();
        assert_eq!(folder.record(&leg, &written, "f", 3.0, &campaign), Ok(()));
        drop(folder);
        let folder = Folder::open(dir.path()).unwrap();
        assert_eq!(folder.trusted(&leg, "f", &campaign), Some(3.0));
        assert_eq!(folder.trusted(&leg, "g", &campaign), None, "another question");
        fs::write(folder.leg_file(&leg), file(9).to_string()).unwrap();
        assert_eq!(folder.trusted(&leg, "f", &campaign), None, "other bytes, however good");
        folder.set_aside(&leg).unwrap();
        assert!(!folder.leg_file(&leg).exists() && dir.path().join("set-aside/A-r1-c4.1").exists());
        drop(folder);
        fs::write(dir.path().join("campaign.state.json"), "{").unwrap();
        assert_eq!(Folder::open(dir.path()).unwrap().trusted(&leg, "f", &campaign), None);
    }

    #[test]
    fn a_bad_leg_is_set_aside_and_not_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(dir.path()).unwrap();
        let written = dir.path().join("work/x.json");
        fs::write(&written, file(1).to_string()).unwrap();
        assert!(folder.record(&leg(), &written, "f", 3.0, &campaign()).is_err());
        assert!(!folder.leg_file(&leg()).exists() && dir.path().join("set-aside/A-r1-c4.1").exists());
        assert!(folder.record(&leg(), &written, "f", 3.0, &campaign()).unwrap_err().contains("no leg file"));
    }

    #[test]
    fn pins_are_hashed_once_until_they_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights");
        fs::write(&path, "abc").unwrap();
        let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let mut folder = Folder::open(&dir.path().join("out")).unwrap();
        assert_eq!(folder.check_pin(&path, right), Ok(()));
        assert!(folder.check_pin(&path, &"0".repeat(64)).unwrap_err().contains(right));
        fs::write(&path, "abcd").unwrap();
        assert!(folder.check_pin(&path, right).is_err(), "changed since");
        assert!(folder.check_pin(&dir.path().join("none"), right).is_err());
    }
}
