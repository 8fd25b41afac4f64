//! The description of the requests, made of the handlers and types themselves.

use utoipa::OpenApi;

use super::{routes, scrape};

/// All requests.
#[derive(OpenApi)]
#[openapi(
    info(title = "tracer-agent daemon", description = "Recording sessions, controlled over a Unix socket."),
    paths(
        routes::daemon,
        routes::get_configuration,
        scrape::get_metrics,
        scrape::get_health,
        scrape::live,
        scrape::ready,
        routes::openapi,
        routes::notifications,
        routes::instrumentation,
        routes::session_usage,
        routes::all_usage,
        routes::add_map,
        routes::remove_map,
        routes::session_maps,
        routes::all_maps,
        routes::list_triggers,
        routes::add_trigger,
        routes::remove_trigger,
        routes::list_sessions,
        routes::create_session,
        routes::get_session,
        routes::destroy_session,
        routes::start_session,
        routes::stop_session,
        routes::clear_session,
        routes::regenerate,
        routes::rotate_session,
        routes::get_rotation,
        routes::add_schedule,
        routes::remove_schedule,
        routes::take_snapshot,
        routes::add_snapshot_output,
        routes::remove_snapshot_output,
        routes::add_channel,
        routes::track,
        routes::enable_channel,
        routes::add_rule,
        routes::remove_rule,
        routes::enable_rules,
        routes::add_contexts,
    ),
    components(schemas(api::ControlError, api::requests::Notification))
)]
struct Requests;

/// The description as an OpenAPI document.
pub(super) fn document() -> utoipa::openapi::OpenApi {
    Requests::openapi()
}

/// The same as text.
pub(crate) fn text() -> String {
    document().to_pretty_json().unwrap_or_default() + "\n"
}
