//! Rollout keys: refused outside the mode, checked against each other inside it (contract E.6, seed "Rollout mode").

use proto::limits::{Dataset, SamplingBackend, default};

use super::keys::ROLLOUT_ONLY;
use super::reader::Reader;
use super::trial::RolloutLoad;
use super::value::Value;

/// What the rules compare with.
pub(super) struct Context {
    pub(super) is_rollout: bool,
    pub(super) ignore_eos: bool,
    pub(super) save_detailed: bool,
    /// `None` where the key is in error.
    pub(super) dataset: Option<Dataset>,
    pub(super) output_len: u64,
}

/// Reads the mode; `None` outside it.
pub(super) fn read(r: &mut Reader<'_>, context: &Context) -> Option<RolloutLoad> {
    if !context.is_rollout {
        if r.sound(&["rollout"]) {
            for key in ROLLOUT_ONLY {
                if r.raw(key).is_some() {
                    let rule = "requires rollout: true; outside it no sampling parameter is sent";
                    r.refuse(key, rule, "set rollout: true, or remove the key");
                }
            }
        }
        return None;
    }
    let samples = r.int("rollout_samples");
    let temperature = match r.raw("temperature") {
        None => default::TEMPERATURE,
        Some(value) => r.number("temperature", value).unwrap_or(default::TEMPERATURE),
    };
    let top_p = r.raw("top_p").filter(|value| !value.is_null()).and_then(|value| r.number("top_p", value));
    let min_mean_output_tokens = r.int("min_mean_output_tokens");
    let sampling_backend = backend(r);
    if context.ignore_eos && r.sound(&["ignore_eos"]) {
        let rule = "true is incompatible with rollout: every completion would be output_len long";
        r.refuse("ignore_eos", rule, "remove the key; it is false under rollout");
    }
    floor(r, context, samples, min_mean_output_tokens);
    Some(RolloutLoad { samples, temperature, top_p, min_mean_output_tokens, sampling_backend })
}

/// Present and empty is not the default here: whoever writes the key means something by it.
fn backend(r: &mut Reader<'_>) -> SamplingBackend {
    const KEY: &str = "sampling_backend";
    let Some(value) = r.raw(KEY).filter(|value| !value.is_null()) else { return SamplingBackend::Triton };
    let parsed = value
        .as_str()
        .ok_or_else(|| format!("must be triton or triton_full, not {}", value.kind()))
        .and_then(SamplingBackend::parse);
    match parsed {
        Ok(backend) => backend,
        Err(rule) => {
            r.refuse(KEY, rule, "write triton or triton_full");
            SamplingBackend::Triton
        }
    }
}

/// Floors that no run, or no export, could satisfy.
fn floor(r: &mut Reader<'_>, context: &Context, samples: u64, floor: u64) {
    const KEY: &str = "min_mean_output_tokens";
    let output_len = context.output_len;
    if context.dataset == Some(Dataset::Random) && floor > output_len && r.sound(&[KEY, "output_len"]) {
        let given = r.raw(KEY).map_or_else(|| format!("its default {floor}"), Value::shown);
        let rule = format!(
            "cannot be satisfied by any run: {given} is above output_len {output_len}, which caps each completion"
        );
        let hint = format!("raise output_len, lower the floor to at most {output_len}, or set {KEY}: 0");
        r.refuse(KEY, rule, hint);
    }
    if samples > 1 && floor > 0 && !context.save_detailed && r.sound(&[KEY, "rollout_samples", "save_detailed"]) {
        let rule = format!(
            "false leaves no per-completion lengths, so a floor of {floor} with {samples} samples cannot be judged"
        );
        r.refuse("save_detailed", rule, format!("remove save_detailed, or set {KEY}: 0"));
    }
}
