//! The three looks at the file system that validation takes.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use proto::env;

use super::UsageError;

/// What a shell falls back to where PATH is unset.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Creates the output directory with its parents, or accepts one that can be written.
pub fn create_out_dir(dir: &Path) -> Result<(), UsageError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.and_then(|()| writable_dir(dir)).map_err(|e| cannot_create(dir, &e))
}

/// Whether [`create_out_dir`] would succeed, as far as can be told without creating anything.
pub fn creatable(dir: &Path) -> Result<(), UsageError> {
    let nearest = dir.ancestors().find(|a| a.symlink_metadata().is_ok()).unwrap_or(Path::new("."));
    let nearest = if nearest.as_os_str().is_empty() { Path::new(".") } else { nearest };
    writable_dir(nearest).map_err(|e| cannot_create(dir, &e))
}

fn writable_dir(dir: &Path) -> io::Result<()> {
    if !dir.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    access(dir, AccessFlags::W_OK | AccessFlags::X_OK).map_err(io::Error::from)
}

fn cannot_create(dir: &Path, error: &io::Error) -> UsageError {
    UsageError::new(env::TS_OUT_DIR, format!("cannot create out dir {}: {error}", dir.display()))
        .hint("name a directory that this user can create and write")
}

/// The `tokenspeed` that PATH leads to.
pub fn find_tokenspeed(path: Option<&str>) -> Result<PathBuf, UsageError> {
    let path = path.filter(|p| !p.is_empty()).unwrap_or(DEFAULT_PATH);
    path.split(':')
        .map(|dir| Path::new(if dir.is_empty() { "." } else { dir }).join("tokenspeed"))
        .find(|file| file.is_file() && access(file, AccessFlags::X_OK).is_ok())
        .ok_or_else(|| {
            UsageError::new("PATH", "leads nowhere: 'tokenspeed' not on PATH")
                .hint("run the agent inside an image that has TokenSpeed, or put its directory first on PATH")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tokenspeed_is_an_executable_file() {
        let root = tempfile::tempdir().unwrap();
        let dir = |name: &str| {
            let dir = root.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            dir
        };
        let (folder, plain, good) = (dir("folder"), dir("plain"), dir("good"));
        std::fs::create_dir(folder.join("tokenspeed")).unwrap();
        std::fs::write(plain.join("tokenspeed"), "").unwrap();
        std::fs::write(good.join("tokenspeed"), "").unwrap();
        std::fs::set_permissions(good.join("tokenspeed"), PermissionsExt::from_mode(0o755)).unwrap();
        let path = |dirs: &[&PathBuf]| dirs.iter().map(|d| d.to_str().unwrap()).collect::<Vec<_>>().join(":");
        assert_eq!(find_tokenspeed(Some(&path(&[&folder, &plain, &good]))), Ok(good.join("tokenspeed")));
        let error = find_tokenspeed(Some(&path(&[&folder, &plain]))).unwrap_err();
        assert!(error.to_string().contains("'tokenspeed' not on PATH"));
    }

    #[test]
    fn out_dir_below_a_file_cannot_be_made() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        for judge in [create_out_dir, creatable] {
            let error = judge(&file.join("out")).unwrap_err();
            assert!(error.to_string().contains("cannot create out dir"), "{error}");
            assert!(judge(&file).is_err());
        }
        let deep = root.path().join("a/b/c");
        creatable(&deep).unwrap();
        assert!(!root.path().join("a").exists());
        create_out_dir(&deep).unwrap();
        assert!(deep.is_dir());
    }
}
