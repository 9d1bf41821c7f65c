//! `agent load` through a real HTTP proxy that nobody here wrote: nginx, buffering on and off.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tests::patience::until;
use tests::ports::FreePort;
use tests::processes::Guarded;
use tests::server::Server;
use tests::{needs, programs};

fn corpus(dir: &Path) {
    let items: Vec<Value> = (0..20)
        .map(|i| json!({"id": format!("S-{i:04}"), "conversations": [{"from": "human", "value": format!("w{i:04}")}]}))
        .collect();
    fs::write(dir.join("corpus.json"), json!(items).to_string()).unwrap();
}

fn nginx(dir: &Path, port: u16, upstream: &str, buffering: &str) -> Guarded {
    let config = format!(
        "daemon off;\nmaster_process off;\npid {0}/nginx.pid;\nerror_log {0}/error.log;\nevents {{}}\nhttp {{\n\
         access_log off;\nclient_body_temp_path {0}/body;\nproxy_temp_path {0}/proxy;\nfastcgi_temp_path {0}/f;\n\
         uwsgi_temp_path {0}/u;\nscgi_temp_path {0}/s;\nserver {{\nlisten 127.0.0.1:{port};\nlocation / {{\n\
         proxy_pass {upstream};\nproxy_http_version 1.1;\nproxy_set_header Connection \"\";\n\
         proxy_buffering {buffering};\n}}\n}}\n}}\n",
        dir.display()
    );
    fs::write(dir.join("nginx.conf"), config).unwrap();
    let log = fs::File::create(dir.join("nginx.log")).unwrap();
    let mut command = Command::new("nginx");
    command.args(["-p", dir.to_str().unwrap(), "-c", dir.join("nginx.conf").to_str().unwrap()]);
    let mut proxy = Guarded::spawn(command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log)).unwrap();
    until("a listening nginx", || {
        assert!(proxy.ended().is_none(), "{}", fs::read_to_string(dir.join("nginx.log")).unwrap());
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    proxy
}

fn leg(dir: &Path, url: &str, profile: &str) -> Value {
    let out = dir.join("leg.json");
    let mut command = Command::new(programs::agent());
    command.args(["load", "--url", url, "--model", "m", "--dataset", dir.join("corpus.json").to_str().unwrap()]);
    command.args(["--num-prompts", "8", "--concurrency", "4", "--max-tokens", "20", "--profile", profile]);
    command.args(["--out", out.to_str().unwrap(), "--no-calibration", "--timeout", "30"]);
    let log = fs::File::create(dir.join("client.log")).unwrap();
    let mut client = Guarded::spawn(command.stdout(log.try_clone().unwrap()).stderr(log)).unwrap();
    let status = until("the client's end", || client.ended());
    assert!(status.success(), "{}", fs::read_to_string(dir.join("client.log")).unwrap());
    serde_json::from_slice(&fs::read(out).unwrap()).unwrap()
}

#[test]
fn nginx_in_between_changes_nothing_that_is_counted() {
    if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
        return needs::skip("nginx_in_between_changes_nothing_that_is_counted", "nginx is not installed");
    }
    let script = json!({"engine": {"ttft_ms": 20, "itl_ms": 5}, "startup": {"ms": 0}});
    let server = Server::ready(&programs::tokenspeed(), &script);
    let dir = tempfile::tempdir().unwrap();
    corpus(dir.path());
    let counted = |file: &Value| -> Vec<Value> {
        let records = file["records"].as_array().unwrap();
        records.iter().map(|r| json!([r["ok"], r["total_chars"], r["n_chunks"], r["usage"]])).collect()
    };
    let direct = counted(&leg(dir.path(), &server.url(), "strict"));
    for buffering in ["on", "off"] {
        for profile in ["strict", "variadic"] {
            let port = FreePort::find();
            let _proxy = nginx(dir.path(), port.number(), &server.url(), buffering);
            let file = leg(dir.path(), &format!("http://127.0.0.1:{}", port.number()), profile);
            assert_eq!(counted(&file), direct, "buffering {buffering}, {profile}");
            assert_eq!(file["client"]["outcomes"]["measured"]["complete"], 8);
            if profile == "strict" {
                assert_eq!(file["client"]["connections"]["measured_on_ready"], 8, "{}", file["client"]);
            }
        }
    }
}
