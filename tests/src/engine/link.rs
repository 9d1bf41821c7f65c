//! The line between the orchestrator and each child: a socket that is the child's stdin, one JSON object a line.

use super::script::Action;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// What is said over the line.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Child to orchestrator: my sockets are bound.
    Bound,
    /// Child to orchestrator: this fault is due.
    Fire(Action),
    /// Orchestrator to gateway: the worker is registered.
    Registered,
    /// Orchestrator to engine: open the control port.
    Open,
    /// Orchestrator to child: answer nothing from now on.
    Hang,
    /// Orchestrator to child: start extra processes that share your listening socket.
    Hold(super::script::Spawn),
    /// Orchestrator to child: end with this status now.
    Exit(u8),
}

/// One end of the line; reading never blocks.
#[derive(Debug)]
pub struct Link {
    socket: UnixStream,
    inbox: Vec<u8>,
    ended: bool,
}

impl Link {
    /// Takes an end over.
    pub fn new(socket: UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, inbox: Vec::new(), ended: false })
    }

    /// The child's end: its stdin.
    pub fn from_stdin() -> std::io::Result<Self> {
        let stdin = std::io::stdin();
        Self::new(UnixStream::from(stdin.as_fd().try_clone_to_owned()?))
    }

    /// A second handle for another thread.
    pub fn try_clone(&self) -> std::io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, inbox: Vec::new(), ended: false })
    }

    /// Sends; a peer that is gone is not an error worth more than silence.
    pub fn send(&mut self, message: &Message) {
        if let Ok(mut line) = serde_json::to_vec(message) {
            line.push(b'\n');
            let _ = self.socket.write_all(&line);
        }
    }

    /// All messages that have arrived.
    pub fn receive(&mut self) -> Vec<Message> {
        let mut buffer = [0; 4096];
        while !self.ended {
            match self.socket.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(n) => self.inbox.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.ended = true,
            }
        }
        let mut messages = Vec::new();
        while let Some(end) = self.inbox.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.inbox.drain(..=end).collect();
            messages.extend(serde_json::from_slice::<Message>(&line).ok());
        }
        messages
    }

    /// Whether the other side is gone: nothing will come any more.
    pub fn ended(&self) -> bool {
        self.ended
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
