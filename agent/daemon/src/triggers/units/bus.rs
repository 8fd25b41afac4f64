//! What systemd says of its units on the system bus (org.freedesktop.systemd1(5)).
//!
//! Of systemd's sources (`src/core/dbus-unit.c` and `service.c`, the same in 252 and later ones): signals are
//! sent to who has called `Subscribe`. A unit that changes sends `PropertiesChanged` of the interface of its
//! type, where a service's `Result` is, and then that of `org.freedesktop.systemd1.Unit`, where `ActiveState`
//! is: all that are told of changes, not only those that have changed (`send_changed_signal`). One that was
//! not announced sends `UnitNew` instead, whatever its state has come to be (`bus_unit_send_change_signal`).
//! A change that waits is sent before the next state is entered (`service_set_state`): so a service that is
//! started again at once is told of as failed in between. One that goes is told of before `UnitRemoved`.

use std::{
    collections::{HashMap, VecDeque},
    num::NonZeroUsize,
    pin::pin,
    time::Duration,
};

use futures_util::StreamExt as _;
use zbus::{
    Connection, DynamicType, Error, MatchRule, Message, MessageStream, OwnedObjectPath, Variant, connection,
    message::Type,
};

use super::known::{Known, OF_UNITS, interface_of, is_name, unit_of};

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const BUS: &str = "org.freedesktop.DBus";
/// Where the bus is, if the environment does not say it (D-Bus specification, "Well-known Message Bus
/// Instances").
const ADDRESS: &str = "unix:path=/run/dbus/system_bus_socket";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most signals that wait; then the bus has to.
const SIGNALS_MAX: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// The most signals that wait while a question is answered.
const LATER_MAX: usize = 1024;
/// The longest `Result` that is told.
const RESULT_MAX: usize = 64;

/// A unit that has failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) unit: String,
    pub(super) result: Option<String>,
    /// When, in microseconds since 1970.
    pub(super) since: Option<u64>,
}

/// A connection to the bus, subscribed to systemd's signals.
#[derive(Debug)]
pub(super) struct Bus {
    connection: Connection,
    /// The signals of who is systemd on this bus: nobody else can send some in its name.
    signals: MessageStream,
    /// Whether somebody else has come to be systemd.
    owners: MessageStream,
    /// Signals that came while a question was answered.
    later: VecDeque<Message>,
    /// The last `Result` that came, with its unit: that of the signal that comes next.
    last: Option<(String, String)>,
}

/// How a unit is.
#[derive(Debug, Default)]
struct Seen {
    state: Option<String>,
    since: Option<u64>,
}

impl Bus {
    /// Connects.
    ///
    /// # Errors
    /// There is no bus, or no systemd on it.
    pub(super) async fn connect() -> zbus::Result<Self> {
        let address = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_else(|_| ADDRESS.to_owned());
        let connecting = connection::Builder::address(address.as_str()).method_timeout(PATIENCE).build();
        let connection = tokio::time::timeout(PATIENCE, connecting).await;
        let connection = connection.map_err(|_| Error::Failure("nobody answers".to_owned()))??;
        let of_bus = || MatchRule::builder().msg_type(Type::Signal).sender(BUS);
        let changes = of_bus().interface(BUS).member("NameOwnerChanged").arg(0, SYSTEMD).build()?;
        let owners = MessageStream::for_match_rule(changes, &connection, None).await?;
        let reply =
            connection.call_method(Some(BUS), "/org/freedesktop/DBus", Some(BUS), "GetNameOwner", &SYSTEMD);
        let reply = reply.await.map_err(|error| match error {
            Error::MethodError(..) | Error::FDO(_) => Error::Failure("systemd is not there".to_owned()),
            other => other,
        })?;
        let body = reply.body();
        let owner: &str = body.deserialize()?;
        let all = MatchRule::builder().msg_type(Type::Signal).sender(owner).path_namespace(MANAGER_PATH);
        let signals = MessageStream::for_match_rule(all.build()?, &connection, Some(SIGNALS_MAX)).await?;
        let mut bus = Self { connection, signals, owners, later: VecDeque::new(), last: None };
        bus.call(MANAGER_PATH, MANAGER, "Subscribe", &()).await?;
        Ok(bus)
    }

    /// The units that are failed now.
    pub(super) async fn failed(&mut self) -> zbus::Result<Vec<String>> {
        type Listed<'a> = (
            &'a str,
            &'a str,
            &'a str,
            &'a str,
            &'a str,
            &'a str,
            OwnedObjectPath,
            u32,
            &'a str,
            OwnedObjectPath,
        );
        let reply = self.call(MANAGER_PATH, MANAGER, "ListUnitsFiltered", &(vec!["failed"],)).await?;
        let body = reply.body();
        let all: Vec<Listed<'_>> = body.deserialize()?;
        Ok(all.into_iter().map(|unit| unit.0.to_owned()).filter(|name| is_name(name)).collect())
    }

    /// What is known of a failure of a unit.
    pub(super) async fn failure(&mut self, unit: String, since: Option<u64>) -> zbus::Result<Failure> {
        let result = match self.last.take() {
            Some((of, result)) if of == unit => Some(result),
            _ => match interface_of(&unit) {
                Some(interface) => self.text(&unit, interface, "Result").await?,
                None => None,
            },
        };
        Ok(Failure { unit, result: result.map(short), since })
    }

    /// Waits for a signal; gives the failure that it tells of, if that is none that was known, of a unit that
    /// is meant.
    ///
    /// # Errors
    /// The connection has ended, or systemd is another one.
    pub(super) async fn next(
        &mut self,
        known: &mut Known,
        is_meant: impl Fn(&str) -> bool,
    ) -> zbus::Result<Option<Failure>> {
        let signal = if let Some(signal) = self.later.pop_front() {
            signal
        } else {
            tokio::select! {
                _ = self.owners.next() => {
                    return Err(Error::Failure("systemd has left the bus".to_owned()));
                }
                signal = self.signals.next() => signal.ok_or_else(ended)??,
            }
        };
        let header = signal.header();
        let (Some(interface), Some(member)) = (header.interface(), header.member()) else { return Ok(None) };
        let seen = match (interface.as_str(), member.as_str()) {
            (PROPERTIES, "PropertiesChanged") => {
                let Some(unit) = header.path().and_then(|path| unit_of(path.as_str())) else {
                    return Ok(None);
                };
                self.has_changed(&signal, unit).await?
            }
            (MANAGER, "UnitNew") => match unit_in(&signal) {
                Some(unit) if is_meant(&unit) => Some((self.look_at(&unit).await?, unit)),
                _ => None,
            },
            (MANAGER, "UnitRemoved") => {
                if let Some(unit) = unit_in(&signal) {
                    known.is_gone(&unit);
                }
                None
            }
            (MANAGER, "Reloading") => {
                known.is_reloading = signal.body().deserialize().unwrap_or(false);
                None
            }
            _ => None,
        };
        let Some((Seen { state: Some(state), since }, unit)) = seen else { return Ok(None) };
        if state != "failed" {
            known.is_well(&unit);
            return Ok(None);
        }
        if !known.has_failed(&unit, since) || !is_meant(&unit) {
            return Ok(None);
        }
        self.failure(unit, since).await.map(Some)
    }

    /// Properties of a unit have changed.
    async fn has_changed(&mut self, signal: &Message, unit: String) -> zbus::Result<Option<(Seen, String)>> {
        type Changed<'a> = (&'a str, HashMap<&'a str, Variant<'a>>, Vec<&'a str>);

        let body = signal.body();
        // What is none is not systemd's.
        let Ok((interface, properties, invalidated)) = body.deserialize::<Changed<'_>>() else {
            return Ok(None);
        };
        if interface != UNIT {
            if let (true, Some(result)) =
                (Some(interface) == interface_of(&unit), properties.get("Result").and_then(text))
            {
                self.last = Some((unit, result.to_owned()));
            }
            return Ok(None);
        }
        if invalidated.contains(&"ActiveState") {
            return Ok(Some((self.look_at(&unit).await?, unit)));
        }
        let state = properties.get("ActiveState").and_then(text).map(str::to_owned);
        let since = properties.get("StateChangeTimestamp").and_then(number);
        Ok(Some((Seen { state, since }, unit)))
    }

    /// How a unit is now.
    async fn look_at(&mut self, unit: &str) -> zbus::Result<Seen> {
        let state = self.text(unit, UNIT, "ActiveState").await?;
        let since = match &state {
            Some(state) if state == "failed" => {
                let reply = self.property(unit, UNIT, "StateChangeTimestamp").await?;
                reply.and_then(|reply| number(&reply.body().deserialize().ok()?))
            }
            _ => None,
        };
        Ok(Seen { state, since })
    }

    async fn text(&mut self, unit: &str, interface: &str, name: &str) -> zbus::Result<Option<String>> {
        let reply = self.property(unit, interface, name).await?;
        Ok(reply.and_then(|reply| text(&reply.body().deserialize().ok()?).map(str::to_owned)))
    }

    /// Asks for a property of a unit; `None` if there is no such unit any more.
    async fn property(&mut self, unit: &str, interface: &str, name: &str) -> zbus::Result<Option<Message>> {
        match self.call(&path_of(unit), PROPERTIES, "Get", &(interface, name)).await {
            Ok(reply) => Ok(Some(reply)),
            Err(Error::MethodError(..) | Error::FDO(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks systemd. Signals that come meanwhile wait: where nobody takes them, the answer does not come.
    async fn call<B>(&mut self, path: &str, interface: &str, method: &str, body: &B) -> zbus::Result<Message>
    where
        B: serde::Serialize + DynamicType,
    {
        let connection = self.connection.clone();
        let mut call = pin!(connection.call_method(Some(SYSTEMD), path, Some(interface), method, body));
        loop {
            tokio::select! {
                biased;
                reply = call.as_mut() => return reply,
                Some(Ok(signal)) = self.signals.next(), if self.later.len() < LATER_MAX => {
                    self.later.push_back(signal);
                }
            }
        }
    }
}

fn ended() -> Error {
    Error::Failure("the connection has ended".to_owned())
}

/// The object of a unit.
fn path_of(unit: &str) -> String {
    let mut path = OF_UNITS.to_owned();
    for (at, byte) in unit.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || at != 0 && byte.is_ascii_digit() {
            path.push(byte.into());
        } else {
            path.push_str(&format!("_{byte:02x}"));
        }
    }
    path
}

/// The unit that a signal of the manager is about.
fn unit_in(signal: &Message) -> Option<String> {
    let body = signal.body();
    let (unit, _): (&str, OwnedObjectPath) = body.deserialize().ok()?;
    is_name(unit).then(|| unit.to_owned())
}

fn text<'a>(value: &'a Variant<'_>) -> Option<&'a str> {
    match value {
        Variant::Str(text) => Some(text.as_str()),
        _ => None,
    }
}

fn number(value: &Variant<'_>) -> Option<u64> {
    match value {
        Variant::U64(number) => Some(*number),
        _ => None,
    }
}

fn short(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(RESULT_MAX));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_names() {
        for unit in ["ssh.service", "getty@tty1.service", "-.mount", "0a_b\\x2dc.scope"] {
            assert_eq!(unit_of(&path_of(unit)).as_deref(), Some(unit));
        }
        assert_eq!(path_of("0-a.service"), format!("{OF_UNITS}_30_2da_2eservice"));
    }
}
