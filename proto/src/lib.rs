//! What `agent` and `controller` must agree on, each rule in one place.
//!
//! Everything here is pure but for [`export::open`], which reads one file. The rules build without the
//! `grpc` feature and without a build script, so that they can be tested and mutated in seconds; the
//! feature adds the generated wire types ([`pb`]) and their conversion from and to the domain ([`convert`]).
//!
//! | module | rule |
//! |---|---|
//! | [`exit`] | exit statuses and the reasons they stand for (design section 2, contract section C) |
//! | [`mod@env`] | names of the `TS_*` contract, the protected set, the secrets (contract A and F.7, F.8) |
//! | [`limits`] | ranges and default values that both sides enforce (contract A.2, E.2) |
//! | [`text`] | strict spellings: unsigned integers, plain decimals (contract A.1, A.4) |
//! | [`args`] | JSON argument arrays, owned flags, the prefix rule, the drain rule (contract A.3, D) |
//! | [`names`] | names of everything a trial writes, the run token (contract B.7, design section 4) |
//! | [`marker`] | the lines the agent prints and the controller reads (contract B.6) |
//! | [`export`] | reading an export, and judging it (contract H, design section 8) |
//! | [`secret`] | what must not be shown of a child's words (design section 6) |
//! | [`stats`] | mean, deviation, percentiles (design section 8) |
//! | [`event`] | what happened, numbered: journal, stream and status page (design section 5) |
//! | [`status`] | the trial as its events leave it |
//! | [`finding`] | remarks that are not failures (design section 3) |

pub mod args;
pub mod env;
pub mod event;
pub mod exit;
pub mod export;
pub mod finding;
pub mod limits;
pub mod marker;
pub mod names;
pub mod secret;
pub mod stats;
pub mod status;
pub mod text;

#[cfg(feature = "grpc")]
pub mod convert;
#[cfg(feature = "grpc")]
pub mod fault;
#[cfg(feature = "grpc")]
pub mod pb;

/// Version of the `TS_*` contract, markers and files that this build speaks.
pub const CONTRACT_VERSION: u32 = 1;
