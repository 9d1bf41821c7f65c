//! The programs as tests start them: from `dist/` where `tests/run` says so, otherwise built once per test binary.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `agent`.
pub fn agent() -> PathBuf {
    folder().join("agent")
}

/// `controller`.
pub fn controller() -> PathBuf {
    folder().join("controller")
}

/// The stand-in engine.
pub fn tokenspeed() -> PathBuf {
    folder().join("tokenspeed")
}

/// Where they all lie.
///
/// # Panics
/// When they cannot be built: nothing can be tested then.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(dist) = std::env::var_os("TS_TEST_DIST") {
            return dist.into();
        }
        // Two up from target/debug/deps/<test>.
        let own = std::env::current_exe().unwrap_or_default();
        let folder = own.parent().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--quiet", "--package", "agent", "--package", "controller", "--package", "tests", "--bins"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(status.is_ok_and(|status| status.success()), "the programs cannot be built");
        folder
    })
}
