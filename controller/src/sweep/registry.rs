//! Mitigations and environments by name: AORTA's built-in ones, and sidecar files (integration notes, section 5).

use std::collections::BTreeMap;

/// The built-in mitigations: name, and the variable it sets.
pub const MITIGATIONS: [(&str, Option<(&str, &str)>); 22] = [
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

/// What a mitigation sets.
pub type Bundle = BTreeMap<String, String>;

/// A registered environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Container image, if it names one.
    pub docker: Option<String>,
    /// What it sets.
    pub env: BTreeMap<String, String>,
}
