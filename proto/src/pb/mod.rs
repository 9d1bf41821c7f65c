//! Generated; see tests.
