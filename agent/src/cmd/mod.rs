//! One module per subcommand: its arguments and its `main`, nothing else.

pub mod audit;
pub mod check;
pub mod load;
pub mod run;
pub mod version;
