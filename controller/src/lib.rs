//! The host side: validates a trial before a GPU is touched, runs it, reaps it, audits its exports without
//! believing the agent, gates, reports.

pub mod agent_link;
pub mod baseline;
pub mod campaign;
pub mod cli;
pub mod cmd;
pub mod config;
pub mod corpus;
pub mod error;
pub mod launch;
pub mod report;
pub mod result;
pub mod run;
pub mod schemas;
pub mod stats;
pub mod sweep;
pub mod watch;
pub mod whole_file;
