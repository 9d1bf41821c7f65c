//! From text to a [`Trial`](trial::Trial): YAML or JSON, keys, coercion, cross-field rules (contract section E).

pub mod trial;
