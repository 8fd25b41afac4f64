//! What monitoring systems ask for: metrics, and whether the daemon is alive and ready; on the control
//! socket, and over TCP for whoever can connect.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{
    Extension, Json, Router,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    answers::Refusal,
    connections::{Room, Words, refuse_at_once, serve_connection},
};
use crate::metrics;
use crate::metrics::{OPEN_METRICS, PROMETHEUS};
use crate::monitor::Monitor;
use crate::peer::Peer;
use crate::registry::log;
use api::requests::{Health, Liveness};
use api::{Code, ControlError};
use stdx::clients::{Limits, THIS_MACHINE, client_of};

/// Connections over TCP at a time, by the machine that they come from.
const CONNECTIONS: Limits = Limits { all: 32, of_each: 8, reserved: 16 };
/// Connections beyond those, whose request is refused with the reason.
const EXCESS: Limits = Limits { all: 16, of_each: 2, reserved: 4 };
/// The most connections over TCP.
pub(crate) const CONNECTIONS_MAX: usize = CONNECTIONS.total() + EXCESS.total();
/// How long a client may read nothing of an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection lasts, whatever the client does.
const CONNECTION_TIME: Duration = Duration::from_mins(1);
/// How long the daemon may take to look at itself.
const HEALTH_TIME: Duration = Duration::from_secs(5);
/// How long nobody is let in when there are no descriptors.
const BREATH: Duration = Duration::from_millis(100);
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

/// What is answered on the control socket where connections are full: requests about health, and the refusal.
pub(crate) fn excess(monitor: Arc<Monitor>, refusal: ControlError) -> Router {
    let health = Router::new()
        .route("/v1/health", get(get_health))
        .route("/v1/health/live", get(live))
        .route("/v1/health/ready", get(ready));
    or_refusal(health, refusal).layer(Extension(monitor))
}

/// The same over TCP.
fn excess_of_scrapers(monitor: Arc<Monitor>, refusal: ControlError) -> Router {
    let health = Router::new().route("/live", get(live)).route("/ready", get(ready));
    or_refusal(health, refusal).layer(Extension(monitor))
}

fn or_refusal(router: Router, refusal: ControlError) -> Router {
    let refuse = move || std::future::ready(Refusal(refusal).into_response());
    router.fallback(refuse.clone()).method_not_allowed_fallback(refuse)
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

/// It waits for nothing: a monitor that gets no answer starts a daemon again that is alive.
pub(super) async fn live(Extension(monitor): Extension<Arc<Monitor>>) -> Response {
    let late = monitor.late();
    let status = if late.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Liveness { live: late.is_none(), reasons: Vec::from_iter(late) })).into_response()
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
    let looking = Arc::clone(&monitor);
    let looked = async move {
        // Who waits for this has no thread yet.
        let permit = Arc::clone(&looking.looking).acquire_owned().await;
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            looking.health()
        })
        .await
    };
    let health = match tokio::time::timeout(HEALTH_TIME, looked).await {
        Ok(Ok(health)) => health,
        // A panic has been printed.
        Ok(Err(_)) => {
            let failed = ControlError::new(Code::Daemon, "the daemon could not look at itself");
            return Refusal(failed).into_response();
        }
        Err(_) => {
            let why = format!("the daemon has not looked at itself within {} s", HEALTH_TIME.as_secs());
            Health { live: monitor.late().is_none(), ready: false, reasons: vec![why] }
        }
    };
    let status = if is_so(&health) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
}

/// Serves over TCP where the configuration says, which may change.
pub(crate) async fn serve(monitor: Arc<Monitor>) {
    let words = Words {
        client: "the client",
        all: "all clients of other machines",
        advice: "end some of the programs that have them",
    };
    let room = Room::<IpAddr>::new((CONNECTIONS, EXCESS), THIS_MACHINE, words);
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
        let (stream, address) = match accepted {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(error)) => {
                log(&format!("cannot accept a connection to the metrics' address: {error}"));
                tokio::time::sleep(BREATH).await;
                continue;
            }
            Err(_) => continue,
        };
        match room.take(client_of(address)) {
            Ok(mut place) => {
                let monitor = Arc::clone(&monitor);
                let router = match place.refusal.take() {
                    None => router(monitor),
                    Some(refusal) => excess_of_scrapers(monitor, refusal),
                };
                connections.spawn(async move {
                    let ended = std::future::pending();
                    let served = serve_connection(stream, router, (PATIENCE, Arc::new(place)), ended);
                    // Work that the request has caused keeps its place.
                    let _ = tokio::time::timeout(CONNECTION_TIME, served).await;
                });
            }
            Err(refusal) => refuse_at_once(&stream, &refusal),
        }
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
