//! One module per subcommand: its arguments and its `main`, nothing else.

pub mod audit;
pub mod baseline;
pub mod campaign;
pub mod completions;
pub mod corpus;
pub mod explain;
pub mod reap;
pub mod report;
pub mod run;
pub mod schema;
pub mod sweep;
pub mod watch;
