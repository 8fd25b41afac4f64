//! What monitoring systems ask for: metrics, and whether the daemon is alive and ready; on the control
//! socket, and over TCP for whoever can connect.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};

use super::answers::Refusal;
use crate::metrics;
use crate::metrics::{OPEN_METRICS, PROMETHEUS};
use crate::monitor::Monitor;
use crate::peer::Peer;
use crate::registry::log;
use api::requests::Health;
use api::{Code, ControlError};

/// Connections over TCP at a time; others are closed.
const CONNECTIONS_MAX: usize = 32;
/// How long a connection over TCP may take for the head of a request, and altogether.
const HEAD_TIME: Duration = Duration::from_secs(10);
const CONNECTION_TIME: Duration = Duration::from_mins(1);
/// How often it is looked where metrics are to be served.
const LOOK: Duration = Duration::from_secs(1);
/// After how long an address that is not free is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// What is asked for over TCP.
fn router(monitor: Arc<Monitor>) -> Router {
    Router::new()
        .route("/metrics", get(all_metrics))
        .route("/live", get(live))
        .route("/ready", get(ready))
        .layer(Extension(monitor))
}

pub(super) async fn get_metrics(
    Extension(monitor): Extension<Arc<Monitor>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    told(monitor, (!peer.is_root()).then_some(peer.uid), &headers).await
}

pub(super) async fn get_health(Extension(monitor): Extension<Arc<Monitor>>) -> Response {
    health(monitor, |_| true).await
}

pub(super) async fn live(Extension(monitor): Extension<Arc<Monitor>>) -> Response {
    health(monitor, |health| health.live).await
}

pub(super) async fn ready(Extension(monitor): Extension<Arc<Monitor>>) -> Response {
    health(monitor, |health| health.ready).await
}

async fn all_metrics(Extension(monitor): Extension<Arc<Monitor>>, headers: HeaderMap) -> Response {
    told(monitor, None, &headers).await
}

/// Metrics, in the format that the client prefers: Prometheus names OpenMetrics first.
async fn told(monitor: Arc<Monitor>, of: Option<u32>, headers: &HeaderMap) -> Response {
    let accepts = |media: &str| {
        let accepted = headers.get_all(header::ACCEPT).iter();
        accepted.filter_map(|value| value.to_str().ok()).any(|value| value.contains(media))
    };
    let is_open = accepts("application/openmetrics-text");
    let made = tokio::task::spawn_blocking(move || {
        let snapshot = monitor.snapshot(of);
        if is_open { metrics::open_metrics(snapshot) } else { metrics::prometheus(snapshot) }
    });
    match made.await {
        Ok(Ok(text)) => {
            let media = if is_open { OPEN_METRICS } else { PROMETHEUS };
            ([(header::CONTENT_TYPE, media)], text).into_response()
        }
        // A panic has been printed; text is written to memory.
        _ => Refusal(ControlError::new(Code::Daemon, "the metrics could not be made")).into_response(),
    }
}

async fn health(monitor: Arc<Monitor>, is_so: fn(&Health) -> bool) -> Response {
    match tokio::task::spawn_blocking(move || monitor.health()).await {
        Ok(health) => {
            let status = if is_so(&health) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, Json(health)).into_response()
        }
        // A panic has been printed.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Serves over TCP where the configuration says, which may change.
pub(crate) async fn serve(monitor: Arc<Monitor>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut listener: Option<(SocketAddr, TcpListener)> = None;
    loop {
        let wanted = monitor.wants_listener();
        if listener.as_ref().map(|(address, _)| *address) != wanted {
            listener = None;
            if let Some(address) = wanted {
                listener = listen(address).await;
                if listener.is_none() {
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
        }
        let Some((_, accepting)) = &listener else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let accepted = tokio::time::timeout(LOOK, accepting.accept()).await;
        while connections.try_join_next().is_some() {}
        let Ok(Ok((stream, _))) = accepted else { continue };
        // Without room it is closed.
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
        let service = TowerToHyperService::new(router(Arc::clone(&monitor)));
        connections.spawn(async move {
            let _permit = permit;
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .max_buf_size(16 << 10)
                .serve_connection(TokioIo::new(stream), service);
            // What is wrong with a connection is the client's affair.
            let _ = tokio::time::timeout(CONNECTION_TIME, served).await;
        });
    }
}

async fn listen(address: SocketAddr) -> Option<(SocketAddr, TcpListener)> {
    match TcpListener::bind(address).await {
        Ok(listener) => {
            if !address.ip().is_loopback() {
                log(&format!("metrics are served on {address}, without encryption, to whoever can connect"));
            }
            Some((address, listener))
        }
        Err(error) => {
            log(&format!("metrics cannot be served on {address}: {error}; it is tried again"));
            None
        }
    }
}
