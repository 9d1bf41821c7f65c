//! What a leg is asked to do, parsed into types once: target, profile, endpoint, arrivals.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::load::arrival::Arrivals;
use crate::load::export::ExportPlan;
use crate::load::making::Making;

/// How strictly the client reads, and when it opens connections (design section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// The published client to the letter: a connection per request, line reader, its record fields.
    Variadic,
    /// WHATWG event streams, connections opened before the window and kept, outcome classes.
    Strict,
}

impl Profile {
    /// Its name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Variadic => "variadic",
            Self::Strict => "strict",
        }
    }
}

/// Which of the two completion calls is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

impl Endpoint {
    /// Its name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
        }
    }

    /// Its path below the base.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
        }
    }
}

/// A server, resolved without asking anybody: static glibc's resolver would load the image's libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Addresses to try, in order.
    pub addresses: Vec<SocketAddr>,
    /// Value of the `Host` header.
    pub host_header: String,
    /// Path of the base URL, without a final slash.
    pub base_path: String,
}

/// A URL or `--resolve` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    /// TLS is not built in.
    #[error("--url {0:?}: https is not supported; use http, or a local TLS-terminating proxy")]
    Https(String),
    /// Not `http://...`.
    #[error("--url {0:?} must be http://HOST[:PORT][/PATH]")]
    NotHttp(String),
    /// User, query or fragment.
    #[error("--url {url:?}: {part} is not supported; give http://HOST[:PORT][/PATH]")]
    Part {
        /// As given.
        url: String,
        /// Which part.
        part: &'static str,
    },
    /// No usable port.
    #[error("--url {0:?}: the port must be 1 to 65535")]
    Port(String),
    /// A name that only a resolver would know.
    #[error("--url: host {0:?} is a name; give an IP address or localhost, or --resolve {0}:IP")]
    Name(String),
    /// Not HOST:IP.
    #[error("--resolve {0:?} must be HOST:IP")]
    Resolve(String),
}

impl Target {
    /// Parses a base URL; `resolve` holds `HOST:IP` entries.
    pub fn parse(url: &str, resolve: &[String]) -> Result<Self, BadTarget> {
        let bad = || BadTarget::NotHttp(url.to_owned());
        let (scheme, rest) = url.split_once("://").ok_or_else(bad)?;
        if scheme.eq_ignore_ascii_case("https") {
            return Err(BadTarget::Https(url.to_owned()));
        }
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(bad());
        }
        for (mark, part) in [('?', "a query"), ('#', "a fragment"), ('@', "a user name")] {
            if rest.contains(mark) {
                return Err(BadTarget::Part { url: url.to_owned(), part });
            }
        }
        if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(bad());
        }
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, after) = v6.split_once(']').ok_or_else(bad)?;
                (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or_else(bad)?) })
            }
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            None => 80,
            Some(port) => port.parse().ok().filter(|p: &u16| *p != 0).ok_or_else(|| BadTarget::Port(url.to_owned()))?,
        };
        let addresses: Vec<IpAddr> = match host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) if host.is_empty() => return Err(bad()),
            Err(_) => named(host, resolve)?,
        };
        Ok(Self {
            addresses: addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
            host_header: authority.to_owned(),
            base_path: path.trim_end_matches('/').to_owned(),
        })
    }
}

fn named(host: &str, resolve: &[String]) -> Result<Vec<IpAddr>, BadTarget> {
    for entry in resolve {
        let bad = || BadTarget::Resolve(entry.clone());
        let (name, ip) = entry.split_once(':').ok_or_else(bad)?;
        let ip = ip.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| bad())?;
        if name.eq_ignore_ascii_case(host) {
            return Ok(vec![ip]);
        }
    }
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
    }
    Err(BadTarget::Name(host.to_owned()))
}

/// Sampling fields of the request body.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// `temperature`
    pub temperature: f64,
    /// `top_p`
    pub top_p: f64,
    /// `top_k`
    pub top_k: i64,
    /// `seed`, the same in every request.
    pub seed: i64,
}

/// What the requests of a leg say.
#[derive(Debug, Clone)]
pub struct Ask {
    /// `model`
    pub model: String,
    /// Which call.
    pub endpoint: Endpoint,
    /// `max_tokens`, where a prompt does not bring its own.
    pub max_tokens: u64,
    /// Sampling; `None` leaves it to the server.
    pub sampling: Option<Sampling>,
    /// Sends `ignore_eos`.
    pub ignore_eos: bool,
    /// Merged into the body last; may override any field.
    pub extra_body: Map<String, Value>,
    /// More request headers.
    pub headers: Vec<(String, String)>,
    /// Front of each measured request's `x-request-id`; the index follows.
    pub request_id_prefix: Option<String>,
}

/// Where prompts come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompts {
    /// A corpus file.
    File(PathBuf),
    /// Made by another process before anything is sent.
    Made(Making),
}

/// One leg.
#[derive(Debug)]
pub struct Plan {
    /// As typed.
    pub url: String,
    /// Parsed.
    pub target: Target,
    /// Reading and connections.
    pub profile: Profile,
    /// The requests.
    pub ask: Ask,
    /// What is asked.
    pub prompts: Prompts,
    /// Measured requests.
    pub num_prompts: usize,
    /// As given; `None` means max(concurrency, 4).
    pub warmup: Option<usize>,
    /// Workers of the closed loop; connections opened beforehand.
    pub concurrency: usize,
    /// When requests are sent.
    pub arrivals: Arrivals,
    /// Seed of the arrival schedule.
    pub seed: u64,
    /// Most requests in flight in an open loop.
    pub max_in_flight: Option<usize>,
    /// Longest silence on a socket.
    pub timeout: Duration,
    /// Longest request.
    pub request_timeout: Option<Duration>,
    /// Names the leg in the log.
    pub label: String,
    /// Recorded only.
    pub arm: String,
    /// Recorded only.
    pub round: i64,
    /// The leg file.
    pub out: Option<PathBuf>,
    /// The export of a trial's step.
    pub export: Option<ExportPlan>,
    /// Cores to run on; empty: wherever the kernel likes.
    pub cpus: Vec<usize>,
    /// Whether the client measures its own error against a mock after the leg.
    pub calibrate: bool,
    /// Whether generated texts are kept.
    pub keep_text: bool,
}

impl Plan {
    /// Warm-up requests: at least one per worker, and never fewer than four (seed).
    pub fn warmup_requests(&self) -> usize {
        self.warmup.unwrap_or(self.concurrency.max(4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_or_refused_by_name() {
        let target = |url: &str| Target::parse(url, &["box:10.0.0.7".to_owned()]);
        let plain = target("http://127.0.0.1:8811/").unwrap();
        assert_eq!(plain.addresses, ["127.0.0.1:8811".parse().unwrap()]);
        assert_eq!((plain.host_header.as_str(), plain.base_path.as_str()), ("127.0.0.1:8811", ""));
        assert_eq!(target("http://127.0.0.1/a/b//").unwrap().base_path, "/a/b");
        assert_eq!(target("http://[::1]:9").unwrap().addresses, ["[::1]:9".parse().unwrap()]);
        assert_eq!(target("HTTP://Localhost:9").unwrap().addresses.len(), 2);
        assert_eq!(target("http://box:9").unwrap().addresses, ["10.0.0.7:9".parse().unwrap()]);
        assert_eq!(target("http://box").unwrap().addresses[0].port(), 80);
        assert!(matches!(target("https://127.0.0.1"), Err(BadTarget::Https(_))));
        assert!(matches!(target("http://example.org"), Err(BadTarget::Name(_))));
        assert!(matches!(target("http://127.0.0.1:0"), Err(BadTarget::Port(_))));
        assert!(matches!(target("http://127.0.0.1:x"), Err(BadTarget::Port(_))));
        assert!(matches!(target("http://u@127.0.0.1"), Err(BadTarget::Part { .. })));
        assert!(matches!(target("http://127.0.0.1/?q"), Err(BadTarget::Part { .. })));
        for bad in ["127.0.0.1:80", "ftp://127.0.0.1", "http://", "http://[::1", "http://127.0.0.1/a b"] {
            assert!(matches!(target(bad), Err(BadTarget::NotHttp(_))), "{bad}");
        }
        assert!(matches!(Target::parse("http://box", &["box".to_owned()]), Err(BadTarget::Resolve(_))));
    }
}
