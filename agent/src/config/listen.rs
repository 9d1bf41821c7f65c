//! Where the status stream and the metrics listen: `unix:PATH`, `tcp://IP:PORT`, `off` (design section 5).

use std::net::SocketAddr;
use std::path::PathBuf;

/// An address of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere.
    Off,
    /// The default socket below the output directory.
    Default,
    /// A unix socket by path.
    Unix(PathBuf),
    /// TCP; an address literal, since nothing is resolved here.
    Tcp(SocketAddr),
}

impl Listen {
    /// Reads the syntax; the error is what is wrong with it.
    pub fn parse(value: &str) -> Result<Self, String> {
        if value == "off" {
            return Ok(Self::Off);
        }
        if let Some(path) = value.strip_prefix("unix:") {
            if path.is_empty() || path.len() > proto::names::SOCKET_PATH_MAX {
                return Err(format!(
                    "names a socket path of {} bytes, must be 1 to {}",
                    path.len(),
                    proto::names::SOCKET_PATH_MAX
                ));
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let Some(address) = value.strip_prefix("tcp://") else {
            return Err(format!("must be unix:PATH, tcp://IP:PORT or off, got '{value}'"));
        };
        address.parse().map(Self::Tcp).map_err(|_| format!("must name an IP address and a port, got '{value}'"))
    }

    /// Whether others on the network could reach it.
    pub fn is_beyond_loopback(&self) -> bool {
        match self {
            Self::Tcp(address) => !address.ip().is_loopback(),
            Self::Off | Self::Default | Self::Unix(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax() {
        assert_eq!(Listen::parse("off"), Ok(Listen::Off));
        assert_eq!(Listen::parse("unix:/x/a.sock"), Ok(Listen::Unix("/x/a.sock".into())));
        assert!(!Listen::parse("tcp://127.0.0.1:9000").unwrap().is_beyond_loopback());
        assert!(!Listen::parse("tcp://[::1]:9000").unwrap().is_beyond_loopback());
        assert!(Listen::parse("tcp://0.0.0.0:9000").unwrap().is_beyond_loopback());
        for bad in ["OFF", "unix:", "tcp://localhost:1", "tcp://127.0.0.1", "127.0.0.1:1", "http://127.0.0.1:1"] {
            assert!(Listen::parse(bad).is_err(), "{bad}");
        }
        assert!(Listen::parse(&format!("unix:/{}", "a".repeat(107))).is_err());
    }
}
