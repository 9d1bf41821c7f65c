//! From text to a [`Trial`](trial::Trial): YAML or JSON, keys, coercion, cross-field rules (contract section E).

pub mod json;
pub mod scalar;
pub mod trial;
pub mod value;
pub mod yaml;
