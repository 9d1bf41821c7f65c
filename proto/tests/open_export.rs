//! Opening exports that somebody else wrote: only regular files, no link, no wait, no end-less file.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use proto::export::{Audit, Bad, Expectation, Layer, MAX_BYTES, OpenError, audit, open, open_at};
use proto::limits::Dataset;

const PLAIN: Expectation =
    Expectation { num_prompts: 1, dataset: Dataset::Random, output_len: 1, ignore_eos: true, rollout: None };

#[track_caller]
fn not_regular(result: Result<File, OpenError>, kind: &str) {
    match result {
        Err(OpenError::NotRegular(seen)) => assert_eq!(seen, kind),
        other => panic!("{other:?}"),
    }
}

/// FS-67, FS-68.
#[test]
fn only_regular_files() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let pinned = File::open(dir.path()).unwrap();
    fs::write(at("export"), "{}").unwrap();
    symlink("export", at("link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();

    for opened in [open(&at("export")), open_at(&pinned, "export")] {
        let mut text = String::new();
        opened.unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "{}");
    }
    for (name, kind) in [
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
        ("directory", "a directory"),
        ("fifo", "a FIFO"),
        ("socket", "a socket or a device"),
    ] {
        not_regular(open(&at(name)), kind);
        not_regular(open_at(&pinned, name), kind);
    }
    not_regular(open("/dev/null".as_ref()), "a device");
    assert!(matches!(open(&at("none")), Err(OpenError::Missing)));
    assert!(matches!(open_at(&pinned, "none"), Err(OpenError::Missing)));
    assert!(matches!(open(&at("export").join("x")), Err(OpenError::Io(_))));
    for path in ["../export", "/etc/hostname", "directory/x"] {
        assert!(matches!(open_at(&pinned, path), Err(OpenError::Io(_))), "{path}");
    }
    // The pinned directory stays the one it was.
    let moved = dir.path().with_extension("moved");
    fs::rename(dir.path(), &moved).unwrap();
    assert!(open_at(&pinned, "export").is_ok());
    fs::rename(&moved, dir.path()).unwrap();
}

/// FS-68.
#[test]
fn a_fifo_with_a_writer_is_no_export() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let _both_ends = OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_NONBLOCK).open(&path).unwrap();
    not_regular(open(&path), "a FIFO");
}

/// FS-65.
#[test]
fn a_sparse_terabyte_ends_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("export");
    let file = File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    let started = Instant::now();
    match audit(&path, &PLAIN, Layer::Agent) {
        Audit { export: None, verdict: Err(bad @ Bad::Open(OpenError::TooLarge { bytes })) } => {
            assert_eq!((bytes, bad.exit().code()), (1 << 40, 54));
            assert!(bad.to_string().contains("1099511627776 bytes, more than the 17179869184"), "{bad}");
            assert!(bad.hint().contains("output-file"), "{}", bad.hint());
        }
        other => panic!("{other:?}"),
    }
    file.set_len(MAX_BYTES).unwrap();
    assert!(open(&path).is_ok(), "the largest size that is read");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn unreadable_is_said_in_the_systems_words() {
    let dir = tempfile::tempdir().unwrap();
    let missing = audit(&dir.path().join("none"), &PLAIN, Layer::Host);
    assert_eq!(missing.verdict.unwrap_err().to_string(), "no such file");
    let broken = dir.path().join("broken");
    fs::write(&broken, "{\"completed\": 1").unwrap();
    let verdict = audit(&broken, &PLAIN, Layer::Host).verdict.unwrap_err();
    assert_eq!(verdict.to_string(), "the file ends inside an object or an array at byte 15");
    assert_eq!(verdict.exit().code(), 54);
}
