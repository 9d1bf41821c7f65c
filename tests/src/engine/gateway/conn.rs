//! One connection of the gateway: bytes in, bytes out, and the request that is being answered.

use super::stream::Stream;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

/// Unwritten bytes above which a stream waits for its client.
const BACKLOG_LIMIT: usize = 4 << 20;

/// A client's connection.
#[derive(Debug)]
pub struct Conn {
    /// The socket, non-blocking.
    pub socket: TcpStream,
    /// Bytes of requests that are not dealt with.
    pub inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// The request that is being answered.
    pub stream: Option<Stream>,
    /// Close when everything is written.
    pub closing: bool,
    /// Generation requests so far.
    pub served: u32,
}

/// What reading found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Perhaps new bytes; the client is there.
    Alive,
    /// The client has closed.
    Gone,
}

impl Conn {
    /// A new connection.
    pub fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, inbox: Vec::new(), outbox: Vec::new(), stream: None, closing: false, served: 0 })
    }

    /// Reads what is there.
    pub fn read(&mut self) -> Seen {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Seen::Gone,
                Ok(n) => {
                    self.inbox.extend_from_slice(&buffer[..n]);
                    if n < buffer.len() {
                        return Seen::Alive;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Seen::Alive,
                Err(_) => return Seen::Gone,
            }
        }
    }

    /// Writes, keeping what the socket does not take. False: the client is gone.
    pub fn write(&mut self, mut bytes: &[u8]) -> bool {
        if self.outbox.is_empty() {
            while !bytes.is_empty() {
                match self.socket.write(bytes) {
                    Ok(n) => bytes = &bytes[n..],
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return false,
                }
            }
        }
        self.outbox.extend_from_slice(bytes);
        true
    }

    /// Writes what was kept. False: the client is gone.
    pub fn flush(&mut self) -> bool {
        let kept = std::mem::take(&mut self.outbox);
        self.write(&kept)
    }

    /// Whether bytes wait for the socket.
    pub fn pending(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether so much waits that the stream has to wait too.
    pub fn clogged(&self) -> bool {
        self.outbox.len() > BACKLOG_LIMIT
    }
}
