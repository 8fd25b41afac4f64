//! A system bus of a test: Debian's dbus-daemon, and on it what does as systemd does with its units
//! (org.freedesktop.systemd1(5)).

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use futures_util::StreamExt as _;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use zbus::{Connection, Message, MessageStream, Variant, connection, message::Type};

use crate::harness::{Running, program, wait_for};

const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// A bus, with its socket in a directory of its own.
#[derive(Debug)]
pub struct Bus {
    dir: TempDir,
    process: Option<Running>,
}

impl Bus {
    /// The place of one that is not there yet.
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), process: None }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("bus")
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("unix:path={}", self.socket().display())
    }

    /// Starts it. As on the system bus, signals may be sent to anybody.
    pub fn start(&mut self) {
        let config = self.dir.path().join("bus.conf");
        let text = format!(
            "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\"\n \
             \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n<busconfig>\n\
             <type>system</type><listen>{}</listen><auth>EXTERNAL</auth>\n<policy context=\"default\">\n\
             <allow user=\"*\"/><allow own=\"*\"/><allow send_type=\"method_call\"/>\n\
             <allow send_type=\"signal\"/><allow send_type=\"method_return\"/><allow send_type=\"error\"/>\n\
             <allow receive_type=\"method_call\"/><allow receive_type=\"method_return\"/>\n\
             <allow receive_type=\"error\"/><allow receive_type=\"signal\"/>\n</policy>\n</busconfig>\n",
            self.address()
        );
        std::fs::write(&config, text).unwrap();
        let config = format!("--config-file={}", config.display());
        let mut command = program(Path::new("/"), "dbus-daemon", [&config, "--nofork", "--nopidfile"]);
        self.process = Some(Running::start(&mut command));
        wait_for("the bus", || std::os::unix::net::UnixStream::connect(self.socket()).ok());
    }

    /// Ends it.
    pub fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.signal(libc::SIGTERM);
            process.wait();
        }
        let _ = std::fs::remove_file(self.socket());
    }
}

impl Default for Bus {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A unit of it.
#[derive(Clone, Debug)]
struct Unit {
    state: &'static str,
    result: &'static str,
    since: u64,
}

#[derive(Debug, Default)]
struct State {
    units: BTreeMap<String, Unit>,
    /// Who has subscribed.
    subscribers: Vec<String>,
    /// How often a property was asked for.
    asked: usize,
}

/// What has systemd's name on a bus.
#[derive(Debug)]
pub struct Systemd {
    state: Arc<Mutex<State>>,
    connection: Connection,
    runtime: Runtime,
}

impl Systemd {
    /// Comes to a bus, with units that are failed already.
    pub fn start(bus: &Bus, failed: &[&str]) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let unit = |name: &&str| ((*name).to_owned(), Unit { state: "failed", result: "signal", since: 1 });
        let units = failed.iter().map(unit).collect();
        let state = Arc::new(Mutex::new(State { units, ..State::default() }));
        let connection = runtime.block_on(async {
            let connection = connection::Builder::address(bus.address().as_str()).build().await.unwrap();
            let calls = MessageStream::from(&connection);
            tokio::spawn(serve(calls, connection.clone(), Arc::clone(&state)));
            connection.request_name("org.freedesktop.systemd1").await.unwrap();
            connection
        });
        Self { state, connection, runtime }
    }

    /// Waits until somebody has subscribed to its signals; gives its name on the bus.
    pub fn subscriber(&self) -> String {
        wait_for("a subscriber", || self.state.lock().unwrap().subscribers.first().cloned())
    }

    /// How often properties were asked for.
    pub fn asked(&self) -> usize {
        self.state.lock().unwrap().asked
    }

    /// A unit is there without that anybody is told.
    pub fn load(&self, unit: &str, state: &'static str, result: &'static str, since: u64) {
        self.state.lock().unwrap().units.insert(unit.to_owned(), Unit { state, result, since });
    }

    /// A unit that was announced has another state: what has changed and what has not is told.
    pub fn change(&self, unit: &str, state: &'static str, result: &'static str, since: u64) {
        self.load(unit, state, result, since);
        let of_service =
            HashMap::from([("Result", Variant::from(result)), ("NRestarts", Variant::from(0_u32))]);
        let of_unit = HashMap::from([
            ("ActiveState", Variant::from(state)),
            ("SubState", Variant::from(state)),
            ("StateChangeTimestamp", Variant::from(since)),
        ]);
        for (interface, changed) in [(SERVICE, of_service), (UNIT, of_unit)] {
            let body = (interface, changed, vec!["ConditionTimestamp"]);
            self.signal(&self.connection, None, &path_of(unit), PROPERTIES, "PropertiesChanged", &body);
        }
    }

    /// A unit is announced.
    pub fn announce(&self, unit: &str) {
        let path = zbus::ObjectPath::try_from(path_of(unit)).unwrap();
        self.signal(&self.connection, None, PATH, MANAGER, "UnitNew", &(unit, path));
    }

    /// Somebody else says to who has subscribed that a unit has failed.
    pub fn lie(&self, bus: &Bus, unit: &str) {
        let to = self.subscriber();
        let other =
            self.runtime.block_on(connection::Builder::address(bus.address().as_str()).build()).unwrap();
        let changed = HashMap::from([("ActiveState", Variant::from("failed"))]);
        let body = (UNIT, changed, Vec::<&str>::new());
        self.signal(&other, Some(&to), &path_of(unit), PROPERTIES, "PropertiesChanged", &body);
    }

    fn signal<B: serde::Serialize + zbus::DynamicType>(
        &self,
        from: &Connection,
        to: Option<&str>,
        path: &str,
        interface: &str,
        name: &str,
        body: &B,
    ) {
        assert!(!self.state.lock().unwrap().subscribers.is_empty(), "nobody would be told");
        self.runtime.block_on(from.emit_signal(to, path, interface, name, body)).unwrap();
    }
}

/// Answers what is asked.
async fn serve(mut calls: MessageStream, connection: Connection, state: Arc<Mutex<State>>) {
    while let Some(Ok(call)) = calls.next().await {
        if call.message_type() == Type::MethodCall {
            answer(&call, &connection, &state).await.unwrap();
        }
    }
}

async fn answer(call: &Message, connection: &Connection, state: &Mutex<State>) -> zbus::Result<()> {
    let header = call.header();
    let body = call.body();
    match header.member().unwrap().as_str() {
        "Subscribe" => {
            state.lock().unwrap().subscribers.push(header.sender().unwrap().to_string());
            connection.reply(&header, &()).await
        }
        "ListUnitsFiltered" => {
            let (wanted,): (Vec<&str>,) = body.deserialize()?;
            let units = state.lock().unwrap().units.clone();
            let root = zbus::ObjectPath::try_from("/").unwrap();
            let of = |(name, unit): (&String, &Unit)| {
                let path = zbus::ObjectPath::try_from(path_of(name)).unwrap();
                let name = name.clone();
                (name, "", "loaded", unit.state, unit.state, "", path, 0_u32, "", root.clone())
            };
            let all: Vec<_> = units.iter().filter(|(_, unit)| wanted.contains(&unit.state)).map(of).collect();
            connection.reply(&header, &(all,)).await
        }
        "Get" => {
            let (_, property): (&str, &str) = body.deserialize()?;
            let path = header.path().unwrap().as_str();
            let unit = {
                let mut state = state.lock().unwrap();
                state.asked += 1;
                state.units.iter().find(|(name, _)| path_of(name) == path).map(|(_, unit)| unit.clone())
            };
            let Some(unit) = unit else {
                let error = "org.freedesktop.DBus.Error.UnknownObject";
                return connection.reply_error(&header, error, &"no such unit").await;
            };
            let value = match property {
                "ActiveState" => Variant::from(unit.state),
                "Result" => Variant::from(unit.result),
                _ => Variant::from(unit.since),
            };
            connection.reply(&header, &value).await
        }
        other => panic!("systemd is asked for {other}"),
    }
}

fn path_of(unit: &str) -> String {
    let label =
        |of: char| if of.is_ascii_alphanumeric() { of.to_string() } else { format!("_{:02x}", of as u32) };
    format!("{PATH}/unit/{}", unit.chars().map(label).collect::<String>())
}
