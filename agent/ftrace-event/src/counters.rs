//! perf's counters by name, as `perf list` and LTTng have them.

// include/uapi/linux/perf_event.h, `enum perf_type_id`.
/// Counters of the processor by what they count.
pub const HARDWARE: u32 = 0;
/// The kernel's own counters, which every machine has.
pub const SOFTWARE: u32 = 1;
/// Counters of the processor's caches.
pub const CACHE: u32 = 3;
/// Counters of the processor by its own numbers.
pub const RAW: u32 = 4;

/// A counter: its name, and type and number of `perf_event_attr`.
pub type Named = (&'static str, u32, u64);

/// Those that LTTng names (`lttng add-context --list`), in its order.
pub const LTTNG: [Named; 53] = [
    ("cpu-cycles", HARDWARE, 0),
    ("cycles", HARDWARE, 0),
    ("stalled-cycles-frontend", HARDWARE, 7),
    ("idle-cycles-frontend", HARDWARE, 7),
    ("stalled-cycles-backend", HARDWARE, 8),
    ("idle-cycles-backend", HARDWARE, 8),
    ("instructions", HARDWARE, 1),
    ("cache-references", HARDWARE, 2),
    ("cache-misses", HARDWARE, 3),
    ("branch-instructions", HARDWARE, 4),
    ("branches", HARDWARE, 4),
    ("branch-misses", HARDWARE, 5),
    ("bus-cycles", HARDWARE, 6),
    ("L1-dcache-loads", CACHE, 0),
    ("L1-dcache-load-misses", CACHE, 0x1_0000),
    ("L1-dcache-stores", CACHE, 0x100),
    ("L1-dcache-store-misses", CACHE, 0x1_0100),
    ("L1-dcache-prefetches", CACHE, 0x200),
    ("L1-dcache-prefetch-misses", CACHE, 0x1_0200),
    ("L1-icache-loads", CACHE, 1),
    ("L1-icache-load-misses", CACHE, 0x1_0001),
    ("L1-icache-stores", CACHE, 0x101),
    ("L1-icache-store-misses", CACHE, 0x1_0101),
    ("L1-icache-prefetches", CACHE, 0x201),
    ("L1-icache-prefetch-misses", CACHE, 0x1_0201),
    ("LLC-loads", CACHE, 2),
    ("LLC-load-misses", CACHE, 0x1_0002),
    ("LLC-stores", CACHE, 0x102),
    ("LLC-store-misses", CACHE, 0x1_0102),
    ("LLC-prefetches", CACHE, 0x202),
    ("LLC-prefetch-misses", CACHE, 0x1_0202),
    ("dTLB-loads", CACHE, 3),
    ("dTLB-load-misses", CACHE, 0x1_0003),
    ("dTLB-stores", CACHE, 0x103),
    ("dTLB-store-misses", CACHE, 0x1_0103),
    ("dTLB-prefetches", CACHE, 0x203),
    ("dTLB-prefetch-misses", CACHE, 0x1_0203),
    ("iTLB-loads", CACHE, 4),
    ("iTLB-load-misses", CACHE, 0x1_0004),
    ("branch-loads", CACHE, 5),
    ("branch-load-misses", CACHE, 0x1_0005),
    ("cpu-clock", SOFTWARE, 0),
    ("task-clock", SOFTWARE, 1),
    ("page-fault", SOFTWARE, 2),
    ("faults", SOFTWARE, 2),
    ("major-faults", SOFTWARE, 6),
    ("minor-faults", SOFTWARE, 5),
    ("context-switches", SOFTWARE, 3),
    ("cs", SOFTWARE, 3),
    ("cpu-migrations", SOFTWARE, 4),
    ("migrations", SOFTWARE, 4),
    ("alignment-faults", SOFTWARE, 7),
    ("emulation-faults", SOFTWARE, 8),
];

/// Those that only perf names.
const OTHERS: [Named; 2] = [("ref-cycles", HARDWARE, 9), ("page-faults", SOFTWARE, 2)];

/// All of them.
pub fn all() -> impl Iterator<Item = Named> {
    LTTNG.into_iter().chain(OTHERS)
}
