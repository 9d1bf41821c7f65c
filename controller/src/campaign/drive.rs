//! Runs a campaign: checks, corpus, probe, then block after block; everything it learns is on disk before the next
//! step, so that a rerun goes on where this one stopped.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::file::{Arm, Campaign, Corpus};
use super::order::{Block, Known, Leg, blocks, human};
use super::server::{Place, Server, ask};
use super::state::{Folder, digest, file_digest};
use crate::run::signals::{Stop, Stops};

/// What a server gets between SIGTERM and SIGKILL when the campaign itself is being stopped.
const HURRY: Duration = Duration::from_secs(5);

/// How a campaign ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Every leg is recorded.
    Complete,
    /// Some leg is not.
    Incomplete,
    /// By a signal; what it had started is gone.
    Stopped(Stop),
}

/// Nothing was measured, and the reason is not in the campaign file.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A pinned file differs or is not there.
    #[error("{0}")]
    Pin(String),
    /// No corpus.
    #[error("corpus: {0}")]
    Corpus(String),
    /// An arm's host name leads nowhere.
    #[error("arm {arm}: {reason}")]
    Resolve {
        /// Which.
        arm: String,
        /// Why.
        reason: String,
    },
    /// The folder cannot be written any more.
    #[error("output directory: {0}")]
    Io(#[from] io::Error),
}

/// A campaign at work.
#[derive(Debug)]
pub struct Session<'a> {
    campaign: &'a Campaign,
    folder: Folder,
    agent: PathBuf,
    corpus: PathBuf,
    corpus_sha256: String,
    /// By arm.
    addresses: Vec<SocketAddr>,
    fell_back: Vec<bool>,
    known: Known,
}

/// The order and the time budget, for people.
pub fn dry_run(campaign: &Campaign) -> String {
    let all = blocks(campaign);
    let known = Known::default();
    let mut lines = Vec::new();
    for (index, block) in all.iter().enumerate() {
        for leg in &block.legs {
            let boot = if campaign.arms[leg.arm].is_running() { "running server" } else { "boot" };
            let first = if Some(leg) == block.legs.first() { boot } else { "same boot" };
            let seconds = known.leg_estimate(leg, campaign);
            lines.push(format!("{:>3}  {:<24} {:<15} about {}", index + 1, leg.label(), first, human(seconds)));
        }
    }
    let legs: usize = all.iter().map(|block| block.legs.len()).sum();
    lines.push(format!(
        "{legs} legs, about {} as assumed ({} tok/s per stream, {} s to first token, {} s per boot)",
        human(known.remaining(&all, campaign)),
        campaign.assume.tok_s_per_stream,
        campaign.assume.ttft_sec,
        campaign.assume.boot_sec,
    ));
    lines.join("\n")
}

impl<'a> Session<'a> {
    /// Checks and prepares everything that no server is needed for.
    pub async fn prepare(campaign: &'a Campaign, folder: Folder, agent: PathBuf) -> Result<Self, HostError> {
        let mut folder = folder;
        for pin in &campaign.files {
            folder.check_pin(&pin.path, &pin.sha256).map_err(HostError::Pin)?;
        }
        folder.mark("files", &format!("{} files have the pinned sha256", campaign.files.len()))?;
        let corpus = match &campaign.corpus {
            Corpus::File(path) => path.clone(),
            Corpus::Build(build) => {
                let path = folder.dir.join("work/corpus.json");
                let request = build.request().map_err(HostError::Corpus)?;
                let manifest = folder.dir.join("corpus-manifest.json");
                crate::corpus::build(&request, &path, &manifest)
                    .map_err(|error| HostError::Corpus(error.to_string()))?;
                path
            }
        };
        let corpus_error = |error: io::Error| HostError::Corpus(format!("{}: {error}", corpus.display()));
        let corpus_sha256 = file_digest(&corpus).map_err(corpus_error)?;
        let entries = entries(&corpus).map_err(corpus_error)?;
        if entries < campaign.most_prompts() as usize {
            let needed = campaign.most_prompts();
            let words = format!("{} holds {entries} prompts, and the largest leg needs {needed}", corpus.display());
            return Err(HostError::Corpus(words));
        }
        folder.mark("corpus", &format!("{} sha256 {corpus_sha256}", corpus.display()))?;
        let mut addresses = Vec::new();
        for arm in &campaign.arms {
            let fail = |reason| HostError::Resolve { arm: arm.name.clone(), reason };
            let place = Place::parse(&arm.url).map_err(fail)?;
            addresses.push(place.resolve().await.map_err(fail)?);
        }
        let mut known = Known::default();
        for (arm, seconds) in &folder.state.boots {
            for seconds in seconds {
                known.boot(arm, *seconds);
            }
        }
        let fell_back = vec![false; campaign.arms.len()];
        Ok(Self { campaign, folder, agent, corpus, corpus_sha256, addresses, fell_back, known })
    }

    /// Runs what is not recorded yet.
    pub async fn run(mut self, stops: &mut Stops) -> Result<Ended, HostError> {
        let campaign = self.campaign;
        for arm in 0..campaign.arms.len() {
            if let Some(stop) = self.probe(arm, stops).await? {
                return Ok(Ended::Stopped(stop));
            }
        }
        let all = blocks(campaign);
        let total: usize = all.iter().map(|block| block.legs.len()).sum();
        let mut left = self.pending(&all);
        let mut done = total - left.iter().map(|block| block.legs.len()).sum::<usize>();
        if done > 0 {
            say(&format!("{done} of {total} legs are recorded already"));
        }
        let mut failed = 0;
        while !left.is_empty() {
            say(&format!("left: about {}", human(self.known.remaining(&left, campaign))));
            let block = left.remove(0);
            let legs = block.legs.len();
            match self.block(&block, (done, total), stops).await? {
                Ok(good) => failed += legs - good,
                Err(stop) => return Ok(Ended::Stopped(stop)),
            }
            done += legs;
        }
        let words = format!("{} of {total} legs recorded", total - failed);
        self.folder.mark("legs", &words)?;
        self.folder.note(&words)?;
        say(&words);
        Ok(if failed == 0 { Ended::Complete } else { Ended::Incomplete })
    }

    /// What is left of the blocks.
    fn pending(&mut self, all: &[Block]) -> Vec<Block> {
        let mut left = Vec::new();
        for block in all {
            let mut legs = Vec::new();
            for leg in &block.legs {
                match self.folder.trusted(leg, &self.fingerprint(leg), self.campaign) {
                    Some(seconds) => self.known.leg(leg, seconds),
                    None => legs.push(leg.clone()),
                }
            }
            if !legs.is_empty() {
                left.push(Block { legs });
            }
        }
        left
    }

    /// Everything that makes a leg's figures what they are, hashed.
    fn fingerprint(&self, leg: &Leg) -> String {
        let arm = &self.campaign.arms[leg.arm];
        let question = json!({
            "arm": arm, "fell_back": self.fell_back[leg.arm], "round": leg.round, "rung": leg.rung,
            "client": self.campaign.client, "corpus": self.corpus_sha256, "boot": self.campaign.boot,
            "version": env!("CARGO_PKG_VERSION"),
        });
        digest(question.to_string().as_bytes())
    }

    fn fallback(&self, arm: usize) -> BTreeMap<String, String> {
        let probe = self.campaign.arms[arm].probe.as_ref().filter(|_| self.fell_back[arm]);
        probe.map(|probe| probe.fallback_env.clone()).unwrap_or_default()
    }

    /// The draft-route probe: the server at the top rung under a small load; a failure or a dead server decides for
    /// the fallback, for all legs of the arm.
    async fn probe(&mut self, index: usize, stops: &mut Stops) -> Result<Option<Stop>, HostError> {
        let arm = &self.campaign.arms[index];
        let Some(probe) = &arm.probe else { return Ok(None) };
        let question = json!({"arm": arm, "rung": self.campaign.top_rung(), "corpus": self.corpus_sha256});
        let fingerprint = digest(question.to_string().as_bytes());
        if let Some(fell_back) = self.folder.probe(&arm.name, &fingerprint) {
            self.fell_back[index] = fell_back;
            return Ok(None);
        }
        say(&format!("probe of {} at c={}", arm.name, self.campaign.top_rung()));
        let label = format!("probe.{}", arm.name);
        let out = self.folder.dir.join("work").join(format!("{label}.leg"));
        let mut server = match self.boot(index, &label, stops).await? {
            Ok(server) => Ok(server),
            Err(Failure::Stopped(stop)) => return Ok(Some(stop)),
            Err(Failure::Reason(reason)) => Err(reason),
        };
        let mut verdict = if let Err(reason) = &server {
            Err(reason.clone())
        } else {
            let leg = Leg { arm: index, arm_name: arm.name.clone(), round: 0, rung: self.campaign.top_rung() };
            let load =
                Load { label: &label, warmup: probe.warmup, prompts: probe.num_prompts, tokens: probe.max_tokens };
            match guarded(stops, self.client(&leg, &load, &out)).await {
                Ok(verdict) => verdict,
                Err(stop) => {
                    self.halt(server.ok().flatten(), HURRY).await;
                    return Ok(Some(stop));
                }
            }
        };
        if let Ok(Some(server)) = &mut server
            && let Some(status) = server.ended()
        {
            verdict = Err(format!("the server ended under the probe ({status})"));
        }
        self.halt(server.ok().flatten(), self.grace()).await;
        self.fell_back[index] = verdict.is_err();
        let words = match &verdict {
            Ok(()) => format!("{label}: passed"),
            Err(reason) => format!("{label}: {reason}; its fallback_env is set for all legs"),
        };
        say(&words);
        self.folder.note(&words)?;
        self.folder.decide(&arm.name, &fingerprint, verdict.is_err())?;
        self.folder.mark(&label, &words)?;
        Ok(None)
    }

    /// One boot and its legs; the number of legs recorded, or the signal that ended it.
    async fn block(
        &mut self,
        block: &Block,
        (done, total): (usize, usize),
        stops: &mut Stops,
    ) -> Result<Result<usize, Stop>, HostError> {
        let Some(first) = block.legs.first() else { return Ok(Ok(0)) };
        let mut server = match self.boot(first.arm, &first.label(), stops).await? {
            Ok(server) => server,
            Err(Failure::Stopped(stop)) => return Ok(Err(stop)),
            Err(Failure::Reason(reason)) => {
                for leg in &block.legs {
                    self.fail(leg, &reason)?;
                }
                return Ok(Ok(0));
            }
        };
        let mut good = 0;
        for (index, leg) in block.legs.iter().enumerate() {
            if let Some(status) = server.as_mut().and_then(Server::ended) {
                self.fail(leg, &format!("owed: the server had ended ({status})"))?;
                continue;
            }
            let limit = server.as_ref().and_then(Server::sequence_limit).filter(|limit| *limit < leg.rung);
            if let Some(limit) = limit {
                self.fail(leg, &format!("refused: the server resolved max_num_seqs {limit}, below the rung"))?;
                continue;
            }
            say(&format!("[{}/{total}] {}", done + index + 1, leg.label()));
            self.folder.set_aside(leg)?;
            let out = self.folder.dir.join("work").join(format!("{}.leg", leg.label()));
            let warmup = self.campaign.warmup(leg.rung);
            let label = leg.label();
            let client = &self.campaign.client;
            let load = Load { label: &label, warmup, prompts: client.num_prompts, tokens: client.max_tokens };
            let started = Instant::now();
            let answered = match guarded(stops, self.client(leg, &load, &out)).await {
                Ok(answered) => answered,
                Err(stop) => {
                    self.halt(server, HURRY).await;
                    return Ok(Err(stop));
                }
            };
            let seconds = started.elapsed().as_secs_f64();
            let fingerprint = self.fingerprint(leg);
            let recorded = self.folder.record(leg, &out, &fingerprint, seconds, self.campaign);
            match answered.and(recorded) {
                Ok(()) => {
                    good += 1;
                    self.known.leg(leg, seconds);
                    self.folder.note(&format!("{label} recorded in {seconds:.1} s"))?;
                    say(&format!("[{}/{total}] {label}: recorded in {}", done + index + 1, human(seconds)));
                }
                Err(reason) => self.fail(leg, &reason)?,
            }
        }
        self.halt(server, self.grace()).await;
        if !self.campaign.arms[first.arm].is_running()
            && let Err(stop) = guarded(stops, sleep(Duration::from_secs(self.campaign.settle_sec.into()))).await
        {
            return Ok(Err(stop));
        }
        Ok(Ok(good))
    }

    fn fail(&self, leg: &Leg, reason: &str) -> io::Result<()> {
        say(&format!("{}: not recorded: {reason}", leg.label()));
        self.folder.note(&format!("{} not recorded: {reason}", leg.label()))
    }

    fn grace(&self) -> Duration {
        Duration::from_secs(self.campaign.stop_grace_sec.into())
    }

    /// Boots the arm's server, or sees that a running one answers.
    async fn boot(
        &mut self,
        index: usize,
        label: &str,
        stops: &mut Stops,
    ) -> Result<Result<Option<Server>, Failure>, HostError> {
        let arm: &Arm = &self.campaign.arms[index];
        let address = self.addresses[index];
        if arm.is_running() {
            return Ok(match guarded(stops, ask(address, &arm.ready_path)).await {
                Err(stop) => Err(Failure::Stopped(stop)),
                Ok(Some(200)) => Ok(None),
                Ok(answer) => {
                    let what = answer.map_or_else(|| "nobody answers".to_owned(), |status| format!("answers {status}"));
                    Err(Failure::Reason(format!("{}{}: {what}", arm.url, arm.ready_path)))
                }
            });
        }
        let name = format!("ts-campaign-{}-{}", std::process::id(), label.to_ascii_lowercase());
        let log = self.folder.dir.join("logs").join(format!("{label}.server.log"));
        let mut server = match Server::start(arm, &self.fallback(index), &name, &log, address).await {
            Ok(server) => server,
            Err(error) => return Ok(Err(Failure::Reason(error.to_string()))),
        };
        let limit = Duration::from_secs(self.campaign.ready_timeout_sec.into());
        match guarded(stops, server.ready(address, &arm.ready_path, limit)).await {
            Ok(Ok(took)) => {
                self.known.boot(&arm.name, took.as_secs_f64());
                self.folder.state.boots.entry(arm.name.clone()).or_default().push(took.as_secs_f64());
                self.folder.save()?;
                Ok(Ok(Some(server)))
            }
            Ok(Err(error)) => {
                self.halt(Some(server), self.grace()).await;
                Ok(Err(Failure::Reason(error.to_string())))
            }
            Err(stop) => {
                self.halt(Some(server), HURRY).await;
                Ok(Err(Failure::Stopped(stop)))
            }
        }
    }

    async fn halt(&self, server: Option<Server>, grace: Duration) {
        if let Some(server) = server
            && let Err(reason) = server.stop(grace).await
        {
            say(&reason);
            let _ = self.folder.note(&reason);
        }
    }

    /// Runs `agent load` to its end.
    async fn client(&self, leg: &Leg, load: &Load<'_>, out: &Path) -> Result<(), String> {
        let _ = std::fs::remove_file(out);
        let log = self.folder.dir.join("logs").join(format!("{}.client.log", load.label));
        let text = |error: io::Error| format!("{}: {error}", self.agent.display());
        let file = std::fs::File::create(&log).map_err(text)?;
        let mut command = Command::new(&self.agent);
        command.args(self.client_argv(leg, load, out)).stdin(Stdio::null());
        command.stdout(file.try_clone().map_err(text)?).stderr(file).kill_on_drop(true);
        // SAFETY: between fork and exec, one async-signal-safe system call.
        #[expect(unsafe_code, reason = "a load must not outlive a killed campaign")]
        unsafe {
            command.pre_exec(|| nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
        }
        let status = command.spawn().map_err(text)?.wait().await.map_err(text)?;
        if status.success() { Ok(()) } else { Err(format!("agent load ended with {status}; see {}", log.display())) }
    }

    fn client_argv(&self, leg: &Leg, load: &Load<'_>, out: &Path) -> Vec<String> {
        let arm = &self.campaign.arms[leg.arm];
        let client = &self.campaign.client;
        let pairs = [
            ("--url", arm.url.clone()),
            ("--model", arm.model.clone()),
            ("--dataset", self.corpus.display().to_string()),
            ("--num-prompts", load.prompts.to_string()),
            ("--warmup", load.warmup.to_string()),
            ("--concurrency", leg.rung.to_string()),
            ("--max-tokens", load.tokens.to_string()),
            ("--temperature", client.temperature.to_string()),
            ("--top-p", client.top_p.to_string()),
            ("--top-k", client.top_k.to_string()),
            ("--seed", client.seed.to_string()),
            ("--timeout", client.timeout_sec.to_string()),
            ("--label", load.label.to_owned()),
            ("--arm", arm.name.clone()),
            ("--round", leg.round.to_string()),
            ("--out", out.display().to_string()),
            ("--profile", client.profile.as_str().to_owned()),
        ];
        let mut argv = vec!["load".to_owned()];
        argv.extend(pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
        if let Ok(place) = Place::parse(&arm.url) {
            argv.extend(place.resolve_args(self.addresses[leg.arm]));
        }
        argv.extend(client.args.iter().cloned());
        argv
    }
}

/// The load of one client call.
struct Load<'a> {
    label: &'a str,
    warmup: u32,
    prompts: u32,
    tokens: u32,
}

/// Why there is no server.
enum Failure {
    Reason(String),
    Stopped(Stop),
}

/// A future, unless a signal comes first.
async fn guarded<T>(stops: &mut Stops, work: impl Future<Output = T>) -> Result<T, Stop> {
    tokio::select! {
        biased;
        Some(arrival) = stops.arrivals.recv() => Err(arrival.stop),
        value = work => Ok(value),
    }
}

fn say(words: &str) {
    eprintln!("campaign: {words}");
}

/// Entries of a corpus, without keeping them.
fn entries(corpus: &Path) -> io::Result<usize> {
    let file = io::BufReader::new(std::fs::File::open(corpus)?);
    let entries: Vec<serde::de::IgnoredAny> = serde_json::from_reader(file)?;
    Ok(entries.len())
}
