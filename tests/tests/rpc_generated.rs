//! The checked-in wire code is what `proto/agent.proto` says; with `UPDATE=1` this test rewrites it. After a
//! change of the file: regenerate first, then follow in `proto/src/convert.rs` (this test needs a `proto` that builds).

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;

fn proto_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("proto")
}

/// Rust source and descriptor set, made with pure Rust tools.
fn generate() -> (String, Vec<u8>) {
    let compile = |source_info| {
        let mut compiler = protox::Compiler::new([proto_dir()]).unwrap();
        compiler.include_imports(true).include_source_info(source_info);
        compiler.open_file(proto_dir().join("agent.proto")).unwrap();
        compiler
    };
    let out = tempfile::tempdir().unwrap();
    let documented = compile(true).file_descriptor_set();
    tonic_prost_build::configure()
        .out_dir(out.path())
        .bytes(".tsbench.v1")
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .compile_fds(documented)
        .unwrap();
    let source = fs::read_to_string(out.path().join("tsbench.v1.rs")).unwrap();
    (source, compile(false).encode_file_descriptor_set())
}

#[test]
fn checked_in_code_is_generated() {
    let (source, descriptors) = generate();
    let pb = proto_dir().join("src/pb");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(pb.join("tsbench.v1.rs"), &source).unwrap();
        fs::write(pb.join("tsbench.v1.bin"), &descriptors).unwrap();
    }
    let same = fs::read_to_string(pb.join("tsbench.v1.rs")).unwrap() == source
        && fs::read(pb.join("tsbench.v1.bin")).unwrap() == descriptors;
    assert!(same, "proto/src/pb is not what agent.proto generates; UPDATE=1 cargo test -p tests --test rpc_generated");
    let set = prost_types::FileDescriptorSet::decode(descriptors.as_slice()).unwrap();
    assert_eq!(set.file.iter().map(prost_types::FileDescriptorProto::name).collect::<Vec<_>>(), ["agent.proto"]);
}
