//! The export: the real tool's keys in the real tool's order, then whatever the script spoils.

use super::args::{BenchArgs, Output as Target};
use super::client::Output;
use super::metrics::Metrics;
use crate::engine::pyjson::{self, Py};
use crate::engine::script::{Mangle, Place, Spoil};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// The document as a dict.
pub fn document(args: &BenchArgs, model: &str, date: &str, duration: f64, m: &Metrics, outputs: &[Output]) -> Py {
    let text = |s: &str| Py::Str(s.to_owned());
    let optional = |s: Option<&str>| s.map_or(Py::None, text);
    let float = Py::Float;
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests and tokens")]
    let per_second = |n: i64| Py::Float(n as f64 / duration);
    let list = |f: &dyn Fn(&Output) -> Py| Py::List(outputs.iter().map(f).collect());
    let mut entries: Vec<(&str, Py)> = vec![
        ("date", text(date)),
        ("backend", text(args.backend.name())),
        ("label", optional(args.label.as_deref())),
        ("model_id", text(model)),
        ("tokenizer_id", text(args.tokenizer.as_deref().unwrap_or(model))),
        ("num_prompts", Py::Int(i64::try_from(args.num_prompts).unwrap_or(i64::MAX))),
        ("request_rate", if args.request_rate < f64::INFINITY { float(args.request_rate) } else { text("inf") }),
        ("burstiness", float(args.burstiness)),
        ("max_concurrency", args.max_concurrency.map_or(Py::None, Py::Int)),
        ("duration", float(duration)),
        ("completed", Py::Int(m.completed)),
        ("failed", Py::Int(m.failed)),
        ("total_input_tokens", Py::Int(m.total_input)),
        ("total_output_tokens", Py::Int(m.total_output)),
        ("request_throughput", per_second(m.completed)),
        ("request_goodput", if args.goodput.is_empty() { Py::None } else { float(m.goodput) }),
        ("output_throughput", per_second(m.total_output)),
        ("total_token_throughput", per_second(m.total_input + m.total_output)),
    ];
    if args.save_detailed {
        entries.extend([
            ("input_lens", list(&|o| Py::Int(i64::from(o.prompt_len)))),
            ("output_lens", Py::List(m.output_lens.iter().map(|n| Py::Int(*n)).collect())),
            ("ttfts", list(&|o| float(o.ttft))),
            ("itls", list(&|o| Py::List(o.itl.iter().map(|x| float(*x)).collect()))),
            ("start_times", list(&|o| float(o.start))),
            ("generated_texts", list(&|o| text(&o.text))),
            ("errors", list(&|o| text(&o.error))),
        ]);
    }
    entries.push(("max_output_tokens_per_s", float(m.max_output_tokens_per_s)));
    entries.push(("max_concurrent_requests", Py::Int(m.max_concurrent_requests)));
    let mut entries: Vec<(String, Py)> = entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    for (name, d) in m.distributions.iter().filter(|(name, _)| args.metrics.iter().any(|metric| metric == name)) {
        let mut add = |key: String, value| entries.push((key, float(value)));
        add(format!("mean_{name}_ms"), d.mean_ms());
        add(format!("median_{name}_ms"), d.percentile_ms(50.0));
        add(format!("std_{name}_ms"), d.std_ms());
        for p in &args.percentiles {
            add(format!("p{}_{name}_ms", percentile_word(*p)), d.percentile_ms(*p));
        }
    }
    Py::Dict(entries)
}

/// `99` for whole numbers, `99.9` otherwise.
pub fn percentile_word(p: f64) -> String {
    let text = pyjson::float(p);
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

/// The file that the export goes to.
pub fn file_name(args: &BenchArgs, model: &str, date: &str) -> Option<String> {
    match &args.output {
        Target::None => None,
        Target::File(file) => Some(file.clone()),
        Target::Named(directory) => {
            let label = args.label.as_deref().unwrap_or(args.backend.name());
            let rate = pyjson::float(args.request_rate).replace("Infinity", "inf");
            let concurrency = args.max_concurrency.map(|n| format!("-concurrency{n}")).unwrap_or_default();
            let last = model.rsplit('/').next().unwrap_or(model);
            let name = format!("{label}-{rate}qps{concurrency}-{last}-{date}.json");
            Some(directory.as_ref().map_or_else(|| name.clone(), |directory| format!("{directory}/{name}")))
        }
    }
}

/// Spoils the document as the script says.
pub fn spoil<'a>(document: Py, faults: impl Iterator<Item = &'a Spoil>) -> Py {
    let Py::Dict(mut entries) = document else { return document };
    for fault in faults {
        match fault {
            Spoil::Short(n) => shift(&mut entries, "completed", |completed| completed - n),
            Spoil::Failed(n) => shift(&mut entries, "failed", |_| *n),
            Spoil::Set(map) => map.iter().for_each(|(key, value)| set(&mut entries, key, value.into())),
            Spoil::SetRaw(map) => {
                for (key, text) in map {
                    set(&mut entries, key, Py::Raw(text.clone()));
                }
            }
            Spoil::Remove(keys) => entries.retain(|(key, _)| !keys.contains(key)),
            Spoil::Duplicate(map) => {
                entries.splice(0..0, map.iter().map(|(key, value)| (key.clone(), value.into())));
            }
            Spoil::Pad(bytes) => {
                set(&mut entries, "padding", Py::Str("x".repeat(usize::try_from(*bytes).unwrap_or(usize::MAX))));
            }
            Spoil::Nest(depth) => {
                let depth = usize::try_from(*depth).unwrap_or(usize::MAX);
                set(&mut entries, "nested", Py::Raw("[".repeat(depth) + &"]".repeat(depth)));
            }
        }
    }
    Py::Dict(entries)
}

fn set(entries: &mut Vec<(String, Py)>, key: &str, value: Py) {
    match entries.iter_mut().find(|(name, _)| name == key) {
        Some((_, old)) => *old = value,
        None => entries.push((key.to_owned(), value)),
    }
}

fn shift(entries: &mut [(String, Py)], key: &str, f: impl Fn(i64) -> i64) {
    for (_, value) in entries.iter_mut().filter(|(name, _)| name == key) {
        if let Py::Int(n) = value {
            *n = f(*n);
        }
    }
}

/// The bytes of the file, spoilt as the script says.
pub fn bytes<'a>(document: &Py, faults: impl Iterator<Item = &'a Mangle>) -> Vec<u8> {
    let mut bytes = document.dump().into_bytes();
    for fault in faults {
        match fault {
            Mangle::Text(text) => bytes = text.clone().into_bytes(),
            Mangle::Raw(raw) => bytes.clone_from(raw),
            Mangle::Empty => bytes.clear(),
            Mangle::Truncate(share) => {
                #[expect(
                    clippy::cast_precision_loss,
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a share of a file's length"
                )]
                let keep = (bytes.len() as f64 * share.clamp(0.0, 1.0)) as usize;
                bytes.truncate(keep);
            }
            Mangle::InvalidUtf8 => {
                // Into a key that no reader knows, so that only the encoding is wrong.
                bytes.pop();
                bytes.extend_from_slice(b", \"note\": \"\xff\xfe\"}");
            }
            Mangle::Bom => {
                bytes.splice(0..0, *b"\xef\xbb\xbf");
            }
            Mangle::Utf16 => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                bytes = [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
            }
        }
    }
    bytes
}

/// Writes the file as the real tool does (open, truncate, write: not atomic), or puts something else in its place.
pub fn write(file: &str, append: bool, bytes: &[u8], place: Option<&Place>) -> io::Result<()> {
    if place.is_some() {
        let _ = std::fs::remove_file(file);
    }
    match place {
        None => {}
        Some(Place::Nothing) => return Ok(()),
        Some(Place::Fifo) => return Ok(nix::unistd::mkfifo(file, nix::sys::stat::Mode::from_bits_truncate(0o600))?),
        Some(Place::Directory) => return std::fs::create_dir(file),
        Some(Place::Sparse(length)) => return std::fs::File::create(file)?.set_len(*length),
        Some(Place::Symlink(target)) => {
            std::os::unix::fs::symlink(target, file)?;
            if !target.is_file() {
                return Ok(());
            }
        }
    }
    let mut options = OpenOptions::new();
    options.create(true).append(append).write(!append).truncate(!append);
    let not_first = append && Path::new(file).metadata().is_ok_and(|meta| meta.len() > 0);
    let mut out = options.open(file)?;
    if not_first {
        out.write_all(b"\n")?;
    }
    out.write_all(bytes)
}
