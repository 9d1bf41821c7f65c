//! Gateway and control port of a trial (contract F.5), and the third one that the engine's own metrics may take.

use std::net::{Ipv4Addr, TcpListener};

use crate::config::trial::PortChoice;
use crate::error::HostError;

/// Resolved; never equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Ports {
    /// OpenAI API.
    pub gateway: u16,
    /// Health and server info.
    pub control: u16,
}

/// The port that the serve extras give to the gateway's metrics, `--prometheus-port` (review finding C-02); the last one counts.
pub fn metrics_port(serve_args: &[String]) -> Option<u16> {
    const FLAG: &str = "--prometheus-port";
    let value = |(index, word): (usize, &String)| match word.split_once('=') {
        Some((FLAG, value)) => Some(value.to_owned()),
        None if word == FLAG => serve_args.get(index + 1).cloned(),
        _ => None,
    };
    serve_args.iter().enumerate().filter_map(value).next_back()?.parse().ok()
}

/// How often the kernel is asked for another port.
const TRIES: usize = 20;

/// Resolves both ports. `shares_host` says that the server binds in our network namespace: an explicit port that
/// somebody listens on is then refused. Between this check and the server's bind a port can still be taken.
pub fn resolve(choice: PortChoice, metrics: Option<u16>, shares_host: bool) -> Result<Ports, HostError> {
    for (key, port) in [("port", choice.gateway), ("control_port", choice.control)] {
        if let Some(port) = port.filter(|port| shares_host && !is_free(*port)) {
            let message = format!("{key} {port} is in use on this host");
            return Err(HostError::new(Some(key), port, message, "end whoever listens there, or write auto"));
        }
    }
    let avoid = |more: Option<u16>| -> Vec<u16> { [metrics, more].into_iter().flatten().collect() };
    let gateway = match choice.gateway {
        Some(port) => port,
        None => from_kernel("port", &avoid(choice.control))?,
    };
    let control = match choice.control {
        Some(port) => port,
        None => match gateway.checked_add(1) {
            Some(next) if Some(next) != metrics && is_free(next) => next,
            _ => from_kernel("control_port", &avoid(Some(gateway)))?,
        },
    };
    Ok(Ports { gateway, control })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// A port that the kernel chose and that is not in use here; each rejected one is held until another is found.
fn from_kernel(key: &str, avoid: &[u16]) -> Result<u16, HostError> {
    let failed = |reason: String| {
        HostError::new(Some(key), "auto", format!("no free port ({reason})"), format!("write an explicit {key}"))
    };
    let mut held = Vec::new();
    for _ in 0..TRIES {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| failed(error.to_string()))?;
        let port = listener.local_addr().map_err(|error| failed(error.to_string()))?.port();
        if !avoid.contains(&port) {
            return Ok(port);
        }
        held.push(listener);
    }
    Err(failed(format!("{TRIES} tries all gave a port that is taken here")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 210 without luck: a port that is avoided is never given out, and the search ends.
    #[test]
    fn avoided_ports_are_never_given_out() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        assert!(from_kernel("port", &all).unwrap_err().message.contains("20 tries"));
    }
}
