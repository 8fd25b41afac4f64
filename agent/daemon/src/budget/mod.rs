//! Keeping to what the configuration allows the daemon to take.
//!
//! | file | subject |
//! |---|---|
//! | `meter` | what is taken |
//! | `decision` | when less is done, and when more again |
//! | `ladder` | what is done less, step by step |
//! | `marker` | the event that says so in traces |

mod decision;
mod ladder;
mod marker;
mod meter;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use self::{
    decision::{Account, Decision, FAR_OVER, Seen},
    meter::Meter,
};
pub(super) use self::{
    ladder::{Step, reduced},
    meter::Taken,
};
use super::{
    config::Config,
    configuration::Configuration,
    lock,
    registry::{Registry, log},
};
use stdx::quantity::Share;

/// From one decision to the next.
const PERIOD: Duration = Duration::from_secs(1);
/// From one look to the next, whether far too much is taken.
const PEEK: Duration = Duration::from_millis(250);
/// In these parts of a budget, programs are measured all the time.
const NEAR: f64 = 0.5;

/// What is known of the budget, for metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BudgetState {
    /// CPU time that may be taken: 1 is a whole CPU.
    pub(super) limit: f64,
    /// What was taken since the daemon was started, in CPU seconds: by the process, and by programs.
    pub(super) taken: Taken,
    /// What was taken in the last second.
    pub(super) last: Taken,
    /// How many steps are taken.
    pub(super) level: u64,
    /// How much of the last second was recorded.
    pub(super) recorded: f64,
    /// How often each step was taken, by its name, and taken back.
    pub(super) steps: BTreeMap<(&'static str, &'static str), u64>,
}

/// Lets the daemon do less while it takes more than its budget.
#[derive(Debug)]
pub(super) struct Governor {
    configuration: Arc<Configuration>,
    registry: Weak<Registry>,
    state: Mutex<Option<BudgetState>>,
    /// Sessions that were stopped for the budget.
    stopped: Mutex<BTreeSet<String>>,
    has_ended: AtomicBool,
}

/// What the thread knows.
#[derive(Debug)]
struct Working {
    meter: Meter,
    decision: Decision,
    account: Account,
    ladder: Vec<Step>,
    is_suspended: bool,
    recorded: f64,
}

impl Governor {
    pub(super) fn new(configuration: Arc<Configuration>, registry: &Arc<Registry>) -> Self {
        Self {
            configuration,
            registry: Arc::downgrade(registry),
            state: Mutex::default(),
            stopped: Mutex::default(),
            has_ended: AtomicBool::new(false),
        }
    }

    /// What is known; nothing where there is no budget of CPU time.
    pub(super) fn state(&self) -> Option<BudgetState> {
        self.known().clone()
    }

    fn known(&self) -> MutexGuard<'_, Option<BudgetState>> {
        lock(&self.state)
    }

    /// Looks each second, in a thread of its own as long as the registry is there.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let this = Arc::clone(self);
        let govern = move || {
            let mut working = None;
            loop {
                let Some(registry) = this.registry.upgrade() else { return };
                if this.has_ended.load(Ordering::Relaxed) {
                    return;
                }
                let config = this.configuration.config();
                if let Some(limit) = config.budget.cpu {
                    let working = working.get_or_insert_with(Working::new);
                    this.govern(&registry, working, (&config, limit));
                    continue;
                }
                if let Some(mut working) = working.take() {
                    this.end(&registry, &mut working);
                }
                drop(registry);
                std::thread::sleep(PERIOD);
            }
        };
        std::thread::Builder::new().name("budget".into()).spawn(govern).map(drop)
    }

    /// Lets a period pass, and decides what is done in the next one.
    fn govern(&self, registry: &Registry, working: &mut Working, (config, limit): (&Config, Share)) {
        let budget = limit.ratio();
        if working.take_ladder(config) {
            // Another configuration: what was done of the old steps is done of the new ones.
            self.apply(registry, working, config);
        }
        let taken = working.pass(registry, config, budget);
        let parts_from = working.ladder.len().saturating_sub(1);
        let before = working.decision.level;
        let ratio = taken.ratio() / budget;
        // Where programs were not measured, they are in the next second.
        let is_known = taken.is_measured || ratio <= 1.0;
        let recorded = working.recorded;
        let seen = Seen { seconds: taken.seconds, ratio, parts_from, recorded };
        let changed = is_known && working.decision.decide(seen);
        if changed {
            self.change(registry, working, (config, limit), (before, taken));
        }
        let mut known = self.known();
        let state = known.get_or_insert_with(BudgetState::default);
        state.limit = budget;
        state.taken = state.taken.and(taken);
        state.last = taken;
        state.level = working.decision.level as u64;
        state.recorded = if working.decision.level > parts_from { 0.0 } else { working.recorded };
    }

    /// Takes steps, or takes one back, and says so.
    fn change(
        &self,
        registry: &Registry,
        working: &mut Working,
        (config, limit): (&Config, Share),
        (before, taken): (usize, Taken),
    ) {
        let level = working.decision.level;
        let (way, between) = if level > before { ("taken", before..level) } else { ("back", level..before) };
        let steps: Vec<Step> = working.ladder.get(between).unwrap_or_default().to_vec();
        {
            let mut known = self.known();
            let state = known.get_or_insert_with(BudgetState::default);
            for step in &steps {
                *state.steps.entry((step.name(), way)).or_default() += 1;
            }
        }
        let texts: Vec<String> = steps.iter().map(ToString::to_string).collect();
        log(&format!(
            "budget: {:.2} % of a CPU taken, of {limit}: {} {}: {} of {} steps",
            100.0 * taken.ratio(),
            if way == "taken" { "from now on," } else { "no more:" },
            texts.join(", "),
            level,
            working.ladder.len()
        ));
        // The event is recorded where there is recording: before it becomes less, after it became more.
        let tell = |working: &mut Working| {
            working.go_on(registry, config);
            let millionths = |ratio: f64| (ratio * 1e6) as u64;
            marker::throttle(before as u64, level as u64, millionths(taken.ratio()), limit.millionths.into());
        };
        if level > before {
            tell(working);
            self.apply(registry, working, config);
        } else {
            self.apply(registry, working, config);
            tell(working);
        }
    }

    /// Does what the level says.
    fn apply(&self, registry: &Registry, working: &mut Working, config: &Config) {
        let steps = working.ladder.get(..working.decision.level).unwrap_or_default().to_vec();
        registry.hurry(ladder::throttled(config), steps.contains(&Step::Compression));
        if steps.contains(&Step::Stop) && !self.has_ended.load(Ordering::Relaxed) {
            for name in ladder::throttled(config) {
                if registry.stop(0, name).is_ok() {
                    self.stopped().insert(name.to_owned());
                }
            }
            working.is_suspended = false;
        } else {
            self.start_again(registry);
        }
        if !steps.contains(&Step::Part) {
            working.go_on(registry, config);
            working.recorded = 1.0;
        }
        self.configuration.throttle(registry, &ladder::of_rules(&steps));
        working.meter.list_again();
    }

    fn stopped(&self) -> MutexGuard<'_, BTreeSet<String>> {
        lock(&self.stopped)
    }

    /// Starts what was stopped for the budget.
    fn start_again(&self, registry: &Registry) {
        for name in std::mem::take(&mut *self.stopped()) {
            if let Err(error) = registry.start(0, &name) {
                log(&format!("budget: the session {name} cannot be started again: {error}"));
            }
        }
    }

    /// Does nothing more. What was stopped for the budget is started again: the next daemon goes on with it,
    /// and does not know why it was stopped.
    pub(super) fn hand_over(&self, registry: &Registry) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.start_again(registry);
    }

    /// Undoes everything: there is no budget any more.
    fn end(&self, registry: &Registry, working: &mut Working) {
        working.decision = Decision::default();
        let config = self.configuration.config();
        self.apply(registry, working, &config);
        *self.known() = None;
    }
}

impl Working {
    fn new() -> Self {
        Self {
            meter: Meter::new(),
            decision: Decision::default(),
            account: Account::default(),
            ladder: Vec::new(),
            is_suspended: false,
            recorded: 1.0,
        }
    }

    /// Takes the steps of a configuration, if they are other ones: whether that is so, and some are taken.
    fn take_ladder(&mut self, config: &Config) -> bool {
        let ladder = ladder::ladder(config);
        if ladder == self.ladder {
            return false;
        }
        // What the last steps were, they are.
        let from_end = self.ladder.len().saturating_sub(self.decision.level);
        let was_parts = self.decision.level > 0 && from_end <= 1;
        self.decision.level = if was_parts {
            ladder.len().saturating_sub(from_end)
        } else {
            self.decision.level.min(ladder.len().saturating_sub(2))
        };
        self.ladder = ladder;
        self.decision.level > 0
    }

    /// Lets a period pass, of which a part is recorded if that is the step. Gives what was taken in it.
    fn pass(&mut self, registry: &Registry, config: &Config, budget: f64) -> Taken {
        let parts = self.ladder.len().saturating_sub(1);
        if self.decision.level != parts {
            self.wait(budget);
            let near = self.decision.level > 0 || self.account.cost() > NEAR * budget;
            let taken = self.settled(near, budget);
            if taken.ratio() > NEAR * budget {
                self.meter.measure();
            }
            if self.decision.level < parts {
                self.account.learn((taken.seconds, taken.all()));
            }
            return taken;
        }
        let begun = Instant::now();
        let recorded = self.account.allows(budget);
        let mut all = Taken::default();
        if recorded > 0.0 {
            self.go_on(registry, config);
            all = all.and(self.settled(true, budget));
            std::thread::sleep(PERIOD.mul_f64(recorded));
            if recorded < 1.0 {
                self.suspend(registry, config);
            }
            let taken = self.settled(true, budget);
            self.account.learn((taken.seconds, taken.all()));
            self.recorded = taken.seconds / PERIOD.as_secs_f64();
            all = all.and(taken);
        } else {
            self.suspend(registry, config);
            self.recorded = 0.0;
        }
        std::thread::sleep(PERIOD.saturating_sub(begun.elapsed()));
        all.and(self.settled(true, budget))
    }

    /// Lets a period pass, or less if far more is taken than may be.
    fn wait(&self, budget: f64) {
        let end = Instant::now() + PERIOD;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(PEEK));
            if left <= PEEK || self.meter.peek() > FAR_OVER * budget {
                return;
            }
        }
    }

    /// Notes what was taken. `always` measures programs until the next time in any case.
    fn settled(&mut self, always: bool, budget: f64) -> Taken {
        let taken = self.meter.read(always);
        self.account.settle((taken.seconds, taken.all()), budget);
        taken
    }

    /// Also those that were asked to do something meanwhile, which let them go on.
    fn suspend(&mut self, registry: &Registry, config: &Config) {
        self.is_suspended = true;
        registry.suspend(ladder::throttled(config));
    }

    fn go_on(&mut self, registry: &Registry, config: &Config) {
        if std::mem::take(&mut self.is_suspended) {
            registry.go_on(ladder::throttled(config));
        }
    }
}
