//! Mitigations and environments by name: AORTA's built-in ones, and sidecar files (integration notes, section 5).

use std::collections::BTreeMap;
use std::path::PathBuf;

use blake2::Blake2bVar;
use blake2::digest::{Update, VariableOutput};
use serde_json::{Value, json};

use super::sidecar::{self, SidecarError};

/// The built-in mitigations: name, and the variable it sets.
const MITIGATIONS: [(&str, Option<(&str, &str)>); 22] = [
    ("none", None),
    ("tf32_off", Some(("DISABLE_TF32", "1"))),
    ("xnack", Some(("HSA_XNACK", "1"))),
    ("gpu_max_hw_queues_2", Some(("GPU_MAX_HW_QUEUES", "2"))),
    ("debug_hip_dynamic_queues_1", Some(("DEBUG_HIP_DYNAMIC_QUEUES", "1"))),
    ("debug_hip_dynamic_queues_2", Some(("DEBUG_HIP_DYNAMIC_QUEUES", "2"))),
    ("roc_aql_queue_size_1024", Some(("ROC_AQL_QUEUE_SIZE", "1024"))),
    ("hsa_no_sdma", Some(("HSA_ENABLE_SDMA", "0"))),
    ("hsa_no_scratch_reclaim", Some(("HSA_NO_SCRATCH_RECLAIM", "1"))),
    ("hsa_disable_cache", Some(("HSA_DISABLE_CACHE", "1"))),
    ("hsa_enable_cache", Some(("HSA_DISABLE_CACHE", "0"))),
    ("roc_signal_pool_16k", Some(("ROC_SIGNAL_POOL_SIZE", "16384"))),
    ("gpu_force_blit_copy_128", Some(("GPU_FORCE_BLIT_COPY_SIZE", "128"))),
    ("debug_clr_no_batch_cpu_sync", Some(("DEBUG_CLR_BATCH_CPU_SYNC_SIZE", "0"))),
    ("nccl_launch_order_implicit", Some(("NCCL_LAUNCH_ORDER_IMPLICIT", "1"))),
    ("rccl_gfx942_cheap_fence_off", Some(("RCCL_GFX942_CHEAP_FENCE_OFF", "1"))),
    ("pytorch_no_cuda_memory_caching", Some(("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"))),
    ("pytorch_alloc_expandable_segments", Some(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"))),
    ("hip_launch_blocking", Some(("HIP_LAUNCH_BLOCKING", "1"))),
    ("amd_log_level_4", Some(("AMD_LOG_LEVEL", "4"))),
    ("fa_prefer_ck", Some(("TORCH_ROCM_FA_PREFER_CK", "1"))),
    ("fa_prefer_aotriton", Some(("TORCH_ROCM_FA_PREFER_CK", "0"))),
];

/// Environments of AORTA that need what this program does not run.
const UNSUPPORTED: [(&str, &str); 2] =
    [("emulated-rocjitsu", "runs an emulator"), ("emulated-rocjitsu-dbt", "runs an emulator")];

/// Where a cell's trials run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellEnvironment {
    /// Registry name, or `_inline_<hash>`.
    pub name: String,
    docker: Option<String>,
    env: BTreeMap<String, String>,
    /// Who registered it; `None` where the recipe names an image itself.
    source: Option<String>,
}

impl CellEnvironment {
    /// An image that the recipe names itself.
    pub fn inline(image: String, env: BTreeMap<String, String>) -> Self {
        Self { name: inline_name(&image, &env), docker: Some(image), env, source: None }
    }

    /// One that has a name of its own.
    pub const fn named(name: String, docker: Option<String>, env: BTreeMap<String, String>, source: String) -> Self {
        Self { name, docker, env, source: Some(source) }
    }

    /// The image, if it names one.
    pub fn docker(&self) -> Option<&str> {
        self.docker.as_deref()
    }

    /// Variables it sets.
    pub const fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// `_aorta_environment`.
    pub fn to_config(&self) -> Value {
        json!({
            "name": self.name, "docker": self.docker, "venv": null, "buck_target": null, "emulator": null,
            "mirage_profile": null, "source_package": self.source, "env": self.env,
        })
    }

    /// `resolved_environment` of matrix.json.
    pub fn to_matrix(&self) -> Value {
        json!({
            "name": self.name, "docker": self.docker, "venv": null, "env": self.env,
            "source_package": self.source, "inline": self.source.is_none(),
        })
    }
}

/// `_inline_` and 8 hex digits over the image and, where there are any, its variables.
fn inline_name(image: &str, env: &BTreeMap<String, String>) -> String {
    let mut text = image.as_bytes().to_vec();
    if !env.is_empty() {
        text.push(0);
        text.extend(json!(env).to_string().into_bytes());
    }
    let mut digest = [0; 4];
    if let Ok(mut hasher) = Blake2bVar::new(digest.len()) {
        hasher.update(&text);
        let _ = hasher.finalize_variable(&mut digest);
    }
    format!("_inline_{:08x}", u32::from_be_bytes(digest))
}

/// Everything that a recipe may name.
#[derive(Debug, Clone)]
pub struct Registry {
    mitigations: BTreeMap<String, BTreeMap<String, String>>,
    environments: BTreeMap<String, CellEnvironment>,
}

impl Registry {
    /// AORTA's own names.
    pub fn builtin() -> Self {
        let bundle = |set: &Option<(&str, &str)>| set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let plain = |name: &str| {
            (name.to_owned(), CellEnvironment::named(name.to_owned(), None, BTreeMap::new(), "aorta".to_owned()))
        };
        Self {
            mitigations: MITIGATIONS.iter().map(|(name, set)| ((*name).to_owned(), bundle(set))).collect(),
            environments: ["local", "default"].into_iter().map(plain).collect(),
        }
    }

    /// AORTA's own names and those of sidecar files.
    pub fn with_sidecars(paths: &[PathBuf]) -> Result<Self, SidecarError> {
        let mut registry = Self::builtin();
        sidecar::add(&mut registry, paths)?;
        Ok(registry)
    }

    /// Registers a mitigation; a name that is taken is refused.
    pub(super) fn add_mitigation(&mut self, name: String, set: BTreeMap<String, String>) -> Result<(), String> {
        if self.mitigations.contains_key(&name) {
            return Err(format!("mitigations.{name} is registered already; rename it"));
        }
        self.mitigations.insert(name, set);
        Ok(())
    }

    /// Registers an environment; a name that is taken is refused.
    pub(super) fn add_environment(&mut self, environment: CellEnvironment) -> Result<(), String> {
        let name = environment.name.clone();
        if self.environments.contains_key(&name) || UNSUPPORTED.iter().any(|(taken, _)| *taken == name) {
            return Err(format!("environments.{name} is registered already; rename it"));
        }
        self.environments.insert(name, environment);
        Ok(())
    }

    /// What a mitigation sets.
    pub fn mitigation(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.mitigations.get(name)
    }

    /// Every registered mitigation.
    pub fn mitigation_names(&self) -> impl Iterator<Item = &str> {
        self.mitigations.keys().map(String::as_str)
    }

    /// An environment by name; the inner error says why it cannot be used here.
    pub fn environment(&self, name: &str) -> Option<Result<CellEnvironment, &'static str>> {
        if let Some((_, why)) = UNSUPPORTED.iter().find(|(unsupported, _)| *unsupported == name) {
            return Some(Err(why));
        }
        self.environments.get(name).cloned().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_names_are_aortas() {
        let env = BTreeMap::from([("INL".to_owned(), "y".to_owned())]);
        assert_eq!(inline_name("example/image:1", &env), "_inline_2fd0af2f");
        assert_eq!(inline_name("example/image:1", &BTreeMap::new()), "_inline_4753fcf8");
    }
}
