//! Answers and refusals.

use axum::{
    Json,
    extract::{FromRequest, Request, rejection::JsonRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::control::{Code, ControlError};

impl IntoResponse for ControlError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self)).into_response()
    }
}

/// A body as JSON, whose errors are refusals like all others.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ControlError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ControlError> {
        let Json(value) = Json::from_request(request, state).await.map_err(|rejection: JsonRejection| {
            ControlError::new(Code::Invalid, format!("the body of the request: {}", rejection.body_text()))
        })?;
        Ok(Self(value))
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
        Ok(Err(error)) => error.into_response(),
        Err(_) => failed().into_response(),
    }
}

/// The same with an answer that is JSON already: what is long is not made where it holds others up.
pub(super) async fn answer_json<F>(act: F) -> Response
where
    F: FnOnce() -> Result<Vec<u8>, ControlError> + Send + 'static,
{
    match tokio::task::spawn_blocking(act).await {
        Ok(Ok(json)) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Ok(Err(error)) => error.into_response(),
        Err(_) => failed().into_response(),
    }
}

fn failed() -> ControlError {
    ControlError::new(Code::Daemon, "the daemon failed at this request; its log says why")
}
