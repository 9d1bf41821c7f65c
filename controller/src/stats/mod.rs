//! What figures can and cannot say: percentiles with their support, bootstrap intervals over requests and legs,
//! and the detector of separate groups. Pure, deterministic, shared by report and sweeps.

pub mod bootstrap;
pub mod groups;
pub mod quantile;
pub mod student;
