//! Runs jobs, as many at a time as there are processors, the first while others are built.

use std::io::{BufRead as _, BufReader, PipeReader, Write as _};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::job::{Job, Runs, Tells};
use super::scratch::Scratch;
use super::timings::{Timings, longest_first};
use super::totals::{Totals, without_colours};
use crate::{Result, process};

/// How long a job may take. None takes a fifth of it.
const LONGEST: Duration = Duration::from_mins(40);
/// How long the output of a job that has ended may stay open.
const LEFT_BEHIND: Duration = Duration::from_secs(3);
/// How often is looked whether a job that prints nothing has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What a job came to.
struct Done {
    output: String,
    status: std::io::Result<ExitStatus>,
    took: Duration,
    /// Each test of it, with its time.
    tests: Vec<(String, Duration)>,
}

/// What the workers share.
struct Queue {
    jobs: Vec<Job>,
    running: Running,
    /// How many jobs may run at a time.
    workers: usize,
    /// More jobs come when more is built. That is work for the processors, and disturbs recordings.
    is_building: bool,
    /// How many jobs run after which others can.
    steps: usize,
    /// Something could not be built: no more jobs begin.
    has_failed: bool,
}

/// How many jobs run.
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    anywhere: usize,
    recordings: usize,
    busy: usize,
}

impl Running {
    fn of(&mut self, runs: Runs) -> &mut usize {
        match runs {
            Runs::Anywhere => &mut self.anywhere,
            Runs::Recording => &mut self.recordings,
            Runs::Busy => &mut self.busy,
        }
    }

    fn all(self) -> usize {
        self.anywhere + self.recordings + self.busy
    }
}

impl Done {
    fn success(&self) -> bool {
        self.status.as_ref().is_ok_and(ExitStatus::success)
    }
}

impl Queue {
    fn new(workers: usize) -> Self {
        Self {
            jobs: Vec::new(),
            running: Running::default(),
            workers,
            is_building: true,
            steps: 0,
            has_failed: false,
        }
    }

    /// The next job that may run beside what does. Recordings are one after the other, and the others are
    /// short: so those come first, and busy processes fill what is left of the machine.
    fn take(&mut self) -> Option<Job> {
        let Running { anywhere, recordings, busy } = self.running;
        if self.is_building && self.running.all() >= (self.workers - 1).max(1) {
            return None;
        }
        // More of the others would keep it waiting.
        let recording_waits = !self.is_building && self.jobs.iter().any(|job| job.runs == Runs::Recording);
        let may_run = |runs| match runs {
            Runs::Anywhere => recordings == 0,
            Runs::Recording => anywhere == 0 && recordings == 0 && busy <= 1 && !self.is_building,
            Runs::Busy => busy == 0 || recordings == 0 && !recording_waits,
        };
        let mut first =
            [Runs::Anywhere, Runs::Recording, Runs::Busy].into_iter().filter(|runs| may_run(*runs));
        let at = first.find_map(|runs| self.jobs.iter().position(|job| job.runs == runs))?;
        let job = self.jobs.remove(at);
        *self.running.of(job.runs) += 1;
        self.steps += usize::from(job.then.is_some());
        Some(job)
    }
}

/// Runs the jobs that `build` hands over, the first of them while it goes on, shows what each printed when it
/// has ended, and adds the results up. When `build` fails, what runs comes to its end, and no more begins.
pub(super) fn run(
    build: impl FnOnce(&dyn Fn(Vec<Job>)) -> Result,
    totals: &mut Totals,
    timings: &mut Timings,
) -> Result {
    let workers = std::thread::available_parallelism()?.get();
    let queue = Mutex::new(Queue::new(workers));
    let (changed, results) = (Condvar::new(), Mutex::new((totals, timings)));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(mut job) = next(&queue, &changed) {
                    // However this ends, the others go on.
                    let is_step = job.then.is_some();
                    let _turn = Turn { queue: &queue, changed: &changed, runs: job.runs, is_step };
                    // Whoever reads this may have gone.
                    let _ = writeln!(std::io::stderr(), "$ {}", process::line(&job.command));
                    let done = run_one(&mut job);
                    let followers = done.success().then(|| job.then.take()).flatten().map(|then| then());
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    let (totals, timings) = &mut *results;
                    tell(&job, &done, totals);
                    match followers.transpose() {
                        Ok(jobs) => add_jobs(&queue, &changed, jobs.unwrap_or_default()),
                        Err(error) => totals.add_failure(&job.name(), &error.to_string()),
                    }
                    timings.add(&job, done.took, done.tests);
                }
            });
        }
        let built = build(&|jobs| add_jobs(&queue, &changed, jobs));
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.is_building = false;
        if built.is_err() {
            queue.has_failed = true;
            queue.jobs.clear();
        }
        changed.notify_all();
        built
    })
}

fn add_jobs(queue: &Mutex<Queue>, changed: &Condvar, jobs: Vec<Job>) {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    if !queue.has_failed {
        queue.jobs.extend(jobs);
        longest_first(&mut queue.jobs);
        changed.notify_all();
    }
}

/// Something that runs, until it is dropped.
struct Turn<'q> {
    queue: &'q Mutex<Queue>,
    changed: &'q Condvar,
    runs: Runs,
    /// Others can run after it.
    is_step: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        *queue.running.of(self.runs) -= 1;
        queue.steps -= usize::from(self.is_step);
        self.changed.notify_all();
    }
}

/// Waits for a job that may run now; `None` when there are no more, and none that others make way for.
fn next(queue: &Mutex<Queue>, changed: &Condvar) -> Option<Job> {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(job) = queue.take() {
            return Some(job);
        }
        if queue.jobs.is_empty() && !queue.is_building && queue.steps == 0 {
            return None;
        }
        queue = changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

fn run_one(job: &mut Job) -> Done {
    let started = Instant::now();
    let mut done = Done {
        output: String::new(),
        status: Err(std::io::Error::other("not run")),
        took: Duration::ZERO,
        tests: Vec::new(),
    };
    let spawned = Scratch::new().and_then(|scratch| {
        job.command.env("TMPDIR", scratch.path());
        // What it says on both is shown together, in the order in which it came.
        let (reader, writer) = std::io::pipe()?;
        let child = job.command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).spawn()?;
        // The command keeps copies of the writing end, which would keep the pipe open.
        job.command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok((scratch, reader, child))
    });
    done.status = spawned.and_then(|(_scratch, reader, child)| follow(reader, child, started, &mut done));
    done.took = started.elapsed();
    done
}

/// Collects what a job prints until it has ended. It is not waited for longer than [`LONGEST`], nor, when it
/// has ended, for processes that it left behind.
fn follow(
    reader: PipeReader,
    mut child: Child,
    started: Instant,
    done: &mut Done,
) -> std::io::Result<ExitStatus> {
    let (sender, lines) = mpsc::channel();
    // A thread that is left to itself when a process that was left behind keeps the pipe open.
    std::thread::spawn(move || {
        let lines = BufReader::new(reader).split(b'\n').map_while(std::io::Result::ok);
        lines.map(|line| sender.send(line)).take_while(std::result::Result::is_ok).for_each(drop);
    });
    let mut last = started;
    let mut take = |line: Vec<u8>, done: &mut Done| {
        let line = String::from_utf8_lossy(&line).into_owned();
        if let Some(test) = ended_test(&line) {
            done.tests.push((test, last.elapsed()));
            last = Instant::now();
        }
        done.output.push_str(&line);
        done.output.push('\n');
    };
    let (mut is_open, mut ended) = (true, None);
    let result = loop {
        match lines.recv_timeout(LOOK_AGAIN) {
            Ok(line) => take(line, done),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                is_open = false;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if ended.is_none() {
            ended = child.try_wait()?.map(|status| (status, Instant::now()));
        }
        match ended {
            Some((status, _)) if !is_open => return Ok(status),
            Some((_, since)) if since.elapsed() > LEFT_BEHIND => {
                break Err(std::io::Error::other("a process that it left behind has its output open"));
            }
            None if started.elapsed() > LONGEST => {
                child.kill()?;
                child.wait()?;
                let minutes = LONGEST.as_secs() / 60;
                break Err(std::io::Error::other(format!("did not end in {minutes} minutes")));
            }
            _ => {}
        }
    };
    // What came until then.
    for line in lines.try_iter() {
        take(line, done);
    }
    result
}

/// The name in `test NAME ... ok`. Tests run one after the other, so each has taken the time since the one
/// before it.
fn ended_test(line: &str) -> Option<String> {
    let line = without_colours(line);
    let (name, _) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some(name.to_owned())
}

/// Shows what a job printed and adds up what it came to.
fn tell(job: &Job, done: &Done, totals: &mut Totals) {
    let name = job.name();
    let mut out = std::io::stdout().lock();
    let took = done.took.as_secs_f64();
    // Whoever reads this has gone if it cannot be written; the tests go on.
    let _ = writeln!(out, "\n==== {name} ({took:.1} s)\n{}", done.output.trim_end());
    let success = match &done.status {
        Ok(status) => {
            if !status.success() {
                let _ = writeln!(out, "{name}: {status}");
            }
            status.success()
        }
        Err(error) => {
            let _ = writeln!(out, "{}: {error}", process::line(&job.command));
            false
        }
    };
    let _ = out.flush();
    match job.tells {
        Tells::ExitCode => totals.add_one(&name, success),
        Tells::Step if success => {}
        Tells::Step => totals.add_one(&name, false),
        Tells::LastSummary => totals.add(&name, &done.output, success),
        Tells::AllSummaries => totals.add_all(&name, &done.output, success),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn job(name: &str, runs: Runs) -> Job {
        let mut job = Job::fuzz(name, Command::new("true"));
        job.runs = runs;
        job
    }

    #[test]
    fn only_a_busy_process_runs_beside_a_recording() {
        let mut queue = Queue { is_building: false, ..Queue::new(2) };
        queue.jobs = vec![
            job("r1", Runs::Recording),
            job("g1", Runs::Busy),
            job("a1", Runs::Anywhere),
            job("g2", Runs::Busy),
            job("r2", Runs::Recording),
            job("a2", Runs::Anywhere),
            job("g3", Runs::Busy),
        ];
        let take = |queue: &mut Queue| queue.take().map(|job| job.subject);
        assert_eq!(take(&mut queue).as_deref(), Some("a1"));
        assert_eq!(take(&mut queue).as_deref(), Some("a2"));
        assert_eq!(take(&mut queue).as_deref(), Some("g1"), "others run still");
        queue.running.anywhere = 0;
        assert_eq!(take(&mut queue).as_deref(), Some("r1"));
        assert_eq!(take(&mut queue), None, "one recording at a time, and one busy process");
        queue.running.busy = 0;
        assert_eq!(take(&mut queue).as_deref(), Some("g2"));
        queue.running.busy = 0;
        queue.jobs.push(job("a3", Runs::Anywhere));
        assert_eq!(take(&mut queue).as_deref(), Some("g3"), "nothing else beside a recording");
        assert_eq!(take(&mut queue), None);
        queue.running.recordings = 0;
        assert_eq!(take(&mut queue).as_deref(), Some("a3"));
        queue.running.anywhere = 0;
        assert_eq!(take(&mut queue).as_deref(), Some("r2"));
    }

    #[test]
    fn of_many_processors_a_recording_shares_the_machine_with_one_busy_process() {
        let mut queue = Queue { is_building: false, ..Queue::new(4) };
        let jobs = || vec![job("g1", Runs::Busy), job("g2", Runs::Busy), job("r", Runs::Recording)];
        queue.jobs = jobs();
        let take = |queue: &mut Queue| queue.take().map(|job| job.subject);
        assert_eq!(take(&mut queue).as_deref(), Some("r"));
        assert_eq!(take(&mut queue).as_deref(), Some("g1"));
        assert_eq!(take(&mut queue), None);
        // One that waits for others has not to wait for more of them.
        let mut queue = Queue { is_building: false, ..Queue::new(4) };
        queue.jobs = jobs();
        queue.running.anywhere = 1;
        assert_eq!(take(&mut queue).as_deref(), Some("g1"));
        assert_eq!(take(&mut queue), None);
        queue.jobs.retain(|job| job.runs == Runs::Busy);
        assert_eq!(take(&mut queue).as_deref(), Some("g2"));
        queue.running.anywhere = 0;
        queue.jobs.push(job("r", Runs::Recording));
        assert_eq!(take(&mut queue), None, "two are busy");
        queue.running.busy = 1;
        assert_eq!(take(&mut queue).as_deref(), Some("r"));
    }

    #[test]
    fn a_processor_is_left_for_building_and_no_recording_runs_beside_it() {
        let mut queue = Queue::new(2);
        queue.jobs = vec![job("r", Runs::Recording), job("g", Runs::Busy), job("a", Runs::Anywhere)];
        let take = |queue: &mut Queue| queue.take().map(|job| job.subject);
        assert_eq!(take(&mut queue).as_deref(), Some("a"));
        assert_eq!(take(&mut queue), None);
        queue.running.anywhere = 0;
        assert_eq!(take(&mut queue).as_deref(), Some("g"));
        queue.running.busy = 0;
        assert_eq!(take(&mut queue), None);
        queue.is_building = false;
        assert_eq!(take(&mut queue).as_deref(), Some("r"));
        // On one processor jobs run beside the build, too: they would wait for all of it else.
        let mut queue = Queue { jobs: vec![job("a", Runs::Anywhere)], ..Queue::new(1) };
        assert_eq!(take(&mut queue).as_deref(), Some("a"));
    }

    #[test]
    fn jobs_run_while_others_are_built_and_a_failed_build_is_an_error() {
        let (mut totals, mut timings) = (Totals::default(), Timings::default());
        let job = |name: &str, file: &Path| {
            let mut command = Command::new("touch");
            command.arg(file);
            Job::fuzz(name, command)
        };
        let scratch = Scratch::new().expect("there is room");
        let [first, second] = ["first", "second"].map(|name| scratch.path().join(name));
        let build = |add: &dyn Fn(Vec<Job>)| {
            add(vec![job("first", &first)]);
            while !first.exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            add(vec![job("second", &second)]);
            Ok(())
        };
        run(build, &mut totals, &mut timings).expect("it was built");
        assert!(second.exists());
        assert_eq!((totals.passed, totals.failed), (2, 0));
        let failed = run(|_| Err("no compiler".into()), &mut totals, &mut timings);
        assert_eq!(failed.expect_err("nothing was built").to_string(), "no compiler");
    }

    #[test]
    fn what_a_step_makes_runs_after_it_and_nothing_after_one_that_failed() {
        let scratch = Scratch::new().expect("there is room");
        let file = scratch.path().join("made");
        let step = |program: &str| {
            let mut command = Command::new("touch");
            command.arg(&file);
            let then = || Ok(vec![Job::fuzz("after", command)]);
            Job::step("fuzz", "build", Command::new(program), Box::new(then))
        };
        let (mut totals, mut timings) = (Totals::default(), Timings::default());
        let mut run_step = |program: &str| {
            let build = |add: &dyn Fn(Vec<Job>)| {
                add(vec![step(program)]);
                Ok(())
            };
            run(build, &mut totals, &mut timings).expect("it was built");
            (totals.passed, totals.failed, file.exists())
        };
        assert_eq!(run_step("false"), (0, 1, false));
        assert_eq!(run_step("true"), (1, 1, true));
    }

    #[test]
    fn what_a_job_prints_and_how_it_ends_are_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test a::b ... ok'; echo to stderr >&2; exit 3"]);
        let mut job = Job::fuzz("sh", command);
        let done = run_one(&mut job);
        assert_eq!(done.output, "test a::b ... ok\nto stderr\n");
        assert_eq!(done.status.expect("it ran").code(), Some(3));
        assert_eq!(done.tests.len(), 1);
        // The process that it leaves behind goes when this test has seen what comes of it.
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo $!"]);
        let done = run_one(&mut Job::fuzz("sh", command));
        let left = done.output.trim();
        assert!(Command::new("kill").arg(left).status().is_ok_and(|status| status.success()), "{left:?}");
        assert!(done.status.is_err(), "a process was left behind");
        let mut totals = Totals::default();
        let missing = run_one(&mut Job::fuzz("none", Command::new("/no/such/program")));
        tell(&job, &missing, &mut totals);
        assert_eq!((totals.passed, totals.failed), (0, 1));
    }
}
