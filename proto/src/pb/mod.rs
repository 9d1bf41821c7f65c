//! Wire types of `proto/agent.proto`, generated and checked in, so that nobody needs protoc or a build
//! script. `tests/tests/rpc_generated.rs` compares them with the file and rewrites them on request.

/// Package `tsbench.v1`.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated"
)]
pub mod v1 {
    include!("tsbench.v1.rs");

    /// The descriptor set behind server reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!("tsbench.v1.bin");
}
