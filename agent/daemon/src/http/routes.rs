//! The handlers of requests.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Extension, Json, Router,
    body::Body as HttpBody,
    extract::{Path, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    answers::{Body, Refusal, answer, answer_json},
    connections::Hangup,
    list,
};
use crate::configuration::Configuration;
use crate::peer::Peer;
use crate::registry::{Detail, MapsAsked, Registry};
use crate::user::Owner;
use api::requests::{
    Daemon, Enable, EnableRules, NewChannel, NewContexts, NewRules, RulesChanged, TakeSnapshot, Track,
};
use api::{Code, ControlError, Domain, EventRule, NewMap, NewSession, NewTrigger, Schedule, SnapshotOutput};

type Sessions = State<Arc<Registry>>;
type Who = Extension<Peer>;

/// Whose session is meant, if not that of who asks.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct Whose {
    /// The user: only root names another one.
    uid: Option<u32>,
}

/// What of maps is to be told.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
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

pub(super) async fn daemon(Extension(peer): Who) -> Json<Daemon> {
    Json(Daemon { version: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id(), uid: peer.uid })
}

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

pub(super) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], crate::openapi()).into_response()
}

pub(super) async fn notifications(
    State(registry): Sessions,
    Extension(peer): Who,
    Extension(hangup): Extension<Hangup>,
) -> Response {
    let listening = registry.listen((!peer.is_root()).then_some(peer.uid));
    // Each call gives one line. Nobody else notices a client that has gone before there is a line for it.
    let lines = futures_util::stream::unfold((listening, hangup), async move |(listening, hangup)| {
        let line = tokio::select! {
            line = listening.next() => line,
            () = hangup.wait() => return None,
        };
        Some((Ok::<_, Infallible>(line), (listening, hangup)))
    });
    ([(header::CONTENT_TYPE, "application/jsonlines")], HttpBody::from_stream(lines)).into_response()
}

/// What is to be listed of a domain.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub(super) struct Listed {
    /// System calls instead of tracepoints.
    syscalls: bool,
    /// With the fields of records.
    fields: bool,
}

pub(super) async fn instrumentation(Path(domain): Path<Domain>, Query(listed): Query<Listed>) -> Response {
    answer(move || list::points(domain, listed.syscalls, listed.fields)).await
}

pub(super) async fn list_sessions(
    State(registry): Sessions,
    Extension(peer): Who,
    Query(whose): Query<Whose>,
) -> Response {
    answer(move || Ok(registry.list(whose.listed(peer)?))).await
}

pub(super) async fn create_session(
    State(registry): Sessions,
    Extension(peer): Who,
    Body(new): Body<NewSession>,
) -> Response {
    answer(move || registry.create(peer, new)).await
}

pub(super) async fn list_triggers(
    State(registry): Sessions,
    Extension(peer): Who,
    Query(whose): Query<Whose>,
) -> Response {
    answer(move || Ok(registry.triggers().list(whose.listed(peer)?))).await
}

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

pub(super) async fn remove_trigger(
    State(registry): Sessions,
    Extension(peer): Who,
    Path(trigger): Path<String>,
    Query(whose): Query<Whose>,
) -> Response {
    answer(move || registry.remove_trigger(whose.of(peer)?, &trigger)).await
}

/// Declares the handler of a request about a session: `NAME(PARTS OF THE PATH) BODY: |..| ACTION`. More parts
/// of the path follow the session.
macro_rules! about_session {
    ($name:ident $(($($part:ident: $of:ty),+))? $(body($body:ident: $ask:ty))?:
        |$registry:ident, $uid:ident, $session:ident| $act:expr) => {
        pub(super) async fn $name(
            State($registry): Sessions,
            Extension(peer): Who,
            Path(($session, $($($part),+)?)): Path<(String, $($($of),+)?)>,
            Query(whose): Query<Whose>,
            $(Body($body): Body<$ask>,)?
        ) -> Response {
            answer(move || {
                let $uid = whose.of(peer)?;
                $act
            })
            .await
        }
    };
}

about_session!(get_session: |registry, uid, session| registry.get(uid, &session));
about_session!(destroy_session: |registry, uid, session| registry.destroy(uid, &session));
about_session!(start_session: |registry, uid, session| registry.start(uid, &session));
about_session!(stop_session: |registry, uid, session| registry.stop(uid, &session));
about_session!(rotate_session: |registry, uid, session| registry.rotate(uid, &session));
about_session!(get_rotation(id: u64): |registry, uid, session| registry.rotation(uid, &session, id));
about_session!(clear_session: |registry, uid, session| registry.clear(uid, &session));
about_session!(regenerate(what: String): |registry, uid, session| registry.regenerate(uid, &session, &what));
about_session!(add_map body(new: NewMap): |registry, uid, session| registry.add_map((uid, &session), new));
about_session!(remove_map(map: String): |registry, uid, session| registry.remove_map((uid, &session), &map));

pub(super) async fn session_maps(
    State(registry): Sessions,
    Extension(peer): Who,
    Path(session): Path<String>,
    Query(Told { uid, keys, map }): Query<Told>,
) -> Response {
    let asked = MapsAsked { session: Some(session), map, keys };
    answer_json(move || registry.maps(Some(Whose { uid }.of(peer)?), &asked)).await
}

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

about_session!(session_usage: |registry, uid, session| registry.usage(uid, &session));

pub(super) async fn all_usage(
    State(registry): Sessions,
    Extension(peer): Who,
    Query(whose): Query<Whose>,
) -> Response {
    answer(move || Ok(registry.usages(whose.listed(peer)?, Detail::Sums))).await
}

about_session!(add_schedule body(schedule: Schedule):
    |registry, uid, session| registry.change((uid, &session), |model| model.add_schedule(schedule)));
about_session!(remove_schedule body(schedule: Schedule):
    |registry, uid, session| registry.change((uid, &session), |model| model.remove_schedule(&schedule)));
about_session!(take_snapshot body(wanted: TakeSnapshot):
    |registry, uid, session| registry.snapshot(uid, &session, &wanted));
about_session!(add_snapshot_output body(output: SnapshotOutput):
    |registry, uid, session| registry.change((uid, &session), |model| model.add_snapshot_output(output.clone())));
about_session!(remove_snapshot_output(output: String):
    |registry, uid, session| registry.change((uid, &session), |model| model.remove_snapshot_output(&output)));
about_session!(add_channel(domain: Domain) body(new: NewChannel):
    |registry, uid, session| registry.add_channel((uid, &session), domain, &new));
about_session!(track(domain: Domain) body(change: Track):
    |registry, uid, session| registry.change((uid, &session), |model| model.track(domain, &change)));
about_session! {
    enable_channel(domain: Domain, channel: String) body(enable: Enable):
    |registry, uid, session| {
        registry.change((uid, &session), |model| model.enable_channel(domain, &channel, enable.enabled))
    }
}
about_session!(add_rules(domain: Domain, channel: String) body(new: NewRules):
    |registry, uid, session| registry.add_rules((uid, &session), (domain, &channel), &new.into_all()));
about_session! {
    remove_rule(domain: Domain, channel: String) body(rule: EventRule):
    |registry, uid, session| {
        registry.change((uid, &session), |model| model.remove_rule(domain, &channel, &rule))
    }
}
about_session! {
    enable_rules(domain: Domain, channel: String) body(which: EnableRules):
    |registry, uid, session| {
        let rules =
            registry.change((uid, &session), |model| model.enable_rules(domain, &channel, &which))?;
        Ok(RulesChanged { rules })
    }
}
about_session! {
    add_contexts(domain: Domain, channel: String) body(new: NewContexts):
    |registry, uid, session| {
        registry.change((uid, &session), |model| model.add_contexts(domain, &channel, &new.contexts))
    }
}

/// Refuses every request.
pub(crate) fn refuse(refusal: ControlError) -> Router {
    Router::new().fallback(move || std::future::ready(Refusal(refusal).into_response()))
}

/// Refuses every request of a peer that is not of the group.
pub(crate) fn refuse_others(group: Option<&str>) -> Router {
    let message = match group {
        Some(group) => format!(
            "only root and members of the group {group} may control recording sessions; ask for membership \
             (`usermod -aG {group} USER`) and log in again"
        ),
        None => "only root may control recording sessions".to_owned(),
    };
    let refusal = ControlError::new(Code::Permission, message);
    Router::new()
        .fallback(move || std::future::ready((StatusCode::FORBIDDEN, Refusal(refusal)).into_response()))
}
