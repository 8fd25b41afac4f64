//! Answers and refusals.

use std::time::Duration;

use axum::{
    Json,
    extract::{FromRequest, Request, rejection::JsonRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Serialize, de::DeserializeOwned};

use api::{Code, ControlError};

/// How long a client may take for the body of a request.
const BODY_TIME: Duration = Duration::from_secs(10);

/// The answer to a request that is refused.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) ControlError);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(error) = self;
        let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(error)).into_response()
    }
}

/// A body as JSON, whose errors are refusals like all others.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let refuse =
            |why: &str| Refusal(ControlError::new(Code::Invalid, format!("the body of the request: {why}")));
        match tokio::time::timeout(BODY_TIME, Json::from_request(request, state)).await {
            Ok(Ok(Json(value))) => Ok(Self(value)),
            Ok(Err(rejection)) => Err(refuse(&JsonRejection::body_text(&rejection))),
            Err(_) => Err(refuse(&format!("it did not come within {} s", BODY_TIME.as_secs()))),
        }
    }
}

/// Does something that takes its time where it holds nobody up.
pub(super) async fn answer<T, F>(act: F) -> Response
where
    T: Serialize + Send + 'static,
    F: FnOnce() -> Result<T, ControlError> + Send + 'static,
{
    match tokio::task::spawn_blocking(act).await {
        Ok(Ok(value)) => Json(value).into_response(),
        Ok(Err(error)) => Refusal(error).into_response(),
        Err(_) => Refusal(failed()).into_response(),
    }
}

/// The same with an answer that is JSON already: what is long is not made where it holds others up.
pub(super) async fn answer_json<F>(act: F) -> Response
where
    F: FnOnce() -> Result<Vec<u8>, ControlError> + Send + 'static,
{
    match tokio::task::spawn_blocking(act).await {
        Ok(Ok(json)) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Ok(Err(error)) => Refusal(error).into_response(),
        Err(_) => Refusal(failed()).into_response(),
    }
}

fn failed() -> ControlError {
    ControlError::new(Code::Daemon, "the daemon failed at this request; its log says why")
}
