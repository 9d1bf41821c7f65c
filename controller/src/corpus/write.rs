//! Corpus and manifest bytes (harness spec A.7), streamed and hashed on the way.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::Request;
use super::bands::Counts;
use super::plan::{L_TARGET_CHARS, Plan, XL_TARGET_CHARS, XXL_TARGET_CHARS};
use super::pyjson::{self, Value};
use super::source::{Source, Sources, hex};
use crate::whole_file::WholeFile;

/// An output file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {source}")]
pub struct WriteError {
    path: String,
    source: io::Error,
}

impl WriteError {
    fn of(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |source| Self { path: path.display().to_string(), source }
    }
}

/// Writes the corpus; returns its sha256 in lower-case hex.
pub fn corpus(sources: &Sources, plan: &Plan, path: &Path) -> Result<String, WriteError> {
    let failed = WriteError::of(path);
    let file = WholeFile::create(path).map_err(&failed)?;
    let digest = {
        let mut out = Hashing { inner: BufWriter::with_capacity(1 << 16, file.handle()), hash: Sha256::new() };
        items(sources, plan, &mut out).and_then(|()| out.flush()).map_err(&failed)?;
        hex(&out.hash.finalize())
    };
    file.commit().map_err(&failed)?;
    Ok(digest)
}

fn items(sources: &Sources, plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    let mut buffer = String::new();
    out.write_all(b"[")?;
    plan.each(sources, |position, item| {
        let (band, gap) = (item.band(), if position == 0 { "" } else { ", " });
        write!(
            out,
            r#"{gap}{{"id": "{band}-{position:04}", "band": "{band}", "conversations": [{{"from": "human", "value": ""#
        )?;
        for piece in item.pieces(sources) {
            pyjson::write_escaped(out, &mut buffer, piece)?;
        }
        out.write_all(br#""}, {"from": "gpt", "value": ""}]}"#)
    })?;
    out.write_all(b"]")
}

/// Writes a text file, whole or not at all.
pub fn text(text: &str, path: &Path) -> Result<(), WriteError> {
    let failed = WriteError::of(path);
    let file = WholeFile::create(path).map_err(&failed)?;
    file.handle().write_all(text.as_bytes()).map_err(&failed)?;
    file.commit().map_err(&failed)
}

struct Hashing<'a> {
    inner: BufWriter<&'a File>,
    hash: Sha256,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write_all(bytes)?;
        self.hash.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// What the manifest says about a corpus.
#[derive(Debug)]
pub struct Manifest<'a> {
    /// What was asked for.
    pub request: &'a Request,
    /// Prompts per band.
    pub counts: &'a Counts,
    /// Where they come from.
    pub sources: &'a Sources,
    /// What was drawn.
    pub plan: &'a Plan,
    /// Digest of the corpus file.
    pub corpus_sha256: String,
}

impl Manifest<'_> {
    /// The manifest file, without a newline at the end.
    pub fn text(&self) -> String {
        let source = |source: &Source, unit| {
            Value::Object(vec![
                ("path", Value::text(&source.path)),
                ("sha256", Value::text(&source.sha256)),
                (unit, Value::int(source.len())),
            ])
        };
        let rules = self.plan.rules;
        let realised = self.plan.realised().into_iter().map(|(band, r)| {
            let figures = vec![
                ("n", Value::int(r.n)),
                ("min", Value::int(r.min)),
                ("median", Value::int(r.median)),
                ("max", Value::int(r.max)),
                ("mean", Value::double(r.mean)),
            ];
            (band.name(), Value::Object(figures))
        });
        Value::Object(vec![
            ("generator", Value::text(&self.request.generator)),
            ("seed", Value::Number(self.request.seed.to_string())),
            ("count", Value::int(self.request.count)),
            (
                "weights",
                Value::Object(self.request.weights.iter().map(|(b, share)| (b.name(), Value::double(share))).collect()),
            ),
            ("band_counts", Value::Object(self.counts.iter().map(|(b, n)| (b.name(), Value::int(n))).collect())),
            (
                "sources",
                Value::Object(vec![
                    ("gsm8k", source(&self.sources.gsm8k, "rows")),
                    ("humaneval", source(&self.sources.humaneval, "rows")),
                    ("sonnet", source(&self.sources.sonnet, "lines")),
                ]),
            ),
            (
                "rules",
                Value::Object(vec![
                    ("L_block_lines_mid", Value::int(rules.l_mid)),
                    (
                        "L_block_lines_range",
                        Value::List(vec![Value::int(rules.l_range.0), Value::int(rules.l_range.1)]),
                    ),
                    ("L_target_chars", Value::int(L_TARGET_CHARS)),
                    ("XL_k_mid", Value::int(rules.xl_mid)),
                    ("XL_target_chars", Value::int(XL_TARGET_CHARS)),
                    ("XXL_k_mid", Value::int(rules.xxl_mid)),
                    ("XXL_target_chars", Value::int(XXL_TARGET_CHARS)),
                ]),
            ),
            ("realised_chars", Value::Object(realised.collect())),
            ("corpus_sha256", Value::text(&self.corpus_sha256)),
        ])
        .indented()
    }
}
