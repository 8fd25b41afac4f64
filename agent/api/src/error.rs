//! Why a request was refused.

use serde::{Deserialize, Serialize};

/// A refusal, in the body of its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[error("{message}")]
pub struct ControlError {
    /// The kind, for programs.
    pub code: Code,
    /// What was tried, why it failed and what to do, for people.
    pub message: String,
}

impl ControlError {
    /// A refusal of this kind.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<Code> for ControlError {
    /// With LTTng's text.
    fn from(code: Code) -> Self {
        Self::new(code, code.text())
    }
}

/// Declares the codes with LTTng's number and text of each, and the status of HTTP.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $status:literal, $text:literal;)*) => {
        /// Kinds of refusals: those of LTTng 2.13, and [`Code::Daemon`] for what only we refuse.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The number that LTTng's `lttng_error_code` gives it.
            pub fn number(self) -> u8 {
                match self { $(Self::$name => $number,)* }
            }

            /// The status code of its answers.
            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// The text of LTTng's `lttng_strerror`.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// Something that LTTng has no code for.
    Daemon = 11, 500, "Unknown error";
    /// A request that there is not.
    Undefined = 12, 404, "Undefined command";
    /// Not while the session is started.
    Running = 13, 409, "Session is running";
    /// Something that is not there yet, or that cannot be done.
    NotSupported = 15, 501, "Operation not supported";
    /// The output directory.
    CreateDirectory = 17, 422, "Create directory failed";
    /// No daemon.
    NoDaemon = 19, 503, "No session daemon is available";
    /// A session of that name.
    NoSession = 23, 404, "Session name not found";
    /// Channels of a session with several buffering schemes in user space.
    BufferTypes = 24, 409, "Buffer type mismatch for session";
    /// Rings.
    NoMemory = 26, 507, "Not enough memory";
    /// A session has this name.
    SessionExists = 28, 409, "Session name already exists";
    /// A rule like that.
    NoEvent = 29, 404, "Event not found";
    /// An output with this name or path.
    SnapshotOutputExists = 31, 409, "Snapshot output already exists";
    /// Who asks.
    Permission = 32, 403, "Permission denied";
    /// A rule like that is there.
    KernelEventExists = 35, 409, "Kernel event already exists";
    /// A channel of that name is there.
    KernelChannelExists = 37, 409, "Kernel channel already exists";
    /// A channel of that name.
    NoKernelChannel = 39, 404, "Kernel channel not found";
    /// A context.
    KernelContext = 42, 422, "Add kernel context failed";
    /// A rule that cannot be enabled.
    EnableKernelEvent = 43, 422, "Enable kernel event failed";
    /// Programs that could not be attached.
    StartKernel = 46, 500, "Starting kernel trace failed";
    /// Not before the first start.
    NeverStarted = 50, 409, "Session needs to be started once";
    /// A snapshot.
    SnapshotFailed = 51, 500, "Snapshot record failed";
    /// A rule like that is enabled already.
    UserEventEnabled = 55, 409, "UST event already enabled";
    /// A channel of that name is there.
    UserChannelExists = 57, 409, "UST channel already exist";
    /// A channel of that name.
    NoUserChannel = 59, 404, "UST channel not found";
    /// A rule that cannot be enabled.
    EnableUserEvent = 63, 422, "Enable UST event failed";
    /// Programs that could not be attached.
    StartUser = 66, 500, "Starting UST trace failed";
    /// Rings without an event.
    SnapshotEmpty = 71, 409, "No data available in snapshot";
    /// A session without channels.
    NoChannel = 72, 409, "No channel found in the session";
    /// A slash in a name.
    SessionName = 73, 422, "Invalid character found in session name";
    /// A rule like that is there.
    UserEventExists = 75, 409, "UST event already exist";
    /// A rule like that.
    NoUserEvent = 76, 404, "UST event not found";
    /// A context twice.
    ContextExists = 77, 409, "UST context already exist";
    /// A context.
    UserContext = 78, 422, "UST invalid context";
    /// Started before.
    AlreadyStarted = 80, 409, "Tracing has already been started once";
    /// Stopped before.
    AlreadyStopped = 81, 409, "Tracing has already been stopped";
    /// An event without the channel that it is for.
    ChannelNeeded = 83, 422,
        "Non-default channel exists within session: channel name needs to be specified with '-c name'";
    /// A size of snapshots.
    SnapshotSize = 90, 422, "Snapshot max size is invalid";
    /// Something in a request.
    Invalid = 97, 422, "Invalid parameter";
    /// An expression.
    Filter = 106, 422, "Invalid filter bytecode";
    /// Another filter.
    FilterExists = 108, 409, "Filter already exist";
    /// The relay daemon.
    RelayConnect = 104, 502, "Unable to connect to lttng-relayd";
    /// Its version.
    RelayVersion = 105, 502, "Relay daemon not compatible";
    /// A pattern.
    EventName = 112, 422, "Invalid event name";
    /// A name.
    ChannelName = 113, 422, "Invalid channel name";
    /// A value that is in the set.
    AlreadyTracked = 114, 409, "Process attribute is already tracked";
    /// A value that is not in the set.
    NotTracked = 115, 409, "Process attribute was not tracked";
    /// Not before it is started.
    NotStarted = 118, 409, "Session not started";
    /// A context that this kernel does not have.
    ContextUnavailable = 121, 422, "Context unavailable on this kernel";
    /// The state of the system.
    StateDump = 122, 500, "Failed to regenerate the state dump";
    /// A snapshot of another mode.
    NotSnapshotSession = 124, 409, "Snapshot command can't be applied to a non-snapshot session";
    /// A trigger that makes no sense.
    InvalidTrigger = 125, 422, "Invalid trigger";
    /// A trigger of that name is there.
    TriggerExists = 126, 409, "Trigger already registered";
    /// A trigger of that name.
    NoTrigger = 127, 404, "Trigger not found";
    /// The one before is not done.
    RotationPending = 129, 409, "Rotation already pending for this session";
    /// A mode without chunks.
    RotationUnavailable = 130, 409, "Rotation feature not available for this session's creation mode";
    /// A schedule of the kind.
    ScheduleSet = 131, 409, "A session rotation schedule of this type is already set on the session";
    /// No schedule of the kind.
    ScheduleNotSet = 132, 404, "No session rotation schedule of this type is set on the session";
    /// Once more after a stop.
    RotatedAfterStop = 133, 409, "Session was already rotated once since it became inactive";
    /// Nothing is written.
    NoOutput = 135, 409, "Session has no output";
    /// A relay daemon without chunks.
    RotationUnavailableRelay = 136, 409, "Rotation feature not available on the relay";
    /// A place in a program.
    UserProbeLocation = 138, 422, "Invalid userspace probe location";
    /// A program.
    Elf = 139, 422, "ELF parsing error";
    /// A rotation.
    RotationFailed = 141, 500, "Rotation failure on consumer";
    /// Files.
    CreateFile = 153, 500, "Failed to create file";
    /// A relay daemon that lets nobody clear.
    ClearDisallowedRelay = 156, 409, "Relayd daemon peer does not allow sessions to be cleared";
    /// A relay daemon without chunks.
    ClearUnavailableRelay = 157, 409, "Clearing a session is not supported by the relay daemon";
    /// Data.
    ClearFailed = 158, 500, "Consumer failed to clear the session";
    /// Nothing came since.
    ClearedAfterStop = 159, 409, "Session was already cleared since it became inactive";
    /// A name of a user.
    NoUser = 160, 422, "User not found";
    /// A name of a group.
    NoGroup = 161, 422, "Group not found";
    /// An attribute that a domain does not have.
    TrackerDomain = 162, 422, "Unsupported domain used";
    /// A set that is not one.
    TrackerPolicy = 163, 409,
        "Operation does not apply to the process attribute tracker's tracking policy";
    /// A map that makes no sense. LTTng 2.13 has no maps, and no number from here on.
    InvalidMap = 230, 422, "Invalid map";
    /// A map of that name is there.
    MapExists = 231, 409, "Map already exists";
    /// A map of that name.
    NoMap = 232, 404, "Map not found";
    /// Those of a user, or of all users together.
    TooManyConnections = 233, 429, "Too many connections";
    /// What a session records cannot be stored.
    DiskFull = 234, 507, "No space left on the disk of the session";
}
