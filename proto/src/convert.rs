//! Wire <-> domain.
