//! Ids of users and groups: their names, and what threads and their namespaces have.

use super::read;

/// What owns a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A user.
    User,
    /// A group.
    Group,
}

/// The ids of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The real user.
    pub uid: u32,
    /// The real group.
    pub gid: u32,
    /// The process, as its own pid namespace numbers it; `None` if the kernel does not tell (before 4.1).
    pub virtual_process: Option<u32>,
}

/// The ids of a thread, by `/proc/TID/status` (proc_pid_status(5)); `None` if it has ended.
pub fn of_thread(tid: u32) -> Option<Ids> {
    let status = read::file(format!("/proc/{tid}/status")).ok()?;
    of_status(&String::from_utf8_lossy(&status))
}

fn of_status(status: &str) -> Option<Ids> {
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let real = |name| line(name)?.split_whitespace().next()?.parse().ok();
    Some(Ids {
        uid: real("Uid:")?,
        gid: real("Gid:")?,
        // From the namespace of this mount of proc to the innermost one.
        virtual_process: line("NStgid:").and_then(|numbers| numbers.split_whitespace().last()?.parse().ok()),
    })
}

/// How the user namespace of a thread numbers an owner; `None` if the thread has ended.
pub fn virtual_owner(tid: u32, owner: Owner, id: u32) -> Option<u32> {
    let map = match owner {
        Owner::User => "uid_map",
        Owner::Group => "gid_map",
    };
    let map = read::file(format!("/proc/{tid}/{map}")).ok()?;
    Some(inside(&String::from_utf8_lossy(&map), id).unwrap_or_else(|| overflow(owner)))
}

/// The id inside of a namespace, by the lines of its map (user_namespaces(7)): first id inside, first id
/// outside, and how many there are.
fn inside(map: &str, id: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (first, lower, count) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        let offset = id.checked_sub(lower).filter(|offset| *offset < count)?;
        first.checked_add(offset)
    })
}

/// The id that stands for those that a user namespace does not have.
pub fn overflow(owner: Owner) -> u32 {
    /// `DEFAULT_OVERFLOWUID`, include/linux/highuid.h.
    const DEFAULT: u32 = 65534;
    let path = match owner {
        Owner::User => "/proc/sys/kernel/overflowuid",
        Owner::Group => "/proc/sys/kernel/overflowgid",
    };
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(DEFAULT)
}

/// The id of a user or group, which is a number, or a name of `/etc/passwd` or `/etc/group`.
///
/// # Errors
/// There is no such name, as a message.
pub fn of_name(owner: Owner, text: &str) -> Result<u32, String> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let (path, what) = match owner {
        Owner::User => ("/etc/passwd", "user"),
        Owner::Group => ("/etc/group", "group"),
    };
    let names = std::fs::read_to_string(path).unwrap_or_default();
    named(&names, text).ok_or_else(|| format!("{path} has no {what} {text}; give the number"))
}

/// The third field of the line with this name (passwd(5), group(5)).
fn named(lines: &str, name: &str) -> Option<u32> {
    let mut lines = lines.lines().map(|line| line.split(':'));
    let found = lines.find_map(|mut fields| (fields.next() == Some(name)).then(|| fields.nth(1)).flatten());
    found?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_in_the_status_of_a_thread() {
        let status = "Name:\tx\nTgid:\t70\nNStgid:\t70\t12\t3\nUid:\t1000\t0\t0\t0\nGid:\t5\t6\t7\t8\n";
        let ids = of_status(status);
        assert_eq!(ids, Some(Ids { uid: 1000, gid: 5, virtual_process: Some(3) }));
        assert_eq!(of_status("Uid:\t1\nGid:\t2\n").and_then(|ids| ids.virtual_process), None);
        assert_eq!(of_status("Name:\tx\n"), None);
    }

    #[test]
    fn namespaces_number_their_owners() {
        let map = "         0     100000      65536\n     70000       1000          1\n";
        assert_eq!(inside(map, 100_007), Some(7));
        assert_eq!(inside(map, 1000), Some(70_000));
        assert_eq!(inside(map, 165_536), None);
        assert_eq!(inside("0 0 4294967295\n", 4_294_967_294), Some(4_294_967_294));
    }

    #[test]
    fn names_have_numbers() {
        let users = "root:x:0:0:root:/root:/bin/bash\nbad\nweb:x:33:33::/:/bin/sh\n";
        assert_eq!((named(users, "web"), named(users, "root")), (Some(33), Some(0)));
        assert_eq!((named(users, "bad"), named(users, "none")), (None, None));
        assert_eq!(of_name(Owner::Group, "4000000000"), Ok(4_000_000_000));
        assert!(of_name(Owner::User, "no-such-user").is_err());
    }
}
