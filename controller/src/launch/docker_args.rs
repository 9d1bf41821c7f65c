//! The guard over extra arguments of the container client (contract F.9, design section 4).
//!
//! They are spliced in behind ours, and the client takes the last of a repeated option: unguarded, they could rename
//! the container, redirect the exports or detach the client. Each token is parsed once, into the option it sets and
//! the value attached to it.

use super::guard::{Owned, Owner, SECRET_HINT};
use crate::config::trial::RuntimeKind;

/// Options that would displace one of ours, or take the container out of our hands, with either client.
const OWNED: &[&str] = &[
    "--name",
    "--entrypoint",
    "-v",
    "--volume",
    "--mount",
    "--env-file",
    "--network",
    "--net",
    "--user",
    "-u",
    "--ipc",
    "--shm-size",
    "--rm",
    "--device",
    "--group-add",
    "--security-opt",
    "--detach",
    "-d",
    "--log-driver",
    "--log-opt",
    "--pull",
    "--label-file",
    "--volumes-from",
    "--restart",
    "--sig-proxy",
];

/// Podman's own ways to the same ends: another container's name or root, variables by other doors, another user mapping.
const OWNED_PODMAN: &[&str] = &[
    "--replace",
    "--rootfs",
    "--pod",
    "--pod-id-file",
    "--env-host",
    "--env-merge",
    "--unsetenv",
    "--unsetenv-all",
    "--secret",
    "--userns",
    "--uidmap",
    "--gidmap",
    "--subuidname",
    "--subgidname",
    "--rmi",
    "--passwd-entry",
    "--sdnotify",
    "--init-ctr",
];

/// Options without a value: a bare word behind one of them is the image.
const SWITCHES: &[&str] = &[
    "--privileged",
    "--init",
    "--read-only",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--publish-all",
    "--interactive",
    "--tty",
    "--disable-content-trust",
    "--quiet",
];

/// Labels that begin with this are ours.
pub const LABEL_PREFIX: &str = "ts-bench.";

/// Why an argument was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An option that is ours.
    #[error("may not set {0}")]
    Option(String),
    /// A variable that is ours.
    #[error("may not set the protocol variable {0}")]
    Variable(String),
    /// A secret.
    #[error("may not carry the credential {0}")]
    Secret(String),
    /// A label that is ours.
    #[error("may not set the label {0}")]
    Label(String),
    /// A word that the client would take for the image.
    #[error("has {0:?}, which the client would take for the image")]
    Image(String),
}

impl Refusal {
    /// What to do.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Option(_) => "remove it; the workload sets this option itself, see its workload_config key",
            Self::Variable(_) => "remove it, and set the matching workload_config key",
            Self::Secret(_) => SECRET_HINT,
            Self::Label(_) => "choose a label that does not begin with ts-bench.",
            Self::Image(_) => "attach the value to its option (--option=value), or set the image key",
        }
    }
}

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token<'a> {
    /// Not an option.
    Word(&'a str),
    /// A long option and what stands behind `=`.
    Long(&'a str, Option<&'a str>),
    /// A cluster of short options: the switches in it, then possibly one that takes a value.
    Short { detaches: bool, valued: Option<(char, Option<&'a str>)> },
}

/// Reads one token by itself.
fn token(text: &str) -> Token<'_> {
    if text.starts_with("--") {
        let (option, value) = text.split_once('=').map_or((text, None), |(o, v)| (o, Some(v)));
        return Token::Long(option, value);
    }
    let Some(letters) = text.strip_prefix('-').filter(|rest| !rest.is_empty()) else { return Token::Word(text) };
    let mut detaches = false;
    for (at, letter) in letters.char_indices() {
        if !letter.is_ascii_alphabetic() {
            break;
        }
        if "evuplwmach".contains(letter) {
            let rest = &letters[at + 1..];
            let value = rest.strip_prefix('=').unwrap_or(rest);
            return Token::Short { detaches, valued: Some((letter, (!rest.is_empty()).then_some(value))) };
        }
        detaches |= letter == 'd';
    }
    Token::Short { detaches, valued: None }
}

/// Checks extra arguments of the client against everything that a trial owns.
pub fn check(args: &[String], owned: &Owned, runtime: RuntimeKind) -> Result<(), Refusal> {
    let mut words = args.iter().map(String::as_str).peekable();
    // Whether a bare word here can be the value of the option before it.
    let mut may_be_value = false;
    while let Some(text) = words.next() {
        let (long, value) = match token(text) {
            Token::Word(word) => {
                if !may_be_value || word == "-" {
                    return Err(Refusal::Image(word.to_owned()));
                }
                may_be_value = false;
                continue;
            }
            Token::Long("--", _) => return Err(Refusal::Image(text.to_owned())),
            Token::Long(option, value) => (option.to_owned(), value),
            Token::Short { detaches: true, .. } => return Err(Refusal::Option("-d".to_owned())),
            Token::Short { valued: None, .. } => {
                may_be_value = false;
                continue;
            }
            Token::Short { valued: Some((letter, value)), .. } => (format!("-{letter}"), value),
        };
        option(&long, runtime)?;
        may_be_value = value.is_none() && !SWITCHES.contains(&long.as_str());
        match long.as_str() {
            // The next token is the variable, whatever it looks like.
            "-e" | "--env" => {
                variable(value.or_else(|| words.next()), owned)?;
                may_be_value = false;
            }
            // The next token is looked at and left: contract K.192 accepts that an option there is refused.
            "-l" | "--label" => label(value.or_else(|| words.peek().copied()))?,
            _ => {}
        }
    }
    Ok(())
}

/// Stands for a value that is not shown.
pub(super) const HIDDEN: &str = "***";

/// The arguments without the values of variables.
pub(super) fn without_values(args: &[String]) -> Vec<String> {
    let mut is_value = false;
    args.iter()
        .map(|text| {
            let attached = match token(text) {
                Token::Long("--env", value) | Token::Short { valued: Some(('e', value)), .. } => Some(value),
                Token::Word(_) | Token::Long(..) | Token::Short { .. } => None,
            };
            let named = if is_value { Some(text.as_str()) } else { attached.flatten() };
            is_value = !is_value && attached == Some(None);
            let Some((_, value)) = named.and_then(|named| named.split_once('=')) else { return text.clone() };
            // The value ends its token, whatever stands before the name.
            format!("{}{HIDDEN}", &text[..text.len() - value.len()])
        })
        .collect()
}

fn option(option: &str, runtime: RuntimeKind) -> Result<(), Refusal> {
    let podman = match runtime {
        RuntimeKind::Podman => OWNED_PODMAN,
        RuntimeKind::Docker | RuntimeKind::Process => &[],
    };
    if OWNED.contains(&option) || podman.contains(&option) {
        return Err(Refusal::Option(option.to_owned()));
    }
    Ok(())
}

fn variable(value: Option<&str>, owned: &Owned) -> Result<(), Refusal> {
    let name = value.unwrap_or_default().split('=').next().unwrap_or_default();
    match owned.owner(name) {
        Some(Owner::Secret) => Err(Refusal::Secret(name.to_owned())),
        Some(Owner::Protocol) => Err(Refusal::Variable(name.to_owned())),
        // Podman expands `NAME*` to every variable of the host that begins so.
        None if name.ends_with('*') => Err(Refusal::Variable(name.to_owned())),
        None => Ok(()),
    }
}

fn label(value: Option<&str>) -> Result<(), Refusal> {
    let key = value.unwrap_or_default().split('=').next().unwrap_or_default();
    if key.starts_with(LABEL_PREFIX) { Err(Refusal::Label(key.to_owned())) } else { Ok(()) }
}
