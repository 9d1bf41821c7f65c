//! The one table of the agent's exit statuses (design section 2; contract section C).

use std::process::ExitCode;

use serde::Serialize;

macro_rules! table {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $reason:literal;)*) => {
        /// How `agent run` ended. Statuses of docker itself (125 to 127) and of kills are not in it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum AgentExit { $($(#[$doc])* $variant,)* }

        impl AgentExit {
            /// Every row of the table, in order of status.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The process status.
            pub const fn code(self) -> u8 {
                match self { $(Self::$variant => $code,)* }
            }

            /// The reason under which the controller files this status.
            pub const fn reason(self) -> &'static str {
                match self { $(Self::$variant => $reason,)* }
            }

            /// The row with this status; `None` for a status that the agent never ends with.
            pub const fn from_code(code: i32) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

table! {
    /// Every measured step was audited sound.
    Pass = 0, "pass";
    /// The server's leader exited before `/health` answered 200.
    ServerExitedDuringStartup = 50, "server_exited_during_startup";
    /// The readiness deadline passed.
    ReadinessTimeout = 51, "readiness_timeout";
    /// `/health_generate`, or the generate probe, found no generation.
    HealthGenerateUnhealthy = 52, "health_generate_unhealthy";
    /// The bench ended nonzero or passed its deadline, or the server exited while steps remained.
    BenchStepFailed = 53, "bench_step_failed";
    /// An export is missing, unreadable or holds values of wrong types.
    ResultJsonUnusable = 54, "result_json_unusable";
    /// `failed` is not 0, or `completed` is not what was asked for.
    ServedRequestShortfall = 55, "served_request_shortfall";
    /// Mean tokens per completion below the floor.
    RolloutOutputTooShort = 56, "rollout_output_too_short";
    /// The engine decodes greedily.
    RolloutSamplingIgnored = 57, "rollout_sampling_ignored";
    /// The engine names another sampling backend.
    RolloutSamplingBackendMismatch = 58, "rollout_sampling_backend_mismatch";
    /// A floor, several samples, and lengths that are per request.
    RolloutLengthBasisUnusable = 59, "rollout_length_basis_unusable";
    /// The engine gave no usable answer about its sampling backend.
    RolloutSamplingBackendUnverified = 60, "rollout_sampling_backend_unverified";
    /// The lease is free: nobody holds the trial any more (design section 6).
    ControllerLost = 61, "controller_lost";
    /// The environment or the arguments cannot be run as written.
    Usage = 64, "usage_error";
    /// A fault of the agent itself.
    Internal = 70, "internal_error";
    /// TERM, INT, HUP or an ordered abort.
    Aborted = 143, "aborted";
}

/// The reason under which the controller files an exit status of the container client.
///
/// Everything that is not one of the agent's named failures is `container_failed`: docker's own 125 to
/// 127, negative numbers (client killed by a signal), 143, 70 and unknown codes (contract section C).
pub const fn failure_reason(status: i32) -> &'static str {
    match AgentExit::from_code(status) {
        None | Some(AgentExit::Pass | AgentExit::Internal | AgentExit::Aborted) => CONTAINER_FAILED,
        Some(row) => row.reason(),
    }
}

/// Reason for every end of the client that is not a named failure of the agent.
pub const CONTAINER_FAILED: &str = "container_failed";

/// Exit statuses of the controller's own commands (design section 2).
pub mod controller {
    /// All good.
    pub const OK: u8 = 0;
    /// Ran, and something did not pass.
    pub const NOT_PASSED: u8 = 1;
    /// Configuration or usage error; nothing was started.
    pub const USAGE: u8 = 64;
    /// This host cannot run it; no measurement was made.
    pub const HOST: u8 = 69;
    /// A fault of the controller itself.
    pub const INTERNAL: u8 = 70;
}

/// Runs a program's whole command: a panic anywhere in it is a bug, 70, and never Rust's own 101. The hook has said why.
pub fn guarded(command: impl FnOnce() -> ExitCode) -> ExitCode {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(command));
    caught.unwrap_or_else(|_| ExitCode::from(AgentExit::Internal.code()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_70() {
        assert_eq!(AgentExit::Internal.code(), controller::INTERNAL);
        assert_eq!(guarded(|| ExitCode::from(3)), ExitCode::from(3));
        assert_eq!(guarded(|| unreachable!("on purpose")), ExitCode::from(70));
    }

    /// FS-01.
    #[test]
    fn table_is_exact_both_ways() {
        let codes: Vec<u8> = AgentExit::ALL.iter().map(|e| e.code()).collect();
        assert_eq!(codes, [0, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 64, 70, 143]);
        for row in AgentExit::ALL {
            assert_eq!(AgentExit::from_code(i32::from(row.code())), Some(*row));
        }
        for code in (-200..400).filter(|c| u8::try_from(*c).is_ok_and(|c| !codes.contains(&c)) || *c < 0 || *c > 255) {
            assert_eq!(AgentExit::from_code(code), None, "{code}");
        }
    }

    #[test]
    fn only_named_failures_keep_their_name_at_the_host() {
        for code in [-9, 1, 2, 70, 125, 126, 127, 137, 143] {
            assert_eq!(failure_reason(code), CONTAINER_FAILED, "{code}");
        }
        for code in (50..=61).chain([64]) {
            assert_ne!(failure_reason(code), CONTAINER_FAILED, "{code}");
        }
        assert_eq!(failure_reason(60), "rollout_sampling_backend_unverified");
        assert_eq!(failure_reason(61), "controller_lost");
    }
}
