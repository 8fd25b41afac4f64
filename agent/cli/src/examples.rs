//! Examples of the commands, for their help texts and man pages. A test of the man pages parses each line.

pub(super) const ALL: &str = "EXAMPLES
  tracer-agent record -e sched sleep 5
  tracer-agent report | less
  tracer-agent doctor";

pub(super) const RECOVER: &str = "EXAMPLES
  tracer-agent recover trace.dat
  tracer-agent recover -o saved.dat trace.dat.spool";

pub(super) const LIST: &str = "EXAMPLES
  tracer-agent list -e 'sched:*' --fields
  tracer-agent list --functions 'tcp_*'
  tracer-agent list --types task_struct
  tracer-agent list --symbols /bin/bash --match 'read*'";

pub(super) const REPORT: &str = "EXAMPLES
  tracer-agent report
  tracer-agent report -F 'sched_switch: prev_state == 0 && next_pid != 7' trace.dat
  tracer-agent report --cpu 0,2-4 --comm bash --limit 100
  tracer-agent report --json trace.dat
  tracer-agent report --follow trace.dat
  tracer-agent record -e sched -o - sleep 1 | tracer-agent report -
  tracer-agent report --folded -F kmalloc trace.dat";

pub(super) const HIST: &str = "EXAMPLES
  tracer-agent hist sched_switch next_comm
  tracer-agent hist trace.dat kmalloc call_site.sym --value bytes_req --sort bytes_req
  tracer-agent hist kmalloc stacktrace --value bytes_alloc --limit 20
  tracer-agent hist sys_exit_read ret --by COMM
  tracer-agent hist --from sched_waking --to sched_switch --key pid=next_pid
  tracer-agent hist --from 'sys_enter_.*' --to 'sys_exit_.*' --key common_pid --by __syscall_nr
  tracer-agent hist --from sched_switch --to sched_switch --key prev_pid=next_pid --by prev_pid";

pub(super) const ANALYZE: &str = "EXAMPLES
  tracer-agent analyze sched
  tracer-agent analyze sched --live
  tracer-agent analyze offcpu --live=5s --comm 'nginx*' trace.dat
  tracer-agent analyze syscalls trace.dat --comm 'nginx*' -n 50
  tracer-agent analyze cpu --flame cpu.svg
  tracer-agent analyze offcpu --flame sleep.svg --flame-diff before.dat after.dat
  tracer-agent analyze stacks --event 'kmem:kmalloc: bytes_alloc > 4096' --weight bytes_alloc trace.dat
  tracer-agent analyze irq --cpu 0-3 --from 1234.5 --to 1235 --json trace.dat";

pub(super) const INFO: &str = "EXAMPLES
  tracer-agent info
  tracer-agent info --json trace.dat";

pub(super) const DIFF: &str = "EXAMPLES
  tracer-agent diff before.dat after.dat
  tracer-agent diff --values --ignore common_flags before.dat after.dat";

pub(super) const CHECK: &str = "EXAMPLES
  tracer-agent check trace.dat
  tracer-agent check --quiet --allow-warnings one.dat two.dat";

pub(super) const CONVERT: &str = "EXAMPLES
  tracer-agent convert -o small.dat --compression zstd:19 trace.dat
  tracer-agent convert -o old.dat --file-version 6 --compression none trace.dat
  tracer-agent convert -o sched.dat --event sched --cpu 0-3 trace.dat
  tracer-agent record -e sched -o - sleep 1 | tracer-agent convert -o streamed.dat -";

pub(super) const SPLIT: &str = "EXAMPLES
  tracer-agent split -s 10 -r trace.dat
  tracer-agent split --size 100M -r -o part trace.dat
  tracer-agent split trace.dat 1234.5 1236.0";

pub(super) const MERGE: &str = "EXAMPLES
  tracer-agent merge -o whole.dat trace.dat.1 trace.dat.2
  tracer-agent merge -o both.dat host=host.dat guest=guest.dat";

pub(super) const REPAIR: &str = "EXAMPLES
  tracer-agent repair -o intact.dat damaged.dat";

pub(super) const DOCTOR: &str = "EXAMPLES
  tracer-agent doctor
  tracer-agent doctor --json";

pub(super) const LISTEN: &str = "EXAMPLES
  tracer-agent listen -p 12345 -d /var/traces
  tracer-agent listen -p 12345 --bind 192.0.2.7 --data-ports 1500-1599 -o lab
  tracer-agent listen -V -p 823";

pub(super) const EXPORT: &str = "EXAMPLES
  tracer-agent export --format ctf trace.dat OUTDIR
  tracer-agent export --format lttng --tar trace.dat OUTDIR
  tracer-agent export --format perfetto trace.dat out.perfetto-trace
  tracer-agent export --format html trace.dat timeline.html
  tracer-agent export --format parquet trace.dat TABLES
  tracer-agent export --format parquet --partition trace.dat FLEET
  tracer-agent export --format arrow --table sched:sched_switch trace.dat -
  tracer-agent export --format chrome trace.dat trace.json
  tracer-agent export --format perf-script trace.dat perf.txt
  tracer-agent export --format lttng-2008 --endian big trace.dat OUTDIR";

pub(super) const IMPORT: &str = "EXAMPLES
  tracer-agent import perf.data -o perf.dat
  tracer-agent import --force perf.data";

#[cfg(feature = "store")]
pub(super) const PUT: &str = "EXAMPLES
  tracer-agent put trace.dat s3://traces/lab
  tracer-agent put --state uploads --bandwidth 2MiB trace.dat s3://traces/lab --endpoint https://minio.example:9000";

#[cfg(feature = "store")]
pub(super) const GET: &str = "EXAMPLES
  tracer-agent get s3://traces/lab/2026-03-02/node-1/web/20260302T101500.250Z-20260302T101501.000Z-0123456789abcdef.dat";

#[cfg(feature = "store")]
pub(super) const LS: &str = "EXAMPLES
  tracer-agent ls s3://traces/lab --host 'node-*' --since 2h
  tracer-agent ls --json --since 2026-03-01 --until 2026-03-02 s3://traces";

#[cfg(feature = "daemon")]
pub(super) const DAEMON: &str = "EXAMPLES
  tracer-agent daemon --background
  tracer-agent daemon --socket /run/user/0/tracer.sock --group adm
  tracer-agent daemon --config /etc/tracer-agent/agent.toml
  tracer-agent daemon --config agent.toml --check";

#[cfg(feature = "daemon")]
pub(super) const HEALTH: &str = "EXAMPLES
  tracer-agent health
  tracer-agent health --live
  tracer-agent health --json";

#[cfg(feature = "daemon")]
pub(super) const CTL: &str = "EXAMPLES
  tracer-agent ctl create mine --output /tmp/mine
  tracer-agent ctl enable-event --kernel sched_switch,sched_waking
  tracer-agent ctl start
  tracer-agent ctl status
  tracer-agent ctl stop
  tracer-agent ctl destroy";

pub(super) const COMPLETIONS: &str = "FILES
  bash  ~/.local/share/bash-completion/completions/tracer-agent
  zsh   _tracer-agent in a directory of $fpath
  fish  ~/.config/fish/completions/tracer-agent.fish

EXAMPLES
  tracer-agent completions bash
  tracer-agent completions zsh
  tracer-agent completions fish";
