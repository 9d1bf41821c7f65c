//! Who listens on a port: free before the start, the server's own afterwards (failure scenarios FS-49, FS-51).

use std::collections::HashSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;

use super::tree;

/// What a look at a listening port says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listening {
    /// Nobody, or it cannot be told who: nothing to object to.
    Unknown,
    /// A process of the server's tree, on loopback only.
    Ours,
    /// A process of the server's tree, open to others.
    OursBeyondLoopback(String),
    /// Somebody else; says who.
    Stranger(String),
}

/// Whether a server could bind the port, as it would do it: with `SO_REUSEADDR`, on loopback.
pub(super) fn is_free(port: u16) -> bool {
    let loopback = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    let any = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
    // The standard library sets SO_REUSEADDR: a closed connection in TIME_WAIT is no obstacle, a listener is.
    [loopback, any].iter().all(|address| match std::net::TcpListener::bind(address) {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::AddrInUse,
    })
}

/// A listening socket of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Socket {
    port: u16,
    loopback: bool,
    uid: String,
    inode: u64,
}

/// Reads `/proc/net/tcp` or `tcp6`: only rows in state LISTEN.
fn parse_table(text: &str) -> Vec<Socket> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (address, port) = fields.get(1)?.split_once(':')?;
        let listening = *fields.get(3)? == "0A";
        let loopback = match address.len() {
            8 => address.ends_with("7F"),
            _ => {
                address == "00000000000000000000000001000000"
                    || (address.starts_with("0000000000000000FFFF0000") && address.ends_with("7F"))
            }
        };
        let uid = (*fields.get(7)?).to_owned();
        let inode = fields.get(9)?.parse().ok()?;
        listening.then_some(Socket { port: u16::from_str_radix(port, 16).ok()?, loopback, uid, inode })
    };
    text.lines().skip(1).filter_map(row).collect()
}

fn sockets(proc: &Path, port: u16) -> Vec<Socket> {
    let tables = ["net/tcp", "net/tcp6"].map(|name| fs::read_to_string(proc.join(name)).unwrap_or_default());
    tables.iter().flat_map(|text| parse_table(text)).filter(|s| s.port == port).collect()
}

/// Inodes of the sockets that a process holds; `None` where it may not be asked.
fn inodes(proc: &Path, pid: i32) -> Option<HashSet<u64>> {
    let held = fs::read_dir(proc.join(pid.to_string()).join("fd")).ok()?;
    let inode = |link: std::path::PathBuf| {
        let name = link.to_str()?;
        name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Some(held.flatten().filter_map(|fd| inode(fs::read_link(fd.path()).ok()?)).collect())
}

/// Judges who listens on `port`, given the server's group.
pub(super) fn judge(proc: &Path, all: &[tree::Process], port: u16, server: i32) -> Listening {
    let found = sockets(proc, port);
    if found.is_empty() || all.is_empty() {
        return Listening::Unknown;
    }
    let below = tree::descendants(all, server);
    let is_ours = |p: &&tree::Process| p.pid == server || p.group == server || below.contains(&p.pid);
    let mut ours = HashSet::new();
    for process in all.iter().filter(is_ours) {
        match inodes(proc, process.pid) {
            Some(held) => ours.extend(held),
            // It may have ended meanwhile, or be closed to us: then nothing can be said against it.
            None if process.is_alive() && proc.join(process.pid.to_string()).exists() => return Listening::Unknown,
            None => {}
        }
    }
    let strangers: Vec<&Socket> = found.iter().filter(|s| !ours.contains(&s.inode)).collect();
    if let Some(stranger) = strangers.first() {
        return Listening::Stranger(owner(proc, port, stranger, all));
    }
    if found.iter().all(|s| s.loopback) {
        Listening::Ours
    } else {
        Listening::OursBeyondLoopback(format!("port {port} is open to every address of this host"))
    }
}

fn owner(proc: &Path, port: u16, socket: &Socket, all: &[tree::Process]) -> String {
    let holder = all.iter().find(|p| inodes(proc, p.pid).is_some_and(|held| held.contains(&socket.inode)));
    match holder {
        Some(p) => format!("port {port} is held by process {} ({}) of uid {}", p.pid, p.name, socket.uid),
        None => format!("port {port} is held by a process of uid {} that cannot be seen from here", socket.uid),
    }
}

/// Who holds a port that is not free.
pub(super) fn holder(proc: &Path, port: u16) -> String {
    match sockets(proc, port).first() {
        Some(socket) => owner(proc, port, socket, &tree::all(proc)),
        None => format!("port {port} is in use"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn tables_of_both_families() {
        let v4 = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 555 1\n\
                  1: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 556 1\n\
                  2: 0100007F:1F92 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 557 1\n";
        let rows = parse_table(v4);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].port, rows[0].loopback, rows[0].inode), (8080, true, 555));
        assert_eq!((rows[1].port, rows[1].loopback), (8081, false));
        let v6 = "header\n\
                  0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 1 1\n\
                  1: 00000000000000000000000001000000:1F91 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 2 1\n\
                  2: 0000000000000000FFFF00000100007F:1F92 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 3 1\n";
        assert_eq!(parse_table(v6).iter().map(|s| s.loopback).collect::<Vec<_>>(), [false, true, true]);
    }

    /// FS-49, FS-51.
    #[test]
    fn a_real_listener_is_found_and_judged() {
        let proc = Path::new("/proc");
        let judge = |proc: &Path, port, server| judge(proc, &tree::all(proc), port, server);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!is_free(port));
        assert_eq!(judge(proc, port, own), Listening::Ours);
        // For a server that does not exist, this test is the stranger.
        let Listening::Stranger(who) = judge(proc, port, 4_194_305) else { panic!("not seen as a stranger") };
        assert!(who.contains(&format!("process {own} ")), "{who}");
        let open = TcpListener::bind("0.0.0.0:0").unwrap();
        let open_port = open.local_addr().unwrap().port();
        assert!(matches!(judge(proc, open_port, own), Listening::OursBeyondLoopback(_)));
        drop(listener);
        assert_eq!(judge(proc, port, own), Listening::Unknown);
        assert_eq!(judge(Path::new("/nonexistent"), open_port, own), Listening::Unknown);
    }
}
