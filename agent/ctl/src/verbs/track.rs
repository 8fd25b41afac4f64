//! `track` and `untrack`.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};

use super::super::at::{At, Done, Failure};
use super::super::client::ClientError;
use super::super::document::Node;
use super::super::nodes;
use super::domains::Domains;
use super::{InSession, several};
use api::requests::Track as Change;
use api::track::Attribute;
use api::{Code, Domain, Tracked};
use stdx::input::glob;

/// Which attributes of processes are meant, with their values.
#[derive(Args, Debug)]
pub struct Attributes {
    #[command(flatten)]
    pub session: InSession,

    #[command(flatten)]
    pub domains: Domains,

    /// Processes, by their ids; separated by commas
    #[arg(short, long, value_name = "PID", num_args = 0..=1, default_missing_value = "")]
    pub pid: Option<String>,

    /// Processes, by the ids that their own pid namespaces give them
    #[arg(long, value_name = "PID", num_args = 0..=1, default_missing_value = "")]
    pub vpid: Option<String>,

    /// Users, by id or name
    #[arg(long, value_name = "USER", num_args = 0..=1, default_missing_value = "")]
    pub uid: Option<String>,

    /// Users, by the ids that their own user namespaces give them, or by name
    #[arg(long, value_name = "USER", num_args = 0..=1, default_missing_value = "")]
    pub vuid: Option<String>,

    /// Groups, by id or name
    #[arg(long, value_name = "GROUP", num_args = 0..=1, default_missing_value = "")]
    pub gid: Option<String>,

    /// Groups, by the ids that their own user namespaces give them, or by name
    #[arg(long, value_name = "GROUP", num_args = 0..=1, default_missing_value = "")]
    pub vgid: Option<String>,

    /// Control groups with those in them: paths
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "")]
    pub cgroup: Option<String>,

    /// Threads, by their names, with wildcards
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, default_missing_value = "", value_parser = OsStringValueParser::new().map(glob::argument))]
    pub comm: Option<String>,

    /// All values of the attributes
    #[arg(short, long)]
    pub all: bool,
}

/// Record processes with these attributes
#[derive(Args, Debug)]
pub struct Track {
    #[command(flatten)]
    pub of: Attributes,
}

/// Do not record processes with these attributes
#[derive(Args, Debug)]
pub struct Untrack {
    #[command(flatten)]
    pub of: Attributes,
}

/// What texts call an attribute: `Virtual process ID`.
fn title(attribute: Attribute) -> &'static str {
    match attribute {
        Attribute::Pid => "Process ID",
        Attribute::Vpid => "Virtual process ID",
        Attribute::Uid => "User ID",
        Attribute::Vuid => "Virtual user ID",
        Attribute::Gid => "Group ID",
        Attribute::Vgid => "Virtual group ID",
        Attribute::Cgroup => "Control group",
        Attribute::Comm => "Thread name",
    }
}

/// The same within a sentence: `virtual process ID`.
fn within(attribute: Attribute) -> String {
    let title = title(attribute);
    title[..1].to_lowercase() + &title[1..]
}

impl Attributes {
    /// The attributes that are given, with their values.
    fn given(&self, domain: Domain) -> impl Iterator<Item = (Attribute, &str)> {
        // Processes of user space have virtual ids only; LTTng takes the one for the other there.
        let pid = if domain == Domain::User { Attribute::Vpid } else { Attribute::Pid };
        [
            (pid, &self.pid),
            (Attribute::Vpid, &self.vpid),
            (Attribute::Uid, &self.uid),
            (Attribute::Vuid, &self.vuid),
            (Attribute::Gid, &self.gid),
            (Attribute::Vgid, &self.vgid),
            (Attribute::Cgroup, &self.cgroup),
            (Attribute::Comm, &self.comm),
        ]
        .into_iter()
        .filter_map(|(attribute, values)| Some((attribute, values.as_deref()?)))
    }

    fn run(&self, at: &mut At, add: bool) -> Done {
        let domain = self.domains.one()?;
        if self.given(domain).next().is_none() {
            return Err(Failure::new("At least one process attribute must be specified"));
        }
        let session = at.session(self.session.session.as_deref())?;
        let mut trackers = Vec::new();
        let mut failed = None;
        for (attribute, values) in self.given(domain) {
            let mut parts = Vec::new();
            let done = match (values, self.all) {
                ("", false) => Err(Failure::new(format!(
                    "No process attribute value specified for {} tracker",
                    title(attribute)
                ))),
                ("", true) => all(at, &session, domain, attribute, add, &mut parts),
                (values, _) => each(at, &session, domain, attribute, add, values, &mut parts),
            };
            if let Err(Failure { text, code, .. }) = done {
                if let Some(text) = text {
                    at.say.error(&text);
                }
                failed = Some(code);
            }
            let values = Node::Items("process_attr_values", parts);
            trackers.push(Node::Parts(nodes::attribute(attribute).0, vec![values]));
        }
        at.output.push(Node::Kinds("process_attr_trackers", trackers));
        failed.map_or(Ok(()), |code| Err(Failure::said(code)))
    }
}

/// Lets all values through, or none.
fn all(
    at: &mut At,
    session: &str,
    domain: Domain,
    attribute: Attribute,
    add: bool,
    parts: &mut Vec<Node>,
) -> Done {
    let result = at.client()?.track(session, domain, &Change { attribute, values: Tracked::All, add });
    let kind = Node::Parts("type", vec![Node::Flag("all", true)]);
    parts.push(Node::Parts(nodes::attribute(attribute).1, vec![kind, Node::success(result.is_ok())]));
    result?;
    let policy = if add { "include all" } else { "exclude all" };
    at.say.line(&format!("{} tracking policy set to `{policy}`", title(attribute)));
    Ok(())
}

/// Adds or removes values one by one. One that is so already is a warning.
fn each(
    at: &mut At,
    session: &str,
    domain: Domain,
    attribute: Attribute,
    add: bool,
    values: &str,
    parts: &mut Vec<Node>,
) -> Done {
    let name = within(attribute);
    let is_number = |value: &str| value.parse::<u32>().is_ok();
    if matches!(attribute, Attribute::Pid | Attribute::Vpid)
        && let Some(wrong) = several(values).find(|value| !is_number(value))
    {
        return Err(Failure::new(format!("{wrong} is not a valid {name} value; expected an integer")));
    }
    let mut done = Ok(());
    for value in several(values) {
        let change = Change { attribute, values: Tracked::Only(vec![value.to_owned()]), add };
        let result = at.client()?.track(session, domain, &change);
        let text = match (&result, add) {
            (Ok(_), true) => Ok(format!("Added {value} to the {name} tracker inclusion set")),
            (Ok(_), false) => Ok(format!("Removed {value} from the {name} tracker inclusion set")),
            (Err(error), _) => Err(refused(error, value, &name)),
        };
        let success = match text {
            Ok(text) => {
                at.say.line(&text);
                true
            }
            Err(Refusal::Warning(text)) => {
                at.say.warning(&text);
                true
            }
            Err(Refusal::Error(text)) => {
                at.say.error(&text);
                done = Err(Failure::said(super::super::at::COMMAND_ERROR));
                false
            }
        };
        parts.push(nodes::value(attribute, value, Some(success)));
    }
    done
}

enum Refusal {
    Warning(String),
    Error(String),
}

fn refused(error: &ClientError, value: &str, name: &str) -> Refusal {
    match error.code() {
        Code::AlreadyTracked => Refusal::Warning(format!("{value} is already in the {name} inclusion set")),
        Code::NotTracked => Refusal::Warning(format!("{value} is not in the {name} inclusion set")),
        Code::NoUser => Refusal::Error(format!("User `{value}` was not found")),
        Code::NoGroup => Refusal::Error(format!("Group `{value}` was not found")),
        _ => Refusal::Error(error.text()),
    }
}

impl Track {
    pub fn run(&self, at: &mut At) -> Done {
        self.of.run(at, true)
    }
}

impl Untrack {
    pub fn run(&self, at: &mut At) -> Done {
        self.of.run(at, false)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::at::tests::Desk;
    use super::*;
    use api::Tracker;

    const TRACKERS: &str = "POST /v1/sessions/a/domains/user/trackers";

    #[test]
    fn processes_are_tracked() {
        let mut desk = Desk::with_session("a");
        let tracker = Tracker { attribute: Attribute::Vpid, tracked: Tracked::All };
        desk.story.answers(TRACKERS, &tracker);
        desk.story.answers(TRACKERS, &tracker);
        let out = "Added 1 to the virtual process ID tracker inclusion set\n\
                   Added 2 to the virtual process ID tracker inclusion set\n";
        desk.says("track -u --vpid 1,2", 0, out, "");
        desk.story.refuses(TRACKERS, Code::AlreadyTracked);
        let warning = "Warning: 2 is already in the virtual process ID inclusion set\n";
        desk.says("track -u --pid=2", 0, "", warning);
        desk.story.answers(TRACKERS, &tracker);
        desk.says(
            "untrack -u --vpid 1",
            0,
            "Removed 1 from the virtual process ID tracker inclusion set\n",
            "",
        );
        desk.story.answers(TRACKERS, &tracker);
        let out = "Virtual group ID tracking policy set to `exclude all`\n";
        desk.says("untrack -u --vgid --all", 0, out, "");
        desk.story.answers(TRACKERS, &tracker);
        let xml = desk.lttng("--mi xml track -u --vuid root").out;
        assert!(xml.contains(
            "<process_attr_trackers><vuid_process_attr_tracker><process_attr_values><vuid><type><name>root\
             </name></type><success>true</success></vuid></process_attr_values></vuid_process_attr_tracker>\
             </process_attr_trackers>"
        ));
    }

    #[test]
    fn wrong_values_are_told() {
        let mut desk = Desk::with_session("a");
        desk.story.refuses(TRACKERS, Code::NoUser);
        desk.says("track -u --vuid nobody-here", 1, "", "Error: User `nobody-here` was not found\n");
        for (line, error) in [
            ("track -u", "At least one process attribute must be specified"),
            ("track --vpid 7", "Please specify a domain (--kernel/--userspace)."),
            ("track -u --vpid", "No process attribute value specified for Virtual process ID tracker"),
            ("track -u --vpid abc", "abc is not a valid virtual process ID value; expected an integer"),
        ] {
            desk.says(line, 1, "", &format!("Error: {error}\n"));
        }
    }
}
