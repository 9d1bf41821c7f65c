//! The docker and podman runtimes: exact queries by label and name, removal by id (contract G.5; failure scenarios
//! FS-09 to FS-15).

use std::time::Duration;

use futures_util::future::BoxFuture;
use proto::names::RunToken;

use super::cli::Cli;
use super::runtime::{Look, RemoveAnswer, Runtime};

/// Label that ties a container to its trial.
pub const LABEL_TOKEN: &str = "ts-bench.run-token";

/// One line per container: id, names, state, our token.
const FORMAT: &str = "{{.ID}}\t{{.Names}}\t{{.State}}\t{{.Label \"ts-bench.run-token\"}}";

/// A trial's container behind a client program.
#[derive(Debug, Clone)]
pub struct Container {
    cli: Cli,
    name: String,
    token: RunToken,
}

/// One line of a listing.
#[derive(Debug, PartialEq, Eq)]
struct Listed<'a> {
    id: &'a str,
    names: &'a str,
    state: &'a str,
    token: &'a str,
}

fn listed(line: &str) -> Option<Listed<'_>> {
    let mut fields = line.split('\t');
    Some(Listed {
        id: fields.next().filter(|id| !id.is_empty())?,
        names: fields.next()?,
        state: fields.next()?,
        token: fields.next().unwrap_or_default(),
    })
}

impl Listed<'_> {
    /// A container may have several names; the filter matches parts of them (FS-15).
    fn is_called(&self, name: &str) -> bool {
        self.names.split(',').any(|n| n.trim().trim_start_matches('/') == name)
    }

    /// `created` and `exited` hold no process and no GPU; every other word may.
    fn is_running(&self) -> bool {
        let state = self.state.to_ascii_lowercase();
        !["created", "configured", "exited", "dead", "removing", "stopped"].contains(&state.as_str())
    }
}

/// What two listings say together: the one by label finds ours under any name, the one by name finds strangers.
fn verdict(by_label: &str, by_name: &str, name: &str, token: &str) -> Look {
    let ours = by_label.lines().chain(by_name.lines()).filter_map(listed).find(|c| c.token == token);
    if let Some(c) = ours {
        return Look::Ours { id: c.id.to_owned(), running: c.is_running() };
    }
    match by_name.lines().filter_map(listed).find(|c| c.is_called(name)) {
        Some(c) => Look::Foreign { id: c.id.to_owned() },
        None => Look::Absent,
    }
}

/// What an answer to `rm -f` means.
fn remove_answer(code: Option<i32>, stderr: &str) -> RemoveAnswer {
    let stderr_lower = stderr.to_ascii_lowercase();
    if stderr_lower.contains("is already in progress") {
        return RemoveAnswer::InProgress;
    }
    if stderr_lower.contains("no such container") || stderr_lower.contains("no container with") {
        return RemoveAnswer::NoSuch;
    }
    if code == Some(0) {
        return RemoveAnswer::Accepted;
    }
    let words = if stderr.is_empty() { "(no stderr)" } else { stderr };
    RemoveAnswer::Failed { code, words: words.to_owned() }
}

impl Container {
    /// The container of a trial.
    pub const fn new(cli: Cli, name: String, token: RunToken) -> Self {
        Self { cli, name, token }
    }

    async fn listing(&self, filter: String, limit: Duration) -> Result<String, String> {
        let args = ["ps", "-a", "--no-trunc", "--filter", &filter, "--format", FORMAT];
        match self.cli.call(&args, limit).await {
            Ok(answer) if answer.is_ok() => Ok(answer.stdout),
            Ok(answer) => Err(format!("exit {:?}: {}", answer.code, answer.words())),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Runtime for Container {
    fn look(&self, limit: Duration) -> BoxFuture<'_, Look> {
        Box::pin(async move {
            let by_label = self.listing(format!("label={LABEL_TOKEN}={}", self.token), limit);
            // A name filter is a regular expression over parts: anchored, escaped, and compared again.
            let by_name = self.listing(format!("name=^/?{}$", self.name.replace('.', "\\.")), limit);
            match tokio::join!(by_label, by_name) {
                (Ok(by_label), Ok(by_name)) => verdict(&by_label, &by_name, &self.name, self.token.as_str()),
                (Err(why), _) | (_, Err(why)) => Look::Unknown { why },
            }
        })
    }

    fn remove<'a>(&'a self, id: Option<&'a str>, limit: Duration) -> BoxFuture<'a, RemoveAnswer> {
        Box::pin(async move {
            let target = id.unwrap_or(&self.name);
            match self.cli.call(&["rm", "-f", target], limit).await {
                Ok(answer) => {
                    // Some clients say it on stdout.
                    let words = if answer.stderr.is_empty() { &answer.stdout } else { &answer.stderr };
                    remove_answer(answer.code, words)
                }
                Err(error) => RemoveAnswer::Failed { code: None, words: error.to_string() },
            }
        })
    }

    fn by_hand(&self) -> String {
        format!("{} rm -f {}", self.cli.program().display(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_by_label_foreign_by_name_fs11_fs15() {
        let look = |by_label: &str, by_name: &str| verdict(by_label, by_name, "t-1", "7-1");
        assert_eq!(look("", ""), Look::Absent);
        assert_eq!(look("", "id\tt-10\trunning\t7-10\n"), Look::Absent);
        assert_eq!(look("", "id\tt-1\trunning\t\n"), Look::Foreign { id: "id".into() });
        assert_eq!(look("", "id\tt-1\trunning\t7-2\n"), Look::Foreign { id: "id".into() });
        let ours = |running| Look::Ours { id: "id".into(), running };
        assert_eq!(look("id\tt-1\trunning\t7-1\n", "id\tt-1\trunning\t7-1\n"), ours(true));
        assert_eq!(look("id\trenamed\texited\t7-1\n", "x\tt-1\trunning\t\n"), ours(false));
        assert_eq!(look("id\tt-1\tCreated\t7-1", ""), ours(false));
    }

    /// FS-10.
    #[test]
    fn words_of_a_removal() {
        let progress = "Error response from daemon: removal of container t-1 is already in progress";
        assert_eq!(remove_answer(Some(1), progress), RemoveAnswer::InProgress);
        assert_eq!(remove_answer(Some(0), "Error: No such container: t-1"), RemoveAnswer::NoSuch);
        assert_eq!(remove_answer(Some(0), "t-1"), RemoveAnswer::Accepted);
        let refused = RemoveAnswer::Failed { code: Some(1), words: "Cannot connect to the Docker daemon".into() };
        assert_eq!(remove_answer(Some(1), "Cannot connect to the Docker daemon"), refused);
    }
}
