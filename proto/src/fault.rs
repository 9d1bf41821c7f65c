//! Errors of the status service: a canonical code, words that name the remedy, and machine-readable details
//! in the standard place (google.rpc.Status in `grpc-status-details-bin`), which stock clients read.

use prost::Message;

use crate::pb::v1::ErrorDetail;

/// One refused or broken call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {remedy}")]
pub struct Fault {
    /// Canonical code.
    pub code: tonic::Code,
    /// What happened, with the value.
    pub message: String,
    /// Stable name.
    pub reason: String,
    /// Field of the request, or empty.
    pub field: String,
    /// What to do about it.
    pub remedy: String,
}

/// google.rpc.Status, as far as it is needed.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// google.protobuf.Any.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

const TYPE_URL: &str = "type.googleapis.com/tsbench.v1.ErrorDetail";

impl Fault {
    /// A fault that no single field is to blame for.
    pub fn new(code: tonic::Code, reason: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code, message: message.into(), reason: reason.into(), field: String::new(), remedy: remedy.into() }
    }

    /// Names the field at fault.
    #[must_use]
    pub fn field(mut self, field: &str) -> Self {
        field.clone_into(&mut self.field);
        self
    }

    /// Reads the details of an error back; `None` where there are none of ours.
    pub fn from_status(status: &tonic::Status) -> Option<Self> {
        let details = RpcStatus::decode(status.details()).ok()?.details;
        let any = details.into_iter().find(|any| any.type_url == TYPE_URL)?;
        let ErrorDetail { reason, field, remedy } = ErrorDetail::decode(any.value.as_slice()).ok()?;
        let message = status.message().strip_suffix(&format!("; {remedy}")).unwrap_or(status.message()).to_owned();
        Some(Self { code: status.code(), message, reason, field, remedy })
    }
}

impl From<Fault> for tonic::Status {
    fn from(fault: Fault) -> Self {
        let text = fault.to_string();
        let detail = ErrorDetail { reason: fault.reason, field: fault.field, remedy: fault.remedy };
        let status = RpcStatus {
            code: fault.code as i32,
            message: text.clone(),
            details: vec![Any { type_url: TYPE_URL.into(), value: detail.encode_to_vec() }],
        };
        Self::with_details(fault.code, text, status.encode_to_vec().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_survive_the_wire() {
        let fault =
            Fault::new(tonic::Code::NotFound, "no_such_log", "no log of step 3", "wait for its start").field("step");
        let status = tonic::Status::from(fault.clone());
        assert_eq!(status.message(), "no log of step 3; wait for its start");
        assert_eq!(Fault::from_status(&status), Some(fault));
        assert_eq!(Fault::from_status(&tonic::Status::internal("x")), None);
    }
}
