//! Contract K.5, rows 204 to 213: scratch, staging and ports on the real file system, host checks with real programs.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use super::host::{self, Client};
use super::ports::{self, Ports};
use super::{scratch, stage};
use crate::config::source::{Format, parse};
use crate::config::trial::{Place, PortChoice, RuntimeKind, Trial};
use crate::config::{Overrides, validate};

fn trial(yaml: &str) -> Trial {
    validate(parse(yaml, Format::Yaml).unwrap(), &Overrides::default()).unwrap_or_else(|e| panic!("{e}")).trial
}

fn place(work_dir: &Path) -> Place {
    trial(&format!("work_dir: {}", work_dir.display())).place
}

fn uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// A directory that somebody else may not be refused for: its own parents are the test's.
fn dir() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("root");
    (dir, path)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Changing owners needs root; says so and skips otherwise.
fn can_chown() -> bool {
    if uid() == 0 {
        return true;
    }
    eprintln!("skipped: needs root to make files of other users");
    false
}

/// FS-75.
#[test]
fn rows_204_and_205_owner_of_the_root() {
    if !can_chown() {
        return;
    }
    let (_guard, root) = dir();
    fs::create_dir(&root).unwrap();
    chown(&root, Some(4242), None).unwrap();
    // For another unprivileged user: refused, dry or not; for its owner: accepted.
    for result in [scratch::prepare(&place(&root), 4243).map(|_| ()), scratch::inspect(&place(&root), 4243)] {
        let error = result.unwrap_err();
        assert!(error.message.contains("uid 4242"), "{error}");
        assert!(
            error.message.contains("a path you own") && error.message.contains("root-owned with mode 1777"),
            "{error}"
        );
        assert_eq!(error.key.as_deref(), Some("work_dir"));
    }
    fs::create_dir(root.join("u4242")).unwrap();
    fs::set_permissions(root.join("u4242"), fs::Permissions::from_mode(0o700)).unwrap();
    chown(root.join("u4242"), Some(4242), None).unwrap();
    scratch::prepare(&place(&root), 4242).unwrap();
    // Owned by root: anybody's.
    chown(&root, Some(0), None).unwrap();
    fs::create_dir(root.join("u4243")).unwrap();
    chown(root.join("u4243"), Some(4243), None).unwrap();
    scratch::inspect(&place(&root), 4243).unwrap();
    scratch::prepare(&place(&root), 4243).unwrap();
}

/// FS-75.
#[test]
fn row_206_scratch_must_be_ours_alone() {
    let both = |root: &Path, uid: u32| {
        let (a, b) = (scratch::prepare(&place(root), uid), scratch::inspect(&place(root), uid));
        let error = a.map(|_| ()).expect_err("prepare");
        assert_eq!(Err(&error), b.as_ref(), "prepare and inspect differ");
        error.message
    };
    let own = format!("u{}", uid());
    let (_a, root) = dir();
    fs::create_dir_all(root.join("elsewhere")).unwrap();
    symlink(root.join("elsewhere"), root.join(&own)).unwrap();
    assert!(both(&root, uid()).contains("is not a directory"));
    let (_b, root) = dir();
    fs::create_dir(&root).unwrap();
    fs::write(root.join(&own), "").unwrap();
    assert!(both(&root, uid()).contains("is not a directory"));
    for (bad, shown) in [(0o770, "0770"), (0o702, "0702")] {
        let (_c, root) = dir();
        fs::create_dir_all(root.join(&own)).unwrap();
        fs::set_permissions(root.join(&own), fs::Permissions::from_mode(bad)).unwrap();
        let message = both(&root, uid());
        assert!(message.contains("group- or world-writable") && message.contains(shown), "{message}");
    }
    if can_chown() {
        let (_d, root) = dir();
        fs::create_dir_all(root.join("u4242")).unwrap();
        // Root-owned is not enough here.
        assert!(both(&root, 4242).contains("owned by uid 0, not by 4242"));
    }
}

/// FS-54, FS-73.
#[test]
fn row_207_modes() {
    let (_guard, root) = dir();
    let deep = root.join("a/b");
    let made = scratch::prepare(&place(&deep), uid()).unwrap();
    assert_eq!(mode(&deep), 0o1777);
    assert_eq!(mode(&made.dir), 0o700);
    for sub in ["bin", "datasets", "out/home/.cache", "out/triton-cache", "out/torchinductor", "hf"] {
        assert!(made.dir.join(sub).is_dir(), "{sub}");
    }
    assert_eq!((made.out, made.hf_home), (made.dir.join("out"), made.dir.join("hf")));
    let (_other, root) = dir();
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    scratch::prepare(&place(&root), uid()).unwrap();
    assert_eq!(mode(&root), 0o755);
    // Again: everything is there.
    scratch::prepare(&place(&root), uid()).unwrap();
    let left: Vec<_> =
        fs::read_dir(root.join(format!("u{}/out", uid()))).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("prob")), "{left:?}");
}

#[test]
fn a_dry_check_makes_nothing() {
    let (guard, root) = dir();
    scratch::inspect(&place(&root), uid()).unwrap();
    assert_eq!(fs::read_dir(guard.path()).unwrap().count(), 0);
    fs::write(&root, "").unwrap();
    assert!(scratch::inspect(&place(&root), uid()).unwrap_err().message.contains("is not a directory"));
    assert!(scratch::prepare(&place(&root), uid()).unwrap_err().message.contains("is not a directory"));
    let mut below = place(guard.path());
    below.work_dir = root.join("below/a/file");
    assert!(scratch::inspect(&below, uid()).is_err() && scratch::prepare(&below, uid()).is_err());
}

/// FS-75.
#[test]
fn links_inside_scratch_are_not_followed() {
    let (_guard, root) = dir();
    let made = scratch::prepare(&place(&root), uid()).unwrap();
    let elsewhere = root.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::remove_dir(&made.bin).unwrap();
    symlink(&elsewhere, &made.bin).unwrap();
    assert!(scratch::prepare(&place(&root), uid()).unwrap_err().message.contains("bin is not a directory"));
}

#[test]
fn a_named_cache_may_be_somebody_elses() {
    let (guard, root) = dir();
    let shared = guard.path().join("shared");
    let mut place = place(&root);
    place.hf_home = Some(shared.clone());
    assert_eq!(scratch::prepare(&place, uid()).unwrap().hf_home, shared);
    assert!(shared.is_dir() && !root.join(format!("u{}/hf", uid())).exists());
    place.hf_home = Some(guard.path().join("file/x"));
    fs::write(guard.path().join("file"), "").unwrap();
    let error = scratch::prepare(&place, uid()).unwrap_err();
    assert_eq!(error.key.as_deref(), Some("hf_home"));
}

/// FS-73: read-only and full file systems are named before the launch. Mounts of a thread of its own.
#[test]
fn scratch_that_cannot_be_written_is_refused_fs_73() {
    use nix::mount::{MsFlags, mount};
    if !can_chown() {
        return;
    }
    for (full, words) in [(true, "No space left on device"), (false, "Read-only file system")] {
        let made = std::thread::spawn(move || {
            let (_guard, root) = dir();
            let none: Option<&str> = None;
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            fs::create_dir(&root).unwrap();
            mount(Some("tmpfs"), &root, Some("tmpfs"), MsFlags::empty(), Some("size=4m")).unwrap();
            scratch::prepare(&place(&root), uid()).unwrap();
            if full {
                let mut filler = fs::File::create(root.join("filler")).unwrap();
                while std::io::Write::write_all(&mut filler, &[0; 4096]).is_ok() {}
            } else {
                mount(none, &root, none, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, none).unwrap();
            }
            let error = scratch::prepare(&place(&root), uid()).unwrap_err();
            nix::mount::umount2(&root, nix::mount::MntFlags::MNT_DETACH).unwrap();
            error
        });
        let error = made.join().unwrap();
        assert!(error.message.contains("u0/out is not usable"), "{error}");
        assert!(
            error.message.contains(words) || error.message.contains(if full { "ENOSPC" } else { "EROFS" }),
            "{error}"
        );
        assert_eq!(error.key.as_deref(), Some("work_dir"));
    }
}

/// A minimal ELF header with program headers of the given kinds.
fn elf(kinds: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[16] = 3;
    bytes[18] = 62;
    bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
    bytes[54] = 56;
    bytes[56] = u8::try_from(kinds.len()).unwrap();
    for kind in kinds {
        let mut header = [0; 56];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        bytes.extend(header);
    }
    bytes
}

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERP: u32 = 3;

#[test]
fn row_208_agents_go_by_their_contents() {
    let (guard, root) = dir();
    let made = scratch::prepare(&place(&root), uid()).unwrap();
    let source = guard.path().join("agent");
    fs::write(&source, elf(&[LOAD, DYNAMIC])).unwrap();
    let first = stage::stage_agent(&made, &source).unwrap();
    let inode = fs::metadata(&first.path).unwrap().ino();
    assert_eq!(stage::stage_agent(&made, &source).unwrap(), first);
    assert_eq!(fs::metadata(&first.path).unwrap().ino(), inode, "staged again");
    assert_eq!(mode(&first.path), 0o755);
    assert_eq!(first.file_name, format!("agent.{}", first.sha256));
    assert_eq!(fs::read(&first.path).unwrap(), fs::read(&source).unwrap());
    let mut other = elf(&[LOAD]);
    other.push(0);
    fs::write(&source, other).unwrap();
    let second = stage::stage_agent(&made, &source).unwrap();
    assert_ne!(second.path, first.path);
    assert_eq!(fs::read_dir(&made.bin).unwrap().count(), 2);
}

/// Review finding C-05.
#[test]
fn damaged_copies_are_repaired() {
    let (guard, root) = dir();
    let made = scratch::prepare(&place(&root), uid()).unwrap();
    let source = guard.path().join("agent");
    fs::write(&source, elf(&[LOAD])).unwrap();
    let agent = stage::stage_agent(&made, &source).unwrap();
    let sound = |what: &str| {
        let again = stage::stage_agent(&made, &source).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(fs::read(&again.path).unwrap(), fs::read(&source).unwrap(), "{what}");
        assert_eq!(mode(&again.path), 0o755, "{what}");
        assert!(fs::symlink_metadata(&again.path).unwrap().is_file(), "{what}");
        assert_eq!(fs::read_dir(&made.bin).unwrap().count(), 1, "{what}: leftovers");
    };
    fs::set_permissions(&agent.path, fs::Permissions::from_mode(0o644)).unwrap();
    sound("not executable");
    fs::write(&agent.path, "half").unwrap();
    sound("truncated");
    fs::remove_file(&agent.path).unwrap();
    symlink(&source, &agent.path).unwrap();
    sound("a link");
    fs::remove_file(&agent.path).unwrap();
    nix::unistd::mkfifo(&agent.path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    sound("a FIFO");
    if can_chown() {
        chown(&agent.path, Some(4242), None).unwrap();
        sound("another owner");
        assert_eq!(fs::metadata(&agent.path).unwrap().uid(), uid());
    }
    fs::remove_file(&agent.path).unwrap();
    fs::create_dir(&agent.path).unwrap();
    assert!(stage::stage_agent(&made, &source).unwrap_err().message.contains("a directory stands under its name"));
}

/// FS-02.
#[test]
fn agents_that_cannot_run_anywhere_are_refused() {
    let (guard, root) = dir();
    let made = scratch::prepare(&place(&root), uid()).unwrap();
    let source = guard.path().join("agent");
    for (bytes, phrase) in [
        (elf(&[LOAD, INTERP]), "is dynamically linked"),
        (b"#!/bin/sh\n".to_vec(), "is no x86_64 Linux program"),
        (elf(&[]), "is no x86_64 Linux program"),
        (elf(&[LOAD])[..66].to_vec(), "is no x86_64 Linux program"),
        (Vec::new(), "is no x86_64 Linux program"),
    ] {
        fs::write(&source, bytes).unwrap();
        let error = stage::stage_agent(&made, &source).unwrap_err();
        assert!(error.message.contains(phrase), "{error}");
        assert_eq!(error.key.as_deref(), Some("agent_path"));
    }
    assert_eq!(fs::read_dir(&made.bin).unwrap().count(), 0);
    // The real thing: this test's own program asks for an interpreter.
    let own = std::env::current_exe().unwrap();
    assert!(stage::agent_to_stage(&made.bin, &own).unwrap_err().message.contains("dynamically linked"));
    assert_eq!(stage::agent_in_place(&own).unwrap().path, own);
    fs::set_permissions(&source, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(stage::agent_in_place(&source).unwrap_err().message.contains("not executable"));
    assert!(stage::find_agent(Some(&guard.path().join("none"))).unwrap_err().message.contains("no agent binary"));
    assert!(stage::find_agent(Some(guard.path())).is_err());
}

#[test]
fn row_209_datasets_go_by_their_contents() {
    let (guard, root) = dir();
    let made = scratch::prepare(&place(&root), uid()).unwrap();
    let source = guard.path().join(format!("{}.json", "long-name-".repeat(6)));
    fs::write(&source, "[1]").unwrap();
    let mut heard = Vec::new();
    let first = stage::stage_dataset(&made, &source, &mut |done, total| heard.push((done, total))).unwrap();
    assert_eq!(heard, [(3, 3)]);
    let name = first.file_name().unwrap().to_str().unwrap();
    // The first 16 hex digits of sha256("[1]").
    assert_eq!(name, format!("{}.080a9ed428559ef6.json", "long-name-".repeat(4)));
    assert_eq!(mode(&first), 0o644);
    let inode = fs::metadata(&first).unwrap().ino();
    assert_eq!(stage::stage_dataset(&made, &source, &mut |_, _| {}).unwrap(), first);
    assert_eq!(fs::metadata(&first).unwrap().ino(), inode, "copied again");
    assert_eq!(stage::dataset_to_stage(&made.datasets, &source).unwrap(), first);
    fs::write(&source, "[2]").unwrap();
    let second = stage::stage_dataset(&made, &source, &mut |_, _| {}).unwrap();
    assert_ne!(second, first);
    assert_eq!((fs::read(&first).unwrap(), fs::read(&second).unwrap()), (b"[1]".to_vec(), b"[2]".to_vec()));
    assert_eq!(fs::read_dir(&made.datasets).unwrap().count(), 2);
    fs::remove_file(&source).unwrap();
    let error = stage::stage_dataset(&made, &source, &mut |_, _| {}).unwrap_err();
    assert!(error.message.contains("long-name") && error.key.as_deref() == Some("dataset_path"), "{error}");
}

fn choice(gateway: Option<u16>, control: Option<u16>) -> PortChoice {
    PortChoice { gateway, control }
}

#[test]
fn row_210_auto_avoids_the_explicit_control_port() {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let low: u16 = range.split_ascii_whitespace().next().unwrap().parse().unwrap();
    for offset in 0..50 {
        let explicit = low.saturating_add(offset).max(1024);
        let Ports { gateway, control } = ports::resolve(choice(None, Some(explicit)), None, false).unwrap();
        assert_eq!(control, explicit);
        assert_ne!(gateway, explicit);
    }
}

#[test]
fn rows_211_and_212_control_beside_the_gateway() {
    let Ports { control, .. } = ports::resolve(choice(Some(65535), None), None, false).unwrap();
    assert!(control != 65535 && control >= 1024, "{control}");
    // A gateway whose neighbour is free, then the same with the neighbour taken.
    let (gateway, taken) = (0..200)
        .find_map(|_| {
            let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let gateway = probe.local_addr().unwrap().port();
            let next = std::net::TcpListener::bind(("127.0.0.1", gateway.checked_add(1)?)).ok()?;
            Some((gateway, next))
        })
        .expect("a port with a free neighbour");
    let next = taken.local_addr().unwrap().port();
    let other = ports::resolve(choice(Some(gateway), None), None, false).unwrap().control;
    assert!(other != next && other != gateway);
    let error = ports::resolve(choice(Some(next), None), None, true).unwrap_err();
    assert!(error.message.contains(&format!("port {next} is in use")), "{error}");
    drop(taken);
    assert_ne!(ports::resolve(choice(Some(gateway), None), Some(next), false).unwrap().control, next);
}

#[test]
fn metrics_port_of_the_extras() {
    let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    assert_eq!(ports::metrics_port(&words(&["--prometheus-port", "9000"])), Some(9000));
    assert_eq!(ports::metrics_port(&words(&["--prometheus-port=1", "--prometheus-port=9001"])), Some(9001));
    assert_eq!(ports::metrics_port(&words(&["--prometheus-port"])), None);
    assert_eq!(ports::metrics_port(&words(&["x"])), None);
}

#[test]
fn row_213_what_is_missing_is_named() {
    let error = Client::find(&trial("container_cli: no-such-client-here")).unwrap_err();
    assert!(error.message.contains("'no-such-client-here' not on PATH"), "{error}");
    assert!(Client::find(&trial("runtime: process")).unwrap().is_none());
    let (guard, _) = dir();
    let missing = guard.path().join("kfd");
    let error = host::gpu(&trial("{}"), &missing).unwrap_err();
    assert!(error.message.contains("no accessible ROCm GPU"), "{error}");
    host::gpu(&trial("require_gpu: false"), &missing).unwrap();
    host::gpu(&trial("runtime: process"), &missing).unwrap();
    fs::write(&missing, "").unwrap();
    host::gpu(&trial("{}"), &missing).unwrap();
}

/// A client that answers as the script says.
fn client(dir: &Path, script: &str) -> Client {
    let program = dir.join("docker");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    Client { program, runtime: RuntimeKind::Docker }
}

#[tokio::test]
async fn fs_06_remote_engines_are_refused() {
    let (guard, _) = dir();
    let context = |host: &str| client(guard.path(), &format!("[ \"$1 $2\" = 'context inspect' ] && echo {host}"));
    let none = |_: &str| None;
    context("unix:///var/run/docker.sock").local(none).await.unwrap();
    for remote in ["tcp://10.0.0.1:2375", "ssh://host"] {
        let error = context(remote).local(none).await.unwrap_err();
        assert!(error.message.contains(remote) && error.message.contains("context"), "{error}");
        let error = context("unix:///x").local(|_| Some(remote.into())).await.unwrap_err();
        assert!(error.message.contains("DOCKER_HOST"), "{error}");
    }
    // The environment wins over the context, and an empty one does not count.
    context("ssh://host").local(|_| Some("unix:///x".into())).await.unwrap();
    assert!(context("ssh://host").local(|_| Some("".into())).await.is_err());
    client(guard.path(), "exit 1").local(none).await.unwrap();
}

/// FS-05.
#[tokio::test]
async fn images_are_looked_up_then_pulled() {
    let (guard, _) = dir();
    let state = guard.path().join("pulled");
    let script = format!(
        "case \"$1\" in image) [ -e {0} ] ;; pull) echo layer one; echo layer two; touch {0} ;; *) exit 9 ;; esac",
        state.display()
    );
    let client = client(guard.path(), &script);
    let error = client.provide_image(&trial("{image: x, pull: never}"), |_| {}).await.unwrap_err();
    assert!(error.message.contains("pull is never") && error.key.as_deref() == Some("image"), "{error}");
    let mut lines = Vec::new();
    client.provide_image(&trial("image: x"), |line| lines.push(line.to_owned())).await.unwrap();
    assert_eq!(lines, ["layer one", "layer two"]);
    lines.clear();
    client.provide_image(&trial("image: x"), |line| lines.push(line.to_owned())).await.unwrap();
    assert!(lines.is_empty(), "pulled again");
    client.provide_image(&trial("{image: x, pull: always}"), |line| lines.push(line.to_owned())).await.unwrap();
    assert_eq!(lines.len(), 2);
}

#[tokio::test]
async fn a_failed_pull_carries_the_daemons_words_and_a_slow_one_ends() {
    let (guard, _) = dir();
    let failing = client(guard.path(), "[ $1 = image ] && exit 1; echo 'manifest unknown' >&2; exit 1");
    let error = failing.provide_image(&trial("image: x"), |_| {}).await.unwrap_err();
    assert!(error.message.contains("manifest unknown"), "{error}");
    let slow = client(guard.path(), "[ $1 = image ] && exit 1; exec sleep 600");
    let error = slow.provide_image(&trial("{image: x, pull_timeout_sec: 1}"), |_| {}).await.unwrap_err();
    assert!(error.message.contains("pull_timeout_sec (1 s)"), "{error}");
    let silent = client(guard.path(), "echo 'Cannot connect to the Docker daemon' >&2; exit 1");
    assert!(silent.reachable().await.unwrap_err().message.contains("Cannot connect"));
}
