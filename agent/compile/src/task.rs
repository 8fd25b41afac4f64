//! Facts about the current thread as instructions: what contexts and filters ask for.
//!
//! The members of the kernel's structures are found by its type information (BTF). What is not there, such as
//! the namespaces of a thread that has given them up at its end, has no value.

use bpf::insn::{Alu, Assembler, FP, Jump, Label, R0, R1, R2, R3};
use ftrace_event::context::Context;
use kernel::btf::Btf;

// include/uapi/linux/bpf.h, enum bpf_func_id.
const GET_CURRENT_PID_TGID: i32 = 14;
const GET_CURRENT_UID_GID: i32 = 15;
const GET_CURRENT_TASK: i32 = 35;
const GET_CURRENT_CGROUP_ID: i32 = 80;
const PROBE_READ_KERNEL: i32 = 113;
const PROBE_READ_KERNEL_STR: i32 = 115;

/// Stack that the code needs.
pub(crate) const SCRATCH: i16 = 48;
/// Where in it a value is read to, and where values are kept.
const READ: i16 = 0;
const KEPT: [i16; 3] = [8, 16, 24];
/// And where a range of ids is read to.
const RANGE: i16 = 32;

/// Bytes of a node name: `__NEW_UTS_LEN` (include/uapi/linux/utsname.h) and a NUL.
pub(crate) const HOSTNAME: u32 = 65;
/// Bytes of a container's name and a NUL: the longest prefix that runtimes have, 64 digits, `.scope`.
pub(crate) const CONTAINER: u32 = 96;

/// Ranges that a map of ids holds itself: `UID_GID_MAP_MAX_BASE_EXTENTS` (include/linux/user_namespace.h).
const RANGES: i32 = 5;
/// `sizeof(struct uid_gid_extent)`: the first id inside, the first id outside, their number.
const RANGE_BYTES: u32 = 12;
/// What an id is that is in no range, as long as nobody says otherwise (`DEFAULT_OVERFLOWUID`,
/// include/linux/highuid.h).
const OVERFLOW: u32 = 65534;

/// The kernel's priority of nice 0 (`DEFAULT_PRIO`, include/linux/sched/prio.h).
const NICE_0: i32 = 120;

/// Why there is no code for a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacking {
    /// This kernel has no such thing, or no type information that tells of it.
    Type,
    /// It is no number, or known only when the record is written.
    NoNumber,
}

/// Where the kernel has what is told of a thread.
#[derive(Debug, Default)]
pub(crate) struct TaskLayout {
    members: Vec<(Context, Path)>,
    texts: Vec<(Context, Text, Path)>,
    pids: Option<Pids>,
    ids: Option<Ids>,
    /// Whether the CPUs' preemption counters can be read.
    counts_preemption: bool,
    /// Whether the kernel counts how often preemption is disabled (`CONFIG_PREEMPTION`).
    is_preemptible: bool,
}

/// Members that lead from a task to a value: all but the last are pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Path(Vec<u32>);

/// Numbers of processes and threads in PID namespaces (`__task_pid_nr_ns`, kernel/pid.c).
#[derive(Clone, Copy, Debug)]
struct Pids {
    /// `task_struct.thread_pid`.
    thread: u32,
    /// `task_struct.real_parent`.
    parent: u32,
    /// `task_struct.signal`.
    signal: u32,
    /// `signal_struct.pids[PIDTYPE_TGID]`.
    process: u32,
    /// `pid.level`.
    level: u32,
    /// `pid.numbers[0].nr` and `.ns`, and the distance to those of the next level.
    number: u32,
    namespace: u32,
    step: u32,
    /// `pid_namespace.ns.inum`.
    inode: u32,
}

/// Ids in user namespaces (`from_kuid_munged`, kernel/user_namespace.c).
#[derive(Clone, Copy, Debug)]
struct Ids {
    /// `task_struct.cred`.
    cred: u32,
    /// `cred.user_ns`.
    namespace: u32,
    users: Map,
    groups: Map,
}

/// `struct uid_gid_map`.
#[derive(Clone, Copy, Debug)]
struct Map {
    /// Where it is in the user namespace.
    at: u32,
    /// Where it has the number of ranges, and the first of them.
    count: u32,
    ranges: u32,
    /// What an id is that is in none of them.
    overflow: u32,
}

/// Members that a number is in, of pointers one after the other.
const MEMBERS: [(Context, &[&str]); 16] = [
    (Context::Ppid, &["task_struct.real_parent", "task_struct.tgid"]),
    (Context::Prio, &["task_struct.prio"]),
    (Context::Nice, &["task_struct.static_prio"]),
    (Context::CgroupNs, &["task_struct.nsproxy", "nsproxy.cgroup_ns", "cgroup_namespace.ns.inum"]),
    (Context::IpcNs, &["task_struct.nsproxy", "nsproxy.ipc_ns", "ipc_namespace.ns.inum"]),
    (Context::MntNs, &["task_struct.nsproxy", "nsproxy.mnt_ns", "mnt_namespace.ns.inum"]),
    (Context::NetNs, &["task_struct.nsproxy", "nsproxy.net_ns", "net.ns.inum"]),
    (Context::TimeNs, &["task_struct.nsproxy", "nsproxy.time_ns", "time_namespace.ns.inum"]),
    (Context::UtsNs, &["task_struct.nsproxy", "nsproxy.uts_ns", "uts_namespace.ns.inum"]),
    (Context::UserNs, &["task_struct.cred", "cred.user_ns", "user_namespace.ns.inum"]),
    (Context::Uid, &["task_struct.cred", "cred.uid"]),
    (Context::Euid, &["task_struct.cred", "cred.euid"]),
    (Context::Suid, &["task_struct.cred", "cred.suid"]),
    (Context::Gid, &["task_struct.cred", "cred.gid"]),
    (Context::Egid, &["task_struct.cred", "cred.egid"]),
    (Context::Sgid, &["task_struct.cred", "cred.sgid"]),
];

/// Members that a text is in.
const TEXTS: [(Context, Text, &[&str]); 2] = [
    (
        Context::Hostname,
        Text::Array(HOSTNAME),
        &["task_struct.nsproxy", "nsproxy.uts_ns", "uts_namespace.name.nodename"],
    ),
    (
        Context::Container,
        Text::Pointer(CONTAINER),
        &[
            "task_struct.nsproxy",
            "nsproxy.cgroup_ns",
            "cgroup_namespace.root_cset",
            "css_set.dfl_cgrp",
            "cgroup.kn",
            "kernfs_node.name",
        ],
    ),
];

/// How the last member has a text, and how many bytes of it are read.
#[derive(Clone, Copy, Debug)]
enum Text {
    /// It is the text.
    Array(u32),
    /// It points to it.
    Pointer(u32),
}

impl TaskLayout {
    /// What the kernel's type information tells.
    pub(crate) fn new(btf: Option<&Btf>) -> Self {
        let path = |steps: &[&str]| {
            steps.iter().map(|step| btf?.member_offset(step).ok()).collect::<Option<Vec<_>>>().map(Path)
        };
        let members = MEMBERS.iter().filter_map(|(context, steps)| Some((*context, path(steps)?))).collect();
        let texts = TEXTS.iter().filter_map(|(context, text, steps)| Some((*context, *text, path(steps)?)));
        Self {
            members,
            texts: texts.collect(),
            pids: btf.and_then(Pids::find),
            ids: btf.and_then(Ids::find),
            counts_preemption: btf.is_some_and(|btf| btf.preempt_count().is_ok()),
            is_preemptible: btf.is_some_and(|btf| btf.has_function("preempt_schedule")),
        }
    }

    fn path(&self, context: Context) -> Result<&Path, Lacking> {
        self.members.iter().find(|(known, _)| *known == context).map(|(_, path)| path).ok_or(Lacking::Type)
    }

    /// Whether this kernel tells what a context is.
    pub(crate) fn has(&self, context: Context) -> bool {
        let mut code = Assembler::default();
        let absent = code.label();
        match context {
            Context::Hostname | Context::Container => self.texts.iter().any(|(known, ..)| *known == context),
            Context::NeedReschedule | Context::Migratable => self.counts_preemption,
            Context::Preemptible => self.counts_preemption && self.is_preemptible,
            _ => self.number(&mut code, context, 0, absent) != Err(Lacking::Type),
        }
    }

    /// Code that puts a number into R0, extended to 64 bits by its sign, or goes to `absent`. It takes R1 to
    /// R5, and [`SCRATCH`] bytes of the stack at `scratch`, a multiple of 8.
    pub(crate) fn number(
        &self,
        code: &mut Assembler,
        context: Context,
        scratch: i16,
        absent: Label,
    ) -> Result<(), Lacking> {
        let mut reader = Reader { code, scratch, absent };
        match context {
            Context::Pid => {
                reader.code.call_helper(GET_CURRENT_PID_TGID);
                reader.code.alu_imm(Alu::Rsh, R0, 32);
            }
            Context::Tid => {
                reader.code.call_helper(GET_CURRENT_PID_TGID);
                reader.sign_extend();
            }
            Context::Uid => {
                reader.code.call_helper(GET_CURRENT_UID_GID);
                reader.code.alu_imm(Alu::Lsh, R0, 32);
                reader.code.alu_imm(Alu::Rsh, R0, 32);
            }
            Context::Gid => {
                reader.code.call_helper(GET_CURRENT_UID_GID);
                reader.code.alu_imm(Alu::Rsh, R0, 32);
            }
            Context::Cgroup => reader.code.call_helper(GET_CURRENT_CGROUP_ID),
            Context::Ppid
            | Context::CgroupNs
            | Context::IpcNs
            | Context::MntNs
            | Context::NetNs
            | Context::TimeNs
            | Context::UtsNs
            | Context::UserNs
            | Context::Euid
            | Context::Suid
            | Context::Egid
            | Context::Sgid => reader.member(self.path(context)?),
            Context::Prio => {
                reader.member(self.path(context)?);
                reader.sign_extend();
            }
            Context::Nice => {
                reader.member(self.path(context)?);
                reader.code.alu_imm(Alu::Sub, R0, NICE_0);
            }
            Context::Vtid => reader.own_number(self.pids()?, Reader::thread),
            Context::Vpid => reader.own_number(self.pids()?, |reader, pids| {
                reader.task();
                reader.process(pids);
            }),
            Context::Vppid => reader.parent_number(self.pids()?),
            Context::PidNs => {
                let pids = self.pids()?;
                reader.thread(pids);
                reader.own_level(pids);
                reader.follow(8, pids.namespace);
                reader.follow(4, pids.inode);
            }
            Context::Vuid => reader.virtual_id(self.ids()?, Of::User, self.path(Context::Uid)?),
            Context::Veuid => reader.virtual_id(self.ids()?, Of::User, self.path(Context::Euid)?),
            Context::Vsuid => reader.virtual_id(self.ids()?, Of::User, self.path(Context::Suid)?),
            Context::Vgid => reader.virtual_id(self.ids()?, Of::Group, self.path(Context::Gid)?),
            Context::Vegid => reader.virtual_id(self.ids()?, Of::Group, self.path(Context::Egid)?),
            Context::Vsgid => reader.virtual_id(self.ids()?, Of::Group, self.path(Context::Sgid)?),
            Context::Comm
            | Context::Cpu
            | Context::Timestamp
            | Context::Hostname
            | Context::Container
            | Context::Interruptible
            | Context::Preemptible
            | Context::NeedReschedule
            | Context::Migratable => return Err(Lacking::NoNumber),
        }
        Ok(())
    }

    /// Code that copies a text to the address that `target` puts into R1, with zeros up to its room
    /// ([`HOSTNAME`], [`CONTAINER`]); zeros if there is none. It takes R0 to R5, and stack as
    /// [`Self::number`] does.
    pub(crate) fn text(
        &self,
        code: &mut Assembler,
        context: Context,
        scratch: i16,
        target: impl Fn(&mut Assembler),
    ) -> Result<(), Lacking> {
        let found = self.texts.iter().find(|(known, ..)| *known == context);
        let (_, text, Path(steps)) = found.ok_or(Lacking::Type)?;
        let (absent, copy) = (code.label(), code.label());
        let mut reader = Reader { code, scratch, absent };
        reader.task();
        for (index, &step) in steps.iter().enumerate() {
            match text {
                Text::Array(_) if index + 1 == steps.len() => {
                    reader.code.alu_imm(Alu::Add, R0, step.cast_signed());
                }
                _ => reader.follow(8, step),
            }
        }
        reader.code.goto(copy);
        reader.code.bind(absent);
        // An address that is never mapped.
        reader.code.load_imm(R0, 0);
        reader.code.bind(copy);
        reader.keep(0);
        let mut read = |helper, room: u32, source: Option<i16>| {
            target(code);
            code.load_imm(R2, room.into());
            match source {
                Some(kept) => code.load(8, R3, FP, scratch + kept),
                None => code.load_imm(R3, 0),
            }
            code.call_helper(helper);
        };
        // A refused read fills its destination with zeros (`bpf_probe_read_kernel_common`,
        // kernel/trace/bpf_trace.c).
        match *text {
            Text::Array(room) => read(PROBE_READ_KERNEL, room, Some(KEPT[0])),
            Text::Pointer(room) => {
                read(PROBE_READ_KERNEL, room, None);
                read(PROBE_READ_KERNEL_STR, room, Some(KEPT[0]));
            }
        }
        Ok(())
    }

    fn pids(&self) -> Result<Pids, Lacking> {
        self.pids.ok_or(Lacking::Type)
    }

    fn ids(&self) -> Result<Ids, Lacking> {
        self.ids.ok_or(Lacking::Type)
    }
}

impl Pids {
    fn find(btf: &Btf) -> Option<Self> {
        let offset = |path| btf.member_offset(path).ok();
        let upid = btf.type_named("upid").ok()?;
        let kinds = btf.type_named("pid_type").ok()?;
        let process = btf.enumerator(kinds, "PIDTYPE_TGID").ok()??;
        Some(Self {
            thread: offset("task_struct.thread_pid")?,
            parent: offset("task_struct.real_parent")?,
            signal: offset("task_struct.signal")?,
            process: offset("signal_struct.pids")? + 8 * u32::try_from(process).ok()?,
            level: offset("pid.level")?,
            number: offset("pid.numbers")? + offset("upid.nr")?,
            namespace: offset("pid.numbers")? + offset("upid.ns")?,
            step: btf.size_of(upid).ok()?,
            inode: offset("pid_namespace.ns.inum")?,
        })
    }
}

impl Ids {
    fn find(btf: &Btf) -> Option<Self> {
        let offset = |path| btf.member_offset(path).ok();
        let map = |member, setting| {
            Some(Map {
                at: offset(member)?,
                count: offset("uid_gid_map.nr_extents")?,
                ranges: offset("uid_gid_map.extent")?,
                overflow: overflow(setting),
            })
        };
        Some(Self {
            cred: offset("task_struct.cred")?,
            namespace: offset("cred.user_ns")?,
            users: map("user_namespace.uid_map", "/proc/sys/kernel/overflowuid")?,
            groups: map("user_namespace.gid_map", "/proc/sys/kernel/overflowgid")?,
        })
    }
}

/// What this kernel calls ids that a namespace does not have.
fn overflow(setting: &str) -> u32 {
    std::fs::read_to_string(setting).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(OVERFLOW)
}

/// Whose ids.
#[derive(Clone, Copy, Debug)]
enum Of {
    User,
    Group,
}

/// Code that reads what a thread has.
struct Reader<'a> {
    code: &'a mut Assembler,
    scratch: i16,
    /// Where a value that cannot be read leads.
    absent: Label,
}

impl Reader<'_> {
    /// The current task, in R0.
    fn task(&mut self) {
        self.code.call_helper(GET_CURRENT_TASK);
    }

    /// Loads `size` bytes from where R0 plus `offset` points into R0.
    fn follow(&mut self, size: u32, offset: u32) {
        self.read(READ, size, offset);
        self.code.load(size, R0, FP, self.scratch + READ);
    }

    /// Copies `size` bytes from where R0 plus `offset` points.
    fn read(&mut self, to: i16, size: u32, offset: u32) {
        self.code.address(R3, R0, offset.cast_signed());
        self.code.address(R1, FP, (self.scratch + to).into());
        self.code.load_imm(R2, size.into());
        self.code.call_helper(PROBE_READ_KERNEL);
        self.code.jump_imm(Jump::NotEqual, R0, 0, self.absent);
    }

    fn keep(&mut self, index: usize) {
        self.code.store(8, FP, self.scratch + KEPT[index], R0);
    }

    fn kept(&mut self, index: usize) {
        self.code.load(8, R0, FP, self.scratch + KEPT[index]);
    }

    fn sign_extend(&mut self) {
        self.code.alu_imm(Alu::Lsh, R0, 32);
        self.code.alu_imm(Alu::Arsh, R0, 32);
    }

    /// The number of 32 bits that a path leads to from the current task.
    fn member(&mut self, Path(steps): &Path) {
        self.task();
        for (index, &step) in steps.iter().enumerate() {
            let size = if index + 1 == steps.len() { 4 } else { 8 };
            self.follow(size, step);
        }
    }

    /// The `struct pid` of the current thread.
    fn thread(&mut self, pids: Pids) {
        self.task();
        self.follow(8, pids.thread);
    }

    /// The `struct pid` of the process that the task in R0 is of.
    fn process(&mut self, pids: Pids) {
        self.follow(8, pids.signal);
        self.follow(8, pids.process);
    }

    /// From a `struct pid` to what is added to the offsets in `numbers[0]` for its own level: that of its own
    /// namespace.
    fn own_level(&mut self, pids: Pids) {
        self.keep(0);
        self.follow(4, pids.level);
        self.at_level(pids, 0);
    }

    /// The same for the level in R0, of the `struct pid` that is kept.
    fn at_level(&mut self, pids: Pids, kept: usize) {
        self.code.alu_imm(Alu::Mul, R0, pids.step.cast_signed());
        self.code.load(8, R1, FP, self.scratch + KEPT[kept]);
        self.code.alu(Alu::Add, R0, R1);
    }

    /// The number in its own namespace of what `pid` leads to.
    fn own_number(&mut self, pids: Pids, pid: impl Fn(&mut Self, Pids)) {
        pid(self, pids);
        self.own_level(pids);
        self.follow(4, pids.number);
        self.sign_extend();
    }

    /// The number of the parent process in the current thread's namespace, or 0.
    fn parent_number(&mut self, pids: Pids) {
        let (none, done) = (self.code.label(), self.code.label());
        self.task();
        self.follow(8, pids.parent);
        self.process(pids);
        self.keep(2);
        self.thread(pids);
        self.keep(0);
        self.follow(4, pids.level);
        self.keep(1);
        self.at_level(pids, 0);
        self.follow(8, pids.namespace);
        self.keep(0);
        self.kept(2);
        self.follow(4, pids.level);
        self.code.load(8, R1, FP, self.scratch + KEPT[1]);
        self.code.jump(Jump::Less, R0, R1, none);
        self.kept(1);
        self.at_level(pids, 2);
        self.keep(2);
        self.follow(8, pids.namespace);
        self.code.load(8, R1, FP, self.scratch + KEPT[0]);
        self.code.jump(Jump::NotEqual, R0, R1, none);
        self.kept(2);
        self.follow(4, pids.number);
        self.sign_extend();
        self.code.goto(done);
        self.code.bind(none);
        self.code.load_imm(R0, 0);
        self.code.bind(done);
    }

    /// An id as the thread's user namespace has it (`map_id_up`, kernel/user_namespace.c). A namespace with
    /// more than [`RANGES`] ranges keeps them elsewhere, sorted; ids in it have no value here.
    fn virtual_id(&mut self, ids: Ids, of: Of, id: &Path) {
        let map = match of {
            Of::User => ids.users,
            Of::Group => ids.groups,
        };
        let done = self.code.label();
        let unmapped = self.code.label();
        self.member(id);
        self.keep(0);
        self.task();
        self.follow(8, ids.cred);
        self.follow(8, ids.namespace);
        self.code.alu_imm(Alu::Add, R0, map.at.cast_signed());
        self.keep(1);
        self.follow(4, map.count);
        self.code.jump_imm(Jump::Greater, R0, RANGES, self.absent);
        self.keep(2);
        for range in 0..RANGES {
            let next = self.code.label();
            self.kept(2);
            self.code.jump_imm(Jump::LessEqual, R0, range, unmapped);
            self.kept(1);
            self.read(RANGE, RANGE_BYTES, map.ranges + RANGE_BYTES * range.cast_unsigned());
            self.kept(0);
            self.code.load(4, R1, FP, self.scratch + RANGE + 4);
            self.code.jump(Jump::Less, R0, R1, next);
            self.code.alu(Alu::Sub, R0, R1);
            self.code.load(4, R1, FP, self.scratch + RANGE + 8);
            self.code.jump(Jump::GreaterEqual, R0, R1, next);
            self.code.load(4, R1, FP, self.scratch + RANGE);
            self.code.alu(Alu::Add, R0, R1);
            self.code.goto(done);
            self.code.bind(next);
        }
        self.code.bind(unmapped);
        self.code.load_imm(R0, map.overflow.into());
        self.code.bind(done);
    }
}
