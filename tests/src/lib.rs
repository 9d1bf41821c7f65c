//! The engine's stand-in, and what tests of more than one program share.

pub mod needs;
