//! HTTP clients whose failures have the status of the answer as a typed error: the crate has it in texts
//! only.

use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService, ReqwestConnector,
};

/// A store is overloaded or down: it answered with 429 or 5xx.
#[derive(Debug, thiserror::Error)]
#[error("the store answered with status {0}")]
pub(super) struct Unavailable(pub(super) u16);

/// Makes such clients.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connector;

#[derive(Debug)]
struct Client(HttpClient);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // Somebody else in this process may have been faster, with whichever provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(HttpClient::new(Client(ReqwestConnector::default().connect(options)?)))
    }
}

#[async_trait::async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.execute(request).await?;
        let status = response.status();
        if status.is_server_error() || status.as_u16() == 429 {
            return Err(HttpError::new(HttpErrorKind::Request, Unavailable(status.as_u16())));
        }
        Ok(response)
    }
}
