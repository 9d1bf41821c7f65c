//! What a test needs from the machine. A test that lacks something says so, is counted by `tests/run`, and ends.

use std::io::Write as _;
use std::path::PathBuf;

/// Records a skip: on stderr, and in the file that `tests/run` counts.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIP {test}: {why}");
    if let Some(file) = std::env::var_os("TS_TEST_SKIPS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(file)
    {
        // A lost line only makes the count smaller; the test has said it on stderr.
        let _ = writeln!(file, "{test}: {why}");
    }
}

/// Whether a Docker engine answers.
pub fn docker(test: &str) -> bool {
    let answers = std::env::var_os("TS_TEST_DOCKER").is_some()
        || std::process::Command::new("docker")
            .args(["version", "--format", "{{.Server.Version}}"])
            .output()
            .is_ok_and(|out| out.status.success());
    if !answers {
        skip(test, "no docker engine answers");
    }
    answers
}

/// Whether podman is here and can run a container of this image, which it may not where it lacks cgroups or rights.
pub fn podman(test: &str, image: &str) -> bool {
    let run = std::process::Command::new("podman")
        .args(["run", "--rm", "--network", "host", "--pull", "never", image, "/bin/tokenspeed", "version"])
        .output();
    let lacks = match run {
        Ok(out) if out.status.success() => return true,
        Ok(out) => String::from_utf8_lossy(&out.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    skip(test, &format!("podman cannot run a container here ({lacks})"));
    false
}

/// Whether agent and stand-in run in an empty image (`make build` leaves such ones in `dist/`).
pub fn static_programs(test: &str) -> bool {
    let interpreter = b"/lib64/ld-linux-x86-64.so.2\0";
    let dynamic = |program: PathBuf| {
        std::fs::read(program).is_ok_and(|bytes| bytes.windows(interpreter.len()).any(|window| window == interpreter))
    };
    let missing = dynamic(crate::programs::agent()) || dynamic(crate::programs::tokenspeed());
    if missing {
        skip(test, "agent and stand-in are not static: run through `make test`");
    }
    !missing
}

/// The folder of a Python environment that `tests/python/venv` made: from `tests/run`, or made now.
pub fn venv(test: &str, name: &str) -> Option<PathBuf> {
    let variable = format!("TS_TEST_VENV_{}", name.to_uppercase());
    if let Some(folder) = std::env::var_os(variable) {
        return Some(folder.into());
    }
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("python/venv");
    match std::process::Command::new(script).arg(name).output() {
        Ok(out) if out.status.success() => Some(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim())),
        _ => {
            skip(test, &format!("the Python environment {name:?} cannot be made"));
            None
        }
    }
}

/// Whether tests that outgrow CI are wanted (`make test-long`). Not counted as a skip: nothing is missing.
pub fn long() -> bool {
    std::env::var_os("TS_TEST_LONG").is_some()
}

/// Whether this process may change owners and uids.
pub fn root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skip(test, "needs root");
    }
    root
}
