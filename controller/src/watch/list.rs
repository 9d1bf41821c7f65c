//! The trials on this host, one line each: what the registry says, and the agent's own word where it answers.

use std::time::Duration;

use serde_json::{Value, json};

use super::words;
use crate::agent_link::{Client, Target};
use crate::run::identity::Life;
use crate::run::registry::Found;

/// Time for an agent to answer; a listing must not hang on one that does not.
const ANSWER: Duration = Duration::from_secs(2);

/// One trial of the list.
#[derive(Debug)]
pub struct Row {
    token: String,
    runtime: String,
    state: &'static str,
    doing: Option<String>,
    out_dir: String,
}

/// Asks every living trial, all at once.
pub async fn rows(trials: Vec<Found>) -> Vec<Row> {
    futures_util::future::join_all(trials.into_iter().map(row)).await
}

async fn row(found: Found) -> Row {
    let entry = found.entry;
    let state = match found.life {
        Life::Alive => "running",
        Life::Dead => "dead, its controller is gone",
        Life::Unknown => "unknown",
    };
    let asked = async {
        let mut client = Client::connect(&Target::Unix(entry.socket.clone())).await.ok()?;
        let (_, status, _) = client.status().await.ok()?;
        Some(words::headline(&status, status.at_ms))
    };
    let doing = tokio::time::timeout(ANSWER, asked).await.ok().flatten();
    let runtime = serde_json::to_value(entry.runtime).ok().and_then(|name| name.as_str().map(str::to_owned));
    Row {
        token: entry.token,
        runtime: runtime.unwrap_or_default(),
        state,
        doing,
        out_dir: entry.out_dir.display().to_string(),
    }
}

impl Row {
    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "token": self.token,
            "runtime": self.runtime,
            "state": self.state,
            "doing": self.doing,
            "out_dir": self.out_dir,
        })
    }

    /// For people.
    pub fn line(&self) -> String {
        let doing = self.doing.as_deref().unwrap_or("the agent does not answer");
        format!("{:<24} {:<8} {}: {doing}  {}", self.token, self.runtime, self.state, self.out_dir)
    }
}
