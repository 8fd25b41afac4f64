//! How fast, and how often: a bandwidth for all uploads together, and times between attempts.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// The first time between two attempts.
const FIRST: Duration = Duration::from_millis(500);

/// Bytes a second that are not exceeded on average: whatever is sent is paid for before the next.
#[derive(Debug)]
pub(super) struct Bandwidth {
    /// Bytes a second; no limit if not set.
    rate: Option<u64>,
    /// When all that was sent is paid for. Who waits holds it, so that all have their turn.
    paid: Mutex<Option<Instant>>,
}

impl Bandwidth {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self { rate: rate.filter(|rate| *rate > 0), paid: Mutex::new(None) }
    }

    /// Waits until so many bytes may be sent.
    pub(super) async fn take(&self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        let mut paid = self.paid.lock().await;
        if let Some(paid) = *paid {
            sleep_until(paid).await;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        *paid = Some(Instant::now() + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
    }
}

/// The time before the next attempt after so many failures in a row: doubled each time, and somewhere in its
/// upper half, so that many machines do not come back together. `random` is between 0 and 1.
pub(super) fn backoff(failures: u32, longest: Duration, random: f64) -> Duration {
    let doubled = FIRST.saturating_mul(1 << failures.saturating_sub(1).min(20));
    doubled.min(longest).mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn simulated(future: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap().block_on(future);
    }

    #[test]
    fn two_uploads_together_keep_to_the_bandwidth() {
        simulated(async {
            let bandwidth = Arc::new(Bandwidth::new(Some(1 << 20)));
            let start = Instant::now();
            let sender = |bandwidth: Arc<Bandwidth>| async move {
                for _ in 0..10 {
                    bandwidth.take(2 << 20).await;
                }
            };
            let one = tokio::spawn(sender(Arc::clone(&bandwidth)));
            let other = tokio::spawn(sender(Arc::clone(&bandwidth)));
            one.await.unwrap();
            other.await.unwrap();
            // 40 MiB at 1 MiB a second; the last 2 MiB are still to be paid for.
            let elapsed = start.elapsed().as_secs_f64();
            assert!((37.9..38.1).contains(&elapsed), "{elapsed}");
        });
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        simulated(async {
            let start = Instant::now();
            Bandwidth::new(None).take(u64::MAX).await;
            assert_eq!(start.elapsed(), Duration::ZERO);
        });
    }

    #[test]
    fn attempts_become_rare_and_not_rarer_than_that() {
        let longest = Duration::from_mins(1);
        assert_eq!(backoff(1, longest, 1.0), FIRST);
        assert_eq!(backoff(3, longest, 1.0), FIRST * 4);
        assert_eq!(backoff(3, longest, 0.0), FIRST * 2);
        for failures in [8, 30, u32::MAX] {
            assert_eq!(backoff(failures, longest, 1.0), longest);
        }
    }
}
