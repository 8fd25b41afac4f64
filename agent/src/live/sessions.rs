//! The sessions that viewers can attach to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicU32};

use crate::export::ctf::Publication;

/// The sessions of this process that are offered.
#[derive(Clone, Debug, Default)]
pub struct Sessions(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    offered: Vec<Arc<Offered>>,
    last_id: u64,
}

/// A session that is offered.
#[derive(Debug)]
pub struct Offered {
    /// Its number among those of this process, which no later one gets.
    pub(super) id: u64,
    /// The machine that it is of.
    pub host: String,
    /// Its name.
    pub name: String,
    /// How late its events can be read.
    pub timer_us: u32,
    /// What can be read of it.
    pub publication: Arc<Publication>,
    /// How many have attached to it.
    pub(super) viewers: AtomicU32,
}

/// Offers a session as long as it is there. Whoever has attached to it by then reads what there is.
#[derive(Debug)]
pub struct Offer {
    all: Weak<Mutex<All>>,
    offered: Arc<Offered>,
}

impl Sessions {
    /// Offers a session from now on.
    pub fn offer(&self, host: &str, name: &str, timer_us: u64, publication: Arc<Publication>) -> Offer {
        let mut all = self.lock();
        all.last_id += 1;
        let offered = Arc::new(Offered {
            id: all.last_id,
            host: host.to_owned(),
            name: name.to_owned(),
            timer_us: u32::try_from(timer_us).unwrap_or(u32::MAX),
            publication,
            viewers: AtomicU32::new(0),
        });
        all.offered.push(Arc::clone(&offered));
        Offer { all: Arc::downgrade(&self.0), offered }
    }

    /// Those that are offered now.
    pub(super) fn all(&self) -> Vec<Arc<Offered>> {
        self.lock().offered.clone()
    }

    pub(super) fn find(&self, id: u64) -> Option<Arc<Offered>> {
        self.lock().offered.iter().find(|offered| offered.id == id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        // Nothing is done meanwhile that can panic between two changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if let Some(all) = self.all.upgrade() {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.offered.retain(|offered| offered.id != self.offered.id);
        }
    }
}
