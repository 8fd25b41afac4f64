//! What is told to clients that listen.
//!
//! Each has a queue for what is about each user's sessions, so that what happens in those of one takes no
//! room from what is told of others. Clients of a user are told of that user's sessions, those of root of
//! all.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, Weak},
};

use axum::body::Bytes;
use tokio::sync::Notify;

use crate::lock;
use api::requests::Notification;

/// How many notifications about a user's sessions wait for a client that does not read them. Of more, the
/// newest ones do.
const WAITING_MAX: usize = 1024;

/// Those who listen.
#[derive(Debug, Default)]
pub(super) struct Notifications(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    listeners: Vec<Weak<Queue>>,
    /// How many there were.
    count: u64,
}

/// What waits for a client.
#[derive(Debug)]
struct Queue {
    /// Whose sessions it is told of; `None` for all.
    of: Option<u32>,
    waiting: Mutex<BTreeMap<u32, OfUser>>,
    come: Notify,
}

/// What waits of a user's sessions, with the number of each, which tells their order.
#[derive(Debug, Default)]
struct OfUser {
    lines: VecDeque<(u64, Bytes)>,
    left_out: u64,
}

/// A client that listens.
#[derive(Debug)]
pub(super) struct Listening(Arc<Queue>);

impl Notifications {
    /// Listens to what happens from now on in a user's sessions, or in all.
    pub(super) fn listen(&self, of: Option<u32>) -> Listening {
        let queue = Arc::new(Queue { of, waiting: Mutex::default(), come: Notify::new() });
        lock(&self.0).listeners.push(Arc::downgrade(&queue));
        Listening(queue)
    }

    /// Tells what happens in a session of a user.
    pub(super) fn tell(&self, uid: u32, notification: &Notification) {
        let mut all = lock(&self.0);
        all.listeners.retain(|listener| listener.strong_count() != 0);
        all.count += 1;
        let number = all.count;
        let listeners = all.listeners.iter().filter_map(Weak::upgrade);
        let mut meant = listeners.filter(|queue| queue.of.is_none_or(|of| of == uid)).peekable();
        if meant.peek().is_none() {
            return;
        }
        // All of them have the same text.
        let line = line_of(notification);
        for queue in meant {
            queue.put(uid, number, line.clone());
        }
    }
}

impl Listening {
    /// The next line, when there is one.
    pub(super) async fn next(&self) -> Bytes {
        loop {
            if let Some(line) = self.0.take() {
                return line;
            }
            // What comes before this is waited for is not missed.
            self.0.come.notified().await;
        }
    }
}

impl Queue {
    fn put(&self, uid: u32, number: u64, line: Bytes) {
        let mut waiting = lock(&self.waiting);
        let OfUser { lines, left_out } = waiting.entry(uid).or_default();
        if lines.len() >= WAITING_MAX {
            lines.pop_front();
            *left_out += 1;
        }
        lines.push_back((number, line));
        drop(waiting);
        self.come.notify_one();
    }

    /// The line that has waited longest, after how many before it were left out.
    fn take(&self) -> Option<Bytes> {
        let mut waiting = lock(&self.waiting);
        let longest =
            |(_, of): &(&u32, &mut OfUser)| of.lines.front().map_or(u64::MAX, |(number, _)| *number);
        let (&uid, of) = waiting.iter_mut().min_by_key(longest)?;
        if of.left_out != 0 {
            return Some(line_of(&Notification::LeftOut { count: std::mem::take(&mut of.left_out) }));
        }
        let line = of.lines.pop_front().map(|(_, line)| line);
        if of.lines.is_empty() {
            waiting.remove(&uid);
        }
        line
    }
}

fn line_of(notification: &Notification) -> Bytes {
    let mut line = serde_json::to_vec(notification).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(number: usize) -> Notification {
        Notification::Activity { session: format!("s{number}"), active: true, reason: None }
    }

    fn all(listening: &Listening) -> Vec<String> {
        let lines = std::iter::from_fn(|| listening.0.take());
        lines.map(|line| String::from_utf8(line.to_vec()).unwrap()).collect()
    }

    #[test]
    fn everybody_hears_of_their_own_sessions_and_root_of_all() {
        let notifications = Notifications::default();
        let [one, other, root] = [Some(1), Some(2), None].map(|of| notifications.listen(of));
        for (number, uid) in [1, 2, 1, 0].into_iter().enumerate() {
            notifications.tell(uid, &told(number));
        }
        let names = |listening: &Listening| {
            let lines = all(listening).into_iter();
            lines.map(|line| line.split(":\"s").nth(1).unwrap()[..1].to_owned()).collect::<String>()
        };
        assert_eq!((names(&one), names(&other), names(&root)), ("02".into(), "1".into(), "0123".into()));
        drop((one, other));
        notifications.tell(1, &told(4));
        assert_eq!((names(&root), lock(&notifications.0).listeners.len()), ("4".into(), 1));
    }

    #[test]
    fn what_happens_to_one_user_pushes_out_nothing_of_another() {
        let notifications = Notifications::default();
        let root = notifications.listen(None);
        notifications.tell(2, &told(0));
        for number in 0..WAITING_MAX + 10 {
            notifications.tell(1, &told(number));
        }
        let lines = all(&root);
        assert_eq!(lines.len(), 1 + 1 + WAITING_MAX);
        assert!(lines[0].contains("\"s0\""), "{}", lines[0]);
        assert!(lines[1].contains("\"count\":10"), "{}", lines[1]);
        assert!(lines[2].contains("\"s10\""), "{}", lines[2]);
    }
}
