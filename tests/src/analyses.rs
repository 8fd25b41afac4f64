//! LTTng's analyses, which `cargo xtask setup` installs in `target/lttnganalyses`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::harness::{program, run};

/// What an analysis printed.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its exit code.
    pub code: i64,
    /// What it printed, and its traceback, if it had one.
    pub out: String,
    /// What it complained of.
    pub err: String,
}

/// Runs programs of the package by the names of their entry points, in one interpreter. The release of 2017
/// knows names that Python 3.10 moved, and soft interrupts by names that LTTng does not give them
/// (`irq_softirq_entry`). Unless told otherwise it leaves out what comes before the first packet of some CPU
/// or after the last one.
const SCRIPT: &str = "import collections, collections.abc, contextlib, io, json, sys, traceback
from importlib.metadata import distribution
for name in ('Mapping', 'MutableMapping', 'Iterable', 'Sequence'):
    if not hasattr(collections, name): setattr(collections, name, getattr(collections.abc, name))
from lttnganalyses.linuxautomaton.irq import IrqStateProvider
init = IrqStateProvider.__init__
def with_new_names(self, state):
    init(self, state)
    self._cbs.update({'irq_' + name: call for name, call in list(self._cbs.items()) if name.startswith('softirq')})
IrqStateProvider.__init__ = with_new_names
trace, period, names, args = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
ran = {}
for entry in distribution('lttnganalyses').entry_points:
    if entry.group != 'console_scripts' or names and entry.name not in names: continue
    quiet = [] if entry.name.endswith('-mi') else ['--no-progress']
    of = ['--period', period] if entry.name.startswith('lttng-period') else []
    sys.argv = [entry.name, '--skip-validation', '--no-intersection', *quiet, *of, *args, trace]
    raw, err, code = io.BytesIO(), io.StringIO(), 0
    out = io.TextIOWrapper(raw, encoding='utf-8')
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try: entry.load()()
        except SystemExit as end: code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException: code = -1; traceback.print_exc(file=out)
    out.flush()
    ran[entry.name] = [code, raw.getvalue().decode(), err.getvalue()]
print(json.dumps(ran))";

/// What the analyses of periods look at, which they have to be told.
const PERIOD: &str = r#"read : $evt.$name == "syscall_entry_read" : $evt.$name == "syscall_exit_read""#;

/// Runs these analyses on a trace, all of them if none are named, with these arguments.
pub fn analyse(trace: &Path, names: &[&str], args: &[&str]) -> BTreeMap<String, Ran> {
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lttnganalyses");
    let list = |texts: &[&str]| serde_json::to_string(texts).unwrap();
    let mut python = program("/".as_ref(), "/usr/bin/python3", ["-c", SCRIPT]);
    let ended =
        run(python.arg(trace).arg(PERIOD).args([list(names), list(args)]).env("PYTHONPATH", site)).expect(0);
    let ran: BTreeMap<String, (i64, String, String)> = serde_json::from_str(&ended.out).unwrap();
    ran.into_iter().map(|(name, (code, out, err))| (name, Ran { code, out, err })).collect()
}

/// The tables that an analysis (`lttng-cputop-mi`) finds in a trace, as its machine interface has them.
pub fn tables(trace: &Path, name: &str, args: &[&str]) -> Vec<Value> {
    let ran = &analyse(trace, &[name], args)[name];
    assert_eq!(ran.code, 0, "{name}: {ran:?}");
    let last = ran.out.trim().lines().next_back().unwrap();
    let told: Value = serde_json::from_str(last).unwrap();
    told["results"].as_array().unwrap().clone()
}

/// The rows of a table.
pub fn rows(table: &Value) -> &[Value] {
    table["data"].as_array().unwrap()
}
