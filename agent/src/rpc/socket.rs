//! Binding: modes without a race, stale sockets, paths too long for a socket address, and what is unlinked
//! at the end.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::sys::stat::Mode;
use proto::names::SOCKET_PATH_MAX;

use super::Address;

/// An address that could not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The system refused.
    #[error("cannot listen on {address}: {source}")]
    System {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Somebody answers there.
    #[error("cannot listen on {0}: another process answers there")]
    InUse(String),
    /// Something that is no socket of ours lies there.
    #[error("cannot listen on {0}: something that is not a socket is there; remove it")]
    Occupied(String),
    /// No short place to be had.
    #[error("cannot listen on {0}: the path has more than {SOCKET_PATH_MAX} bytes and no temporary folder is shorter")]
    TooLong(String),
    /// No thread to be had.
    #[error("cannot start the status thread: {0}")]
    Thread(io::Error),
}

/// A listening socket, not yet in a runtime.
#[derive(Debug)]
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// What was bound; dropping it removes what binding left in the file system.
#[derive(Debug)]
pub(super) enum Bound {
    Unix(Socket),
    /// Short path of a socket, and the link that stands in its place.
    Linked {
        socket: Socket,
        folder: PathBuf,
        link: PathBuf,
    },
    Tcp(SocketAddr),
}

/// A socket of ours in the file system.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    /// The socket's inode, held open so that its number is not given to another.
    inode: File,
}

impl Bound {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Unix(socket) => format!("unix:{}", socket.path.display()),
            Self::Linked { socket, link, .. } => format!(
                "unix:{} (the path {} is too long for a socket address; a link to the socket stands there)",
                socket.path.display(),
                link.display()
            ),
            Self::Tcp(address) => format!("tcp://{address}"),
        }
    }

    pub(super) const fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) | Self::Linked { .. } => None,
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Only what is still ours: a later agent may have taken the name.
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        let ours = self.inode.metadata().ok().map(identity);
        if ours.is_some() && fs::symlink_metadata(&self.path).ok().map(identity) == ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        match self {
            Self::Linked { socket, folder, link } => {
                if fs::read_link(&*link).is_ok_and(|target| target == socket.path) {
                    let _ = fs::remove_file(link);
                }
                let _ = fs::remove_file(&socket.path);
                let _ = fs::remove_dir(folder);
            }
            Self::Unix(_) | Self::Tcp(_) => {}
        }
    }
}

/// Listens on an address.
pub(super) fn bind(address: &Address) -> Result<(Bound, Listener), BindError> {
    match address {
        Address::Tcp(address) => {
            let failed = |source| BindError::System { address: format!("tcp://{address}"), source };
            let listener = TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let bound = listener.local_addr().map_err(failed)?;
            Ok((Bound::Tcp(bound), Listener::Tcp(listener)))
        }
        Address::Unix(path) => {
            let name = || format!("unix:{}", path.display());
            let failed = |source| BindError::System { address: name(), source };
            clear(path)?;
            if path.as_os_str().len() <= SOCKET_PATH_MAX {
                let (socket, listener) = bind_unix(path).map_err(failed)?;
                return Ok((Bound::Unix(socket), Listener::Unix(listener)));
            }
            let folder = short_folder().ok_or_else(|| BindError::TooLong(name()))?;
            let bound = bind_unix(&folder.join("s")).and_then(|(socket, listener)| {
                symlink(&socket.path, path)?;
                Ok((socket, listener))
            });
            match bound {
                Ok((socket, listener)) => {
                    Ok((Bound::Linked { socket, folder, link: path.clone() }, Listener::Unix(listener)))
                }
                Err(source) => {
                    let _ = fs::remove_dir(folder);
                    Err(failed(source))
                }
            }
        }
    }
}

/// Removes what an earlier agent left at this path; refuses to remove anything else.
fn clear(path: &Path) -> Result<(), BindError> {
    let name = || format!("unix:{}", path.display());
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() && !found.file_type().is_symlink() {
        return Err(BindError::Occupied(name()));
    }
    if path.as_os_str().len() <= SOCKET_PATH_MAX && UnixStream::connect(path).is_ok() {
        return Err(BindError::InUse(name()));
    }
    fs::remove_file(path).map_err(|source| BindError::System { address: name(), source })
}

/// A socket with mode 0600 from its first moment, whatever the umask (FS-54): the mode is set before the
/// name exists, and once more for umasks that took the owner's bits away.
fn bind_unix(path: &Path) -> io::Result<(Socket, UnixListener)> {
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = nix::sys::socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    nix::sys::stat::fchmod(&socket, mode)?;
    nix::sys::socket::bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &UnixAddr::new(path)?)?;
    let inode = File::options().read(true).custom_flags(nix::libc::O_PATH | nix::libc::O_NOFOLLOW).open(path)?;
    let bound = Socket { path: path.to_owned(), inode };
    fs::set_permissions(path, Permissions::from_mode(mode.bits()))?;
    nix::sys::socket::listen(&socket, Backlog::new(128)?)?;
    Ok((bound, UnixListener::from(socket)))
}

/// A new private folder whose name is short.
fn short_folder() -> Option<PathBuf> {
    let roots = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/dev/shm"), PathBuf::from("/")];
    roots.into_iter().find_map(|root| {
        (0..16).find_map(|n| {
            let folder = root.join(format!("ts-agent.{}.{n}", std::process::id()));
            let short = folder.as_os_str().len() + "/s".len() <= SOCKET_PATH_MAX;
            (short && DirBuilder::new().mode(0o700).create(&folder).is_ok()).then_some(folder)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &Path) -> Address {
        Address::Unix(path.to_owned())
    }

    /// FS-54.
    #[test]
    fn mode_is_0600_and_the_end_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let (bound, _listener) = bind(&unix(&path)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(matches!(bind(&unix(&path)), Err(BindError::InUse(_))));
        drop(bound);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        drop(UnixListener::bind(&path).unwrap());
        let (bound, _listener) = bind(&unix(&path)).unwrap();
        drop(bound);
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&unix(&path)), Err(BindError::Occupied(_))));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    /// FS-55.
    #[test]
    fn a_long_path_gets_a_short_socket_and_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120));
        fs::create_dir(&deep).unwrap();
        let path = deep.join("agent.7-1.sock");
        let (bound, _listener) = bind(&unix(&path)).unwrap();
        let short = fs::read_link(&path).unwrap();
        assert!(bound.describe().contains(short.to_str().unwrap()), "{}", bound.describe());
        assert!(UnixStream::connect(&short).is_ok());
        drop(bound);
        assert!(fs::symlink_metadata(&path).is_err() && !short.parent().unwrap().exists());
    }

    #[test]
    fn a_successor_keeps_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let (first, listener) = bind(&unix(&path)).unwrap();
        drop(listener);
        let (_second, _listener) = bind(&unix(&path)).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
