//! The door: every request carries the secret where there is one, and `GET /metrics` is answered on the same
//! port over plain HTTP. Health and reflection are behind it too (FS-53).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use hyper::http::{HeaderMap, Method, Request, Response, StatusCode};
use proto::fault::Fault;
use sha2::{Digest, Sha256};
use tonic::body::Body;
use tonic::service::Routes;

use super::metrics;
use super::service::Shared;

/// SHA-256 of the secret: the secret itself is not kept, and digests are compared in constant time.
#[derive(Clone)]
pub(super) struct Secret([u8; 32]);

impl Secret {
    pub(super) fn new(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    fn opens(&self, headers: &HeaderMap) -> bool {
        let Some(given) = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer ")) else {
            return false;
        };
        let given: [u8; 32] = Sha256::digest(given).into();
        // No early end: the time does not tell how much was right.
        self.0.iter().zip(given).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

/// The routes behind the door.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) routes: Routes,
    pub(super) shared: Arc<Shared>,
    pub(super) secret: Option<Secret>,
}

impl tonic::codegen::Service<Request<Body>> for Gate {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        tonic::codegen::Service::<Request<Body>>::poll_ready(&mut self.routes, cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let plain = request.method() == Method::GET;
        if self.secret.as_ref().is_some_and(|secret| !secret.opens(request.headers())) {
            tracing::warn!(
                path = request.uri().path(),
                "a call to the status service without the right token was refused"
            );
            return Box::pin(std::future::ready(Ok(refusal(plain))));
        }
        if plain {
            let answer = match request.uri().path() {
                "/metrics" => page(StatusCode::OK, metrics::CONTENT_TYPE, metrics::render(&self.shared)),
                _ => page(StatusCode::NOT_FOUND, TEXT, "only /metrics is here; the rest is gRPC\n".into()),
            };
            return Box::pin(std::future::ready(Ok(answer)));
        }
        Box::pin(tonic::codegen::Service::call(&mut self.routes, request))
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

fn page(status: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(Bytes::from(text))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::http::HeaderValue::from_static(content_type));
    response
}

fn refusal(plain: bool) -> Response<Body> {
    let remedy = "send the trial's TS_GRPC_TOKEN as `authorization: Bearer <token>`";
    if plain {
        let mut response = page(StatusCode::UNAUTHORIZED, TEXT, format!("{remedy}\n"));
        response.headers_mut().insert(WWW_AUTHENTICATE, hyper::http::HeaderValue::from_static("Bearer"));
        return response;
    }
    let fault = Fault::new(tonic::Code::Unauthenticated, "bad_token", "the call carries no valid token", remedy);
    tonic::Status::from(fault).into_http()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::http::HeaderValue;

    /// FS-53.
    #[test]
    fn only_the_exact_secret_opens() {
        let secret = Secret::new("s3cret");
        let opens = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            secret.opens(&headers)
        };
        assert!(opens("Bearer s3cret"));
        for wrong in ["Bearer s3cre", "Bearer s3cret ", "bearer s3cret", "s3cret", "Bearer ", "Basic s3cret", ""] {
            assert!(!opens(wrong), "{wrong}");
        }
        assert!(!secret.opens(&HeaderMap::new()));
    }
}
