//! The requests: a table, from which the router is built, and the description that a test compares with
//! docs/openapi.json.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::DefaultBodyLimit,
    response::{IntoResponse as _, Response},
    routing,
};

use super::{answers::Refusal, routes, scrape};
use crate::configuration::Configuration;
use crate::monitor::Monitor;
use crate::registry::Registry;
use api::{Code, ControlError};

/// The largest body of a request.
const BODY_MAX: usize = 1 << 20;

/// All requests. Connections are of one peer each, which is an extension of their requests.
pub(crate) fn router(
    registry: Arc<Registry>,
    configuration: Option<Arc<Configuration>>,
    monitor: Arc<Monitor>,
) -> Router {
    requests()
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

/// Declares the requests, each as
///
/// ```text
/// METHOD PATH => MODULE::HANDLER ("PART OF THE PATH": TYPE, ...) query(TYPE) body(TYPE)
///     -> ANSWER as "MEDIA TYPE", STATUS: ANOTHER ANSWER | REFUSAL;
/// ```
macro_rules! requests {
    ($(
        #[doc = $about:literal]
        $method:ident $path:literal => $module:ident::$handler:ident
            $(($($part:literal: $of:ty),+))? $(query($query:ty))? $(body($body:ty))?
            $(-> $answer:ty $(as $media:literal)? $(, $status:literal: $other:ty)? $(| $refusal:ty)?)?;
    )+) => {
        /// A path that is there twice has one method each time.
        fn requests() -> Router<Arc<Registry>> {
            Router::new()$(.route($path, routing::$method($module::$handler)))+
        }

        #[cfg(test)]
        pub(super) mod described {
            use api::requests::*;
            use api::*;
            use super::super::routes::{Listed, Told, Whose};

            $(
                #[doc = $about]
                #[utoipa::path($method, path = $path, tag = stringify!($module),
                    params($($(($part = $of, Path),)+)? $($query)?),
                    $(request_body = $body,)?
                    responses(
                        (status = 200 $(, body = $answer $(, content_type = $media)?)?)
                        $($(, (status = $status, body = $other))? $(, (status = "4XX", body = $refusal))?)?,
                        (status = 429, description = "The user, or all of them, have as many connections as \
                            they may.", body = ControlError)
                    ))]
                #[expect(dead_code, reason = "the description is made of it")]
                fn $handler() {}
            )+

            #[derive(utoipa::OpenApi)]
            #[openapi(
                info(
                    title = "tracer-agent daemon",
                    description = "Recording sessions, controlled over a Unix socket."
                ),
                paths($($handler),+),
                components(schemas(ControlError, Notification))
            )]
            pub(crate) struct Requests;
        }
    };
}

requests! {
    /// The daemon, and who asks it.
    get "/v1/daemon" => routes::daemon -> Daemon;

    /// The daemon's configuration, and what became of it, for root; `null` if it has none.
    get "/v1/configuration" => routes::get_configuration -> Option<ConfigurationState> | ControlError;

    /// Metrics of the sessions of who asks; of all of them for root.
    get "/v1/metrics" => scrape::get_metrics -> String as "text/plain; version=0.0.4";

    /// Whether the daemon is alive and ready, and why not.
    get "/v1/health" => scrape::get_health -> Health;

    /// Whether the daemon's threads answer.
    get "/v1/health/live" => scrape::live -> Liveness, 503: Liveness;

    /// Whether the daemon does what its configuration says.
    get "/v1/health/ready" => scrape::ready -> Health, 503: Health;

    /// This description.
    get "/v1/openapi.json" => routes::openapi;

    /// What happens from now on, one JSON object a line.
    get "/v1/notifications" => routes::notifications -> Notification as "application/jsonlines";

    /// What there is to record.
    get "/v1/instrumentation/{domain}" => routes::instrumentation("domain": Domain) query(Listed)
        -> Vec<InstrumentationPoint>;

    /// What the maps of who asks have counted; those of all users for root.
    get "/v1/maps" => routes::all_maps query(Told) -> Vec<CountedMap> | ControlError;

    /// The same of all sessions of who asks, or of all users for root, without events.
    get "/v1/usage" => routes::all_usage query(Whose) -> Vec<Usage> | ControlError;

    /// The triggers of who asks; all of them for root.
    get "/v1/triggers" => routes::list_triggers query(Whose) -> Vec<Trigger> | ControlError;

    /// Adds a trigger.
    post "/v1/triggers" => routes::add_trigger query(Whose) body(NewTrigger) -> Trigger | ControlError;

    /// Removes a trigger; gives what it was.
    delete "/v1/triggers/{trigger}" => routes::remove_trigger("trigger": String) query(Whose)
        -> Trigger | ControlError;

    /// The sessions of who asks; all of them for root.
    get "/v1/sessions" => routes::list_sessions query(Whose) -> Vec<Summary> | ControlError;

    /// Creates a session.
    post "/v1/sessions" => routes::create_session body(NewSession) -> Created | ControlError;

    /// A session with all that it has.
    get "/v1/sessions/{session}" => routes::get_session("session": String) query(Whose)
        -> Session | ControlError;

    /// Ends a session.
    delete "/v1/sessions/{session}" => routes::destroy_session("session": String) query(Whose)
        -> Destroyed | ControlError;

    /// Starts a session.
    post "/v1/sessions/{session}/start" => routes::start_session("session": String) query(Whose)
        -> () | ControlError;

    /// Stops a session.
    post "/v1/sessions/{session}/stop" => routes::stop_session("session": String) query(Whose)
        -> Stopped | ControlError;

    /// Removes what was recorded since the session was created or rotated.
    post "/v1/sessions/{session}/clear" => routes::clear_session("session": String) query(Whose)
        -> () | ControlError;

    /// Writes a part of the trace again: `metadata`, or the state of the machine as it is now (`statedump`).
    post "/v1/sessions/{session}/regenerate/{what}" => routes::regenerate("session": String, "what": String)
        query(Whose) -> () | ControlError;

    /// Archives the current trace chunk.
    post "/v1/sessions/{session}/rotations" => routes::rotate_session("session": String) query(Whose)
        -> Rotation | ControlError;

    /// What has become of a rotation.
    get "/v1/sessions/{session}/rotations/{id}" => routes::get_rotation("session": String, "id": u64)
        query(Whose) -> Rotation | ControlError;

    /// How full the rings of a session are, and what it has recorded and lost by now.
    get "/v1/sessions/{session}/usage" => routes::session_usage("session": String) query(Whose)
        -> Usage | ControlError;

    /// Adds a map, which counts while the session is active.
    post "/v1/sessions/{session}/maps" => routes::add_map("session": String) query(Whose) body(NewMap)
        -> NewMap | ControlError;

    /// What the maps of a session have counted.
    get "/v1/sessions/{session}/maps" => routes::session_maps("session": String) query(Told)
        -> Vec<CountedMap> | ControlError;

    /// Removes a map; gives what it had.
    delete "/v1/sessions/{session}/maps/{map}" => routes::remove_map("session": String, "map": String)
        query(Whose) -> CountedMap | ControlError;

    /// Rotates by itself from now on.
    post "/v1/sessions/{session}/schedules" => routes::add_schedule("session": String) query(Whose)
        body(Schedule) -> () | ControlError;

    /// Rotates by itself no more.
    delete "/v1/sessions/{session}/schedules" => routes::remove_schedule("session": String) query(Whose)
        body(Schedule) -> () | ControlError;

    /// Takes a snapshot.
    post "/v1/sessions/{session}/snapshots" => routes::take_snapshot("session": String) query(Whose)
        body(TakeSnapshot) -> Snapshot | ControlError;

    /// Adds a place for snapshots.
    post "/v1/sessions/{session}/snapshot-outputs" => routes::add_snapshot_output("session": String)
        query(Whose) body(SnapshotOutput) -> SnapshotOutput | ControlError;

    /// Removes a place for snapshots.
    delete "/v1/sessions/{session}/snapshot-outputs/{output}" => routes::remove_snapshot_output
        ("session": String, "output": String) query(Whose) -> () | ControlError;

    /// Adds a channel, with its first rules.
    post "/v1/sessions/{session}/domains/{domain}/channels" => routes::add_channel
        ("session": String, "domain": Domain) query(Whose) body(NewChannel) -> Channel | ControlError;

    /// Changes which processes are recorded.
    post "/v1/sessions/{session}/domains/{domain}/trackers" => routes::track
        ("session": String, "domain": Domain) query(Whose) body(Track) -> Tracker | ControlError;

    /// Switches a channel on or off.
    patch "/v1/sessions/{session}/domains/{domain}/channels/{channel}" => routes::enable_channel
        ("session": String, "domain": Domain, "channel": String) query(Whose) body(Enable)
        -> () | ControlError;

    /// Adds a rule to a channel, or several: all, or none. Those that are there are switched on.
    post "/v1/sessions/{session}/domains/{domain}/channels/{channel}/rules" => routes::add_rules
        ("session": String, "domain": Domain, "channel": String) query(Whose) body(NewRules)
        -> () | ControlError;

    /// Removes a rule from a channel.
    delete "/v1/sessions/{session}/domains/{domain}/channels/{channel}/rules" => routes::remove_rule
        ("session": String, "domain": Domain, "channel": String) query(Whose) body(EventRule)
        -> () | ControlError;

    /// Switches rules of a channel on or off.
    patch "/v1/sessions/{session}/domains/{domain}/channels/{channel}/rules" => routes::enable_rules
        ("session": String, "domain": Domain, "channel": String) query(Whose) body(EnableRules)
        -> RulesChanged | ControlError;

    /// Adds contexts to a channel.
    post "/v1/sessions/{session}/domains/{domain}/channels/{channel}/contexts" => routes::add_contexts
        ("session": String, "domain": Domain, "channel": String) query(Whose) body(NewContexts)
        -> () | ControlError;
}
