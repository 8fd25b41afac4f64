//! The paths.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Extension, Json, Router,
    body::Body as HttpBody,
    extract::{DefaultBodyLimit, Path, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use serde::Deserialize;

use super::{
    answers::{Body, Refusal, answer, answer_json},
    list,
    openapi::document,
    scrape,
};
use crate::configuration::Configuration;
use crate::monitor::Monitor;
use crate::peer::Peer;
use crate::registry::{Detail, MapsAsked, Registry};
use crate::user::Owner;
use api::requests::{
    ConfigurationState, Daemon, Enable, EnableRules, NewChannel, NewContexts, Notification, RulesChanged,
    TakeSnapshot, Track,
};
use api::{
    Channel, Code, ControlError, CountedMap, Created, Destroyed, Domain, EventRule, InstrumentationPoint,
    NewMap, NewSession, NewTrigger, Rotation, Schedule, Session, Snapshot, SnapshotOutput, Stopped, Summary,
    Tracker, Trigger, Usage,
};

/// The largest body of a request.
const BODY_MAX: usize = 1 << 20;

type Sessions = State<Arc<Registry>>;
type Who = Extension<Peer>;

/// Whose session is meant, if not that of who asks.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct Whose {
    /// The user: only root names another one.
    uid: Option<u32>,
}

/// What of maps is to be told.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Told {
    /// The user, if not who asks: only root names another one.
    uid: Option<u32>,
    /// The most keys of each map; 1000 where nothing is said. All maps together have 100 000 keys and
    /// buckets at most.
    keys: Option<u32>,
    /// Only the map of this name.
    map: Option<String>,
}

impl Whose {
    fn of(&self, peer: Peer) -> Result<u32, ControlError> {
        match self.uid {
            Some(uid) if uid != peer.uid && !peer.is_root() => Err(Code::Permission.into()),
            other => Ok(other.unwrap_or(peer.uid)),
        }
    }

    /// Whose are listed: those of all users, if root names none.
    fn listed(&self, peer: Peer) -> Result<Option<u32>, ControlError> {
        let is_all = peer.is_root() && self.uid.is_none();
        Ok(Some(self.of(peer)?).filter(|_| !is_all))
    }
}

/// All requests. Connections are of one peer each, which is an extension of their requests.
pub(crate) fn router(
    registry: Arc<Registry>,
    configuration: Option<Arc<Configuration>>,
    monitor: Arc<Monitor>,
) -> Router {
    let channel = "/v1/sessions/{session}/domains/{domain}/channels/{channel}";
    Router::new()
        .route("/v1/daemon", get(daemon))
        .route("/v1/configuration", get(get_configuration))
        .route("/v1/metrics", get(scrape::get_metrics))
        .route("/v1/health", get(scrape::get_health))
        .route("/v1/health/live", get(scrape::live))
        .route("/v1/health/ready", get(scrape::ready))
        .route("/v1/openapi.json", get(openapi))
        .route("/v1/notifications", get(notifications))
        .route("/v1/instrumentation/{domain}", get(instrumentation))
        .route("/v1/maps", get(all_maps))
        .route("/v1/usage", get(all_usage))
        .route("/v1/triggers", get(list_triggers).post(add_trigger))
        .route("/v1/triggers/{trigger}", delete(remove_trigger))
        .route("/v1/sessions", get(list_sessions).post(create_session))
        .route("/v1/sessions/{session}", get(get_session).delete(destroy_session))
        .route("/v1/sessions/{session}/start", post(start_session))
        .route("/v1/sessions/{session}/stop", post(stop_session))
        .route("/v1/sessions/{session}/clear", post(clear_session))
        .route("/v1/sessions/{session}/regenerate/{what}", post(regenerate))
        .route("/v1/sessions/{session}/rotations", post(rotate_session))
        .route("/v1/sessions/{session}/rotations/{id}", get(get_rotation))
        .route("/v1/sessions/{session}/usage", get(session_usage))
        .route("/v1/sessions/{session}/maps", post(add_map).get(session_maps))
        .route("/v1/sessions/{session}/maps/{map}", delete(remove_map))
        .route("/v1/sessions/{session}/schedules", post(add_schedule).delete(remove_schedule))
        .route("/v1/sessions/{session}/snapshots", post(take_snapshot))
        .route("/v1/sessions/{session}/snapshot-outputs", post(add_snapshot_output))
        .route("/v1/sessions/{session}/snapshot-outputs/{output}", delete(remove_snapshot_output))
        .route("/v1/sessions/{session}/domains/{domain}/channels", post(add_channel))
        .route("/v1/sessions/{session}/domains/{domain}/trackers", post(track))
        .route(channel, axum::routing::patch(enable_channel))
        .route(&format!("{channel}/rules"), post(add_rule).delete(remove_rule).patch(enable_rules))
        .route(&format!("{channel}/contexts"), post(add_contexts))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown)
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(Extension(configuration))
        .layer(Extension(monitor))
        .with_state(registry)
}

async fn unknown() -> Response {
    let message = "there is no such request; GET /v1/openapi.json describes all of them";
    Refusal(ControlError::new(Code::Undefined, message)).into_response()
}

/// The daemon, and who asks it.
#[utoipa::path(get, path = "/v1/daemon", responses((status = 200, body = Daemon)))]
pub(super) async fn daemon(Extension(peer): Who) -> Json<Daemon> {
    Json(Daemon { version: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id(), uid: peer.uid })
}

/// The daemon's configuration, and what became of it, for root; `null` if it has none.
#[utoipa::path(get, path = "/v1/configuration",
    responses((status = 200, body = Option<ConfigurationState>), (status = "4XX", body = ControlError)))]
pub(super) async fn get_configuration(
    Extension(peer): Who,
    Extension(configuration): Extension<Option<Arc<Configuration>>>,
) -> Response {
    answer(move || {
        if !peer.is_root() {
            return Err(Code::Permission.into());
        }
        Ok(configuration.map(|configuration| configuration.told()))
    })
    .await
}

/// This description.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200)))]
pub(super) async fn openapi() -> Response {
    Json(document()).into_response()
}

/// What happens from now on, one JSON object a line.
#[utoipa::path(get, path = "/v1/notifications",
    responses((status = 200, body = Notification, content_type = "application/jsonlines")))]
pub(super) async fn notifications(State(registry): Sessions, Extension(peer): Who) -> Response {
    let listening = registry.listen((!peer.is_root()).then_some(peer.uid));
    // Each call gives one line; the connection's end drops what waits.
    let lines = futures_util::stream::unfold(listening, async move |listening| {
        let line = listening.next().await;
        Some((Ok::<_, Infallible>(line), listening))
    });
    ([(header::CONTENT_TYPE, "application/jsonlines")], HttpBody::from_stream(lines)).into_response()
}

/// What is to be listed of a domain.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Listed {
    /// System calls instead of tracepoints.
    syscalls: bool,
    /// With the fields of records.
    fields: bool,
}

/// What there is to record.
#[utoipa::path(get, path = "/v1/instrumentation/{domain}", params(("domain" = Domain, Path), Listed),
    responses((status = 200, body = Vec<InstrumentationPoint>)))]
pub(super) async fn instrumentation(Path(domain): Path<Domain>, Query(listed): Query<Listed>) -> Response {
    answer(move || list::points(domain, listed.syscalls, listed.fields)).await
}

/// The sessions of who asks; all of them for root.
#[utoipa::path(get, path = "/v1/sessions", params(Whose), responses((status = 200, body = Vec<Summary>)))]
pub(super) async fn list_sessions(
    State(registry): Sessions,
    Extension(peer): Who,
    Query(whose): Query<Whose>,
) -> Response {
    answer(move || Ok(registry.list(whose.listed(peer)?))).await
}

/// Creates a session.
#[utoipa::path(post, path = "/v1/sessions", request_body = NewSession,
    responses((status = 200, body = Created), (status = "4XX", body = ControlError)))]
pub(super) async fn create_session(
    State(registry): Sessions,
    Extension(peer): Who,
    Body(new): Body<NewSession>,
) -> Response {
    answer(move || registry.create(peer, new)).await
}

/// The triggers of who asks; all of them for root.
#[utoipa::path(get, path = "/v1/triggers", params(Whose), responses((status = 200, body = Vec<Trigger>)))]
pub(super) async fn list_triggers(
    State(registry): Sessions,
    Extension(peer): Who,
    Query(whose): Query<Whose>,
) -> Response {
    answer(move || Ok(registry.triggers().list(whose.listed(peer)?))).await
}

/// Adds a trigger.
#[utoipa::path(post, path = "/v1/triggers", params(Whose), request_body = NewTrigger,
    responses((status = 200, body = Trigger), (status = "4XX", body = ControlError)))]
pub(super) async fn add_trigger(
    State(registry): Sessions,
    Extension(peer): Who,
    Query(whose): Query<Whose>,
    Body(new): Body<NewTrigger>,
) -> Response {
    answer(move || {
        let uid = whose.of(peer)?;
        let owner = if uid == peer.uid { Owner::new(uid, peer.gid) } else { Owner::of_user(uid) };
        registry.add_trigger(owner, new)
    })
    .await
}

/// Removes a trigger; gives what it was.
#[utoipa::path(delete, path = "/v1/triggers/{trigger}", params(("trigger" = String, Path), Whose),
    responses((status = 200, body = Trigger), (status = "4XX", body = ControlError)))]
pub(super) async fn remove_trigger(
    State(registry): Sessions,
    Extension(peer): Who,
    Path(trigger): Path<String>,
    Query(whose): Query<Whose>,
) -> Response {
    answer(move || registry.remove_trigger(whose.of(peer)?, &trigger)).await
}

/// Declares the handler of a request about a session.
macro_rules! about_session {
    ($(#[$doc:meta])* $name:ident: $method:ident $path:literal -> $reply:ty,
        |$registry:ident, $uid:ident, $session:ident| $act:expr) => {
        $(#[$doc])*
        #[utoipa::path($method, path = $path, params(("session" = String, Path), Whose),
            responses((status = 200, body = $reply), (status = "4XX", body = ControlError)))]
        pub(super) async fn $name(
            State($registry): Sessions,
            Extension(peer): Who,
            Path($session): Path<String>,
            Query(whose): Query<Whose>,
        ) -> Response {
            answer(move || {
                let $uid = whose.of(peer)?;
                $act
            })
            .await
        }
    };
    ($(#[$doc:meta])* $name:ident: $method:ident $path:literal, $body:ident: $ask:ty => $reply:ty,
        |$registry:ident, $uid:ident, $session:ident| $act:expr) => {
        $(#[$doc])*
        #[utoipa::path($method, path = $path, params(("session" = String, Path), Whose), request_body = $ask,
            responses((status = 200, body = $reply), (status = "4XX", body = ControlError)))]
        pub(super) async fn $name(
            State($registry): Sessions,
            Extension(peer): Who,
            Path($session): Path<String>,
            Query(whose): Query<Whose>,
            Body($body): Body<$ask>,
        ) -> Response {
            answer(move || {
                let $uid = whose.of(peer)?;
                $act
            })
            .await
        }
    };
    ($(#[$doc:meta])* $name:ident: $method:ident $path:literal, ($($part:ident $key:literal: $of:ty),*), $body:ident: $ask:ty => $reply:ty,
        |$registry:ident, $uid:ident, $session:ident| $act:expr) => {
        $(#[$doc])*
        #[utoipa::path($method, path = $path,
            params(("session" = String, Path), $(($key = $of, Path)),*, Whose), request_body = $ask,
            responses((status = 200, body = $reply), (status = "4XX", body = ControlError)))]
        pub(super) async fn $name(
            State($registry): Sessions,
            Extension(peer): Who,
            Path(($session, $($part),*)): Path<(String, $($of),*)>,
            Query(whose): Query<Whose>,
            Body($body): Body<$ask>,
        ) -> Response {
            answer(move || {
                let $uid = whose.of(peer)?;
                $act
            })
            .await
        }
    };
}

about_session! {
    /// A session with all that it has.
    get_session: get "/v1/sessions/{session}" -> Session,
    |registry, uid, session| registry.get(uid, &session)
}
about_session! {
    /// Ends a session.
    destroy_session: delete "/v1/sessions/{session}" -> Destroyed,
    |registry, uid, session| registry.destroy(uid, &session)
}
about_session! {
    /// Starts a session.
    start_session: post "/v1/sessions/{session}/start" -> (),
    |registry, uid, session| registry.start(uid, &session)
}
about_session! {
    /// Stops a session.
    stop_session: post "/v1/sessions/{session}/stop" -> Stopped,
    |registry, uid, session| registry.stop(uid, &session)
}
about_session! {
    /// Archives the current trace chunk.
    rotate_session: post "/v1/sessions/{session}/rotations" -> Rotation,
    |registry, uid, session| registry.rotate(uid, &session)
}
about_session! {
    /// Removes what was recorded since the session was created or rotated.
    clear_session: post "/v1/sessions/{session}/clear" -> (),
    |registry, uid, session| registry.clear(uid, &session)
}
/// Writes a part of the trace again: `metadata`, or the state of the machine as it is now (`statedump`).
#[utoipa::path(post, path = "/v1/sessions/{session}/regenerate/{what}",
    params(("session" = String, Path), ("what" = String, Path), Whose),
    responses((status = 200), (status = "4XX", body = ControlError)))]
pub(super) async fn regenerate(
    State(registry): Sessions,
    Extension(peer): Who,
    Path((session, what)): Path<(String, String)>,
    Query(whose): Query<Whose>,
) -> Response {
    answer(move || registry.regenerate(whose.of(peer)?, &session, &what)).await
}

about_session! {
    /// Adds a map, which counts while the session is active.
    add_map: post "/v1/sessions/{session}/maps", new: NewMap => NewMap,
    |registry, uid, session| registry.add_map((uid, &session), new)
}
/// What the maps of a session have counted.
#[utoipa::path(get, path = "/v1/sessions/{session}/maps", params(("session" = String, Path), Told),
    responses((status = 200, body = Vec<CountedMap>), (status = "4XX", body = ControlError)))]
pub(super) async fn session_maps(
    State(registry): Sessions,
    Extension(peer): Who,
    Path(session): Path<String>,
    Query(Told { uid, keys, map }): Query<Told>,
) -> Response {
    let asked = MapsAsked { session: Some(session), map, keys };
    answer_json(move || registry.maps(Some(Whose { uid }.of(peer)?), &asked)).await
}

/// Removes a map; gives what it had.
#[utoipa::path(delete, path = "/v1/sessions/{session}/maps/{map}",
    params(("session" = String, Path), ("map" = String, Path), Whose),
    responses((status = 200, body = CountedMap), (status = "4XX", body = ControlError)))]
pub(super) async fn remove_map(
    State(registry): Sessions,
    Extension(peer): Who,
    Path((session, map)): Path<(String, String)>,
    Query(whose): Query<Whose>,
) -> Response {
    answer(move || registry.remove_map((whose.of(peer)?, &session), &map)).await
}

/// What the maps of who asks have counted; those of all users for root.
#[utoipa::path(get, path = "/v1/maps", params(Told), responses((status = 200, body = Vec<CountedMap>)))]
pub(super) async fn all_maps(
    State(registry): Sessions,
    Extension(peer): Who,
    Query(Told { uid, keys, map }): Query<Told>,
) -> Response {
    let asked = MapsAsked { session: None, map, keys };
    answer_json(move || {
        let all = peer.is_root() && uid.is_none();
        let uid = Whose { uid }.of(peer)?;
        registry.maps((!all).then_some(uid), &asked)
    })
    .await
}

about_session! {
    /// How full the rings of a session are, and what it has recorded and lost by now.
    session_usage: get "/v1/sessions/{session}/usage" -> Usage,
    |registry, uid, session| registry.usage(uid, &session)
}
/// The same of all sessions of who asks, or of all users for root, without events.
#[utoipa::path(get, path = "/v1/usage", params(Whose), responses((status = 200, body = Vec<Usage>)))]
pub(super) async fn all_usage(
    State(registry): Sessions,
    Extension(peer): Who,
    Query(whose): Query<Whose>,
) -> Response {
    answer(move || Ok(registry.usages(whose.listed(peer)?, Detail::Sums))).await
}

about_session! {
    /// Rotates by itself from now on.
    add_schedule: post "/v1/sessions/{session}/schedules", schedule: Schedule => (),
    |registry, uid, session| registry.change((uid, &session), |model| model.add_schedule(schedule))
}
about_session! {
    /// Rotates by itself no more.
    remove_schedule: delete "/v1/sessions/{session}/schedules", schedule: Schedule => (),
    |registry, uid, session| registry.change((uid, &session), |model| model.remove_schedule(&schedule))
}
about_session! {
    /// Takes a snapshot.
    take_snapshot: post "/v1/sessions/{session}/snapshots", wanted: TakeSnapshot => Snapshot,
    |registry, uid, session| registry.snapshot(uid, &session, &wanted)
}
about_session! {
    /// Adds a place for snapshots.
    add_snapshot_output: post "/v1/sessions/{session}/snapshot-outputs", output: SnapshotOutput => SnapshotOutput,
    |registry, uid, session| registry.change((uid, &session), |model| model.add_snapshot_output(output))
}
about_session! {
    /// Adds a channel.
    add_channel: post "/v1/sessions/{session}/domains/{domain}/channels", (domain "domain": Domain), new: NewChannel => Channel,
    |registry, uid, session| registry.change((uid, &session), |model| model.add_channel(domain, new))
}
about_session! {
    /// Changes which processes are recorded.
    track: post "/v1/sessions/{session}/domains/{domain}/trackers", (domain "domain": Domain), change: Track => Tracker,
    |registry, uid, session| registry.change((uid, &session), |model| model.track(domain, &change))
}
about_session! {
    /// Switches a channel on or off.
    enable_channel: patch "/v1/sessions/{session}/domains/{domain}/channels/{channel}",
    (domain "domain": Domain, channel "channel": String), enable: Enable => (),
    |registry, uid, session| {
        registry.change((uid, &session), |model| model.enable_channel(domain, &channel, enable.enabled))
    }
}
about_session! {
    /// Adds a rule to a channel, or switches one like it on.
    add_rule: post "/v1/sessions/{session}/domains/{domain}/channels/{channel}/rules",
    (domain "domain": Domain, channel "channel": String), rule: EventRule => (),
    |registry, uid, session| registry.change((uid, &session), |model| model.add_rule(domain, &channel, rule))
}
about_session! {
    /// Removes a rule from a channel.
    remove_rule: delete "/v1/sessions/{session}/domains/{domain}/channels/{channel}/rules",
    (domain "domain": Domain, channel "channel": String), rule: EventRule => (),
    |registry, uid, session| registry.change((uid, &session), |model| model.remove_rule(domain, &channel, &rule))
}
about_session! {
    /// Switches rules of a channel on or off.
    enable_rules: patch "/v1/sessions/{session}/domains/{domain}/channels/{channel}/rules",
    (domain "domain": Domain, channel "channel": String), which: EnableRules => RulesChanged,
    |registry, uid, session| {
        let rules =
            registry.change((uid, &session), |model| model.enable_rules(domain, &channel, &which))?;
        Ok(RulesChanged { rules })
    }
}
about_session! {
    /// Adds contexts to a channel.
    add_contexts: post "/v1/sessions/{session}/domains/{domain}/channels/{channel}/contexts",
    (domain "domain": Domain, channel "channel": String), new: NewContexts => (),
    |registry, uid, session| {
        registry.change((uid, &session), |model| model.add_contexts(domain, &channel, &new.contexts))
    }
}

/// What has become of a rotation.
#[utoipa::path(get, path = "/v1/sessions/{session}/rotations/{id}",
    params(("session" = String, Path), ("id" = u64, Path), Whose),
    responses((status = 200, body = Rotation), (status = "4XX", body = ControlError)))]
pub(super) async fn get_rotation(
    State(registry): Sessions,
    Extension(peer): Who,
    Path((session, id)): Path<(String, u64)>,
    Query(whose): Query<Whose>,
) -> Response {
    answer(move || registry.rotation(whose.of(peer)?, &session, id)).await
}

/// Removes a place for snapshots.
#[utoipa::path(delete, path = "/v1/sessions/{session}/snapshot-outputs/{output}",
    params(("session" = String, Path), ("output" = String, Path), Whose),
    responses((status = 200), (status = "4XX", body = ControlError)))]
pub(super) async fn remove_snapshot_output(
    State(registry): Sessions,
    Extension(peer): Who,
    Path((session, output)): Path<(String, String)>,
    Query(whose): Query<Whose>,
) -> Response {
    answer(move || {
        let uid = whose.of(peer)?;
        registry.change((uid, &session), |model| model.remove_snapshot_output(&output))
    })
    .await
}

/// Not for this peer.
pub(crate) fn refuse(group: Option<&str>) -> Response {
    let message = match group {
        Some(group) => format!(
            "only root and members of the group {group} may control recording sessions; ask for membership \
             (`usermod -aG {group} USER`) and log in again"
        ),
        None => "only root may control recording sessions".to_owned(),
    };
    let mut answer = Refusal(ControlError::new(Code::Permission, message)).into_response();
    *answer.status_mut() = StatusCode::FORBIDDEN;
    answer
}
