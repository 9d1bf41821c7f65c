//! One libFuzzer program for all targets; `TS_FUZZ_TARGET` names the one that runs (see `tests/fuzz/run`).

#![no_main]

mod targets;

use std::sync::LazyLock;

static TARGET: LazyLock<targets::Target> = LazyLock::new(|| {
    let name = std::env::var("TS_FUZZ_TARGET").unwrap_or_default();
    let found = targets::ALL.iter().find(|(target, _)| *target == name);
    found.map_or_else(|| panic!("TS_FUZZ_TARGET={name}: no such target"), |(_, target)| *target)
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (*TARGET)(data));
