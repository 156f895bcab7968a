//! Shares the steps of one batch (matrix products and attention) among threads.
//!
//! A single query takes a few milliseconds and about thirty steps, and each step needs the complete result of the step
//! before. Handing each step to rayon separately costs too much: with two threads, f32 gains little and int8 gets
//! slower. Instead, the helper threads are woken once per batch. They poll for parts of steps until the batch is done.
//! The calling thread computes the parts that no helper has taken, so it never waits for a helper that did not start.

use std::{
    cell::UnsafeCell,
    hint::spin_loop,
    ops::Range,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

/// Minimum number of multiplications in a part. These multiplications take about 5 microseconds.
const MIN_PART: usize = 1 << 18;

/// Number of rows at which multiplying all rows by a weight takes as long as loading the weight from memory. With fewer
/// rows, the time depends on the memory bandwidth.
const FETCH_ROWS: usize = 8;

/// Number of polls after which a waiting thread yields the processor.
const SPINS: u32 = 10_000;

/// Threads that share the work of a batch.
pub(super) struct Team {
    threads: usize,
    /// The packed [`Ticket`] of the current step.
    ticket: AtomicU64,
    /// Number of unfinished parts of the current step.
    unfinished: AtomicU32,
    step: UnsafeCell<Step>,
}

/// Type-erased closure that computes one part of a step.
#[derive(Clone, Copy)]
struct Step {
    data: *const (),
    call: unsafe fn(*const (), u32),
}

/// State of the current step: step number, number of parts, and next free part. The step number makes tickets unique.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ticket {
    step: u32,
    parts: u16,
    next: u16,
}

impl Ticket {
    /// Packed ticket that signals to the helpers that the batch is done.
    const OVER: u64 = u64::MAX;

    fn pack(self) -> u64 {
        u64::from(self.step) << 32 | u64::from(self.parts) << 16 | u64::from(self.next)
    }

    fn unpack(ticket: u64) -> Self {
        Ticket { step: (ticket >> 32) as u32, parts: (ticket >> 16) as u16, next: ticket as u16 }
    }
}

// SAFETY: `step` is read only by threads that hold an unfinished part of the step, and is written only when no part is
// unfinished.
unsafe impl Sync for Team {}

impl Team {
    /// Calls `lead` with a team of `threads` threads: the calling thread, and helpers from rayon.
    ///
    /// The parts of a step must not call rayon. Rayon could run a helper inside such a part. The helper would wait
    /// for the end of the batch, and the batch would wait for the part: a deadlock.
    pub fn with<R>(threads: usize, lead: impl FnOnce(&Team) -> R) -> R {
        unsafe fn nothing(_: *const (), _: u32) {}
        let team = Team {
            threads: threads.clamp(1, usize::from(u16::MAX) / 2),
            ticket: AtomicU64::new(0),
            unfinished: AtomicU32::new(0),
            step: UnsafeCell::new(Step { data: std::ptr::null(), call: nothing }),
        };
        if team.threads == 1 {
            return lead(&team);
        }
        rayon::in_place_scope(|scope| {
            // Runs even if `lead` panics, because the helpers must end.
            let _end = OnDrop(|| team.ticket.store(Ticket::OVER, Ordering::Release));
            (1..team.threads).for_each(|_| scope.spawn(|_| team.help()));
            lead(&team)
        })
    }

    /// Returns the number of threads to use for a batch, at most `threads`. With this number, the largest step has a
    /// few parts for each thread. `multiplications` is the number of multiplications per token in the largest step.
    pub fn useful_threads(threads: usize, tokens: usize, multiplications: usize) -> usize {
        threads.min(tokens.max(FETCH_ROWS) * multiplications / (4 * MIN_PART)).max(1)
    }

    /// Returns the number of parts into which to split `n` work items of equal size. Each item takes `multiplications`
    /// multiplications for each of `rows` rows.
    pub fn parts(&self, n: usize, rows: usize, multiplications: usize) -> usize {
        if self.threads == 1 {
            return 1;
        }
        let all = n * rows.max(FETCH_ROWS) * multiplications;
        // There are more parts than threads, so that a thread that starts late or is interrupted takes fewer parts.
        (2 * self.threads).min(all / MIN_PART).min(n).max(1)
    }

    /// Splits the range `0..n` evenly into parts, one for each workspace. Calls `work` with each part and its
    /// workspace.
    pub fn each<R: Send>(&self, workspaces: &mut [R], n: usize, work: impl Fn(&mut R, Range<usize>) + Sync) {
        let parts = workspaces.len();
        if let [workspace] = workspaces {
            return work(workspace, 0..n);
        }
        assert!(parts <= usize::from(u16::MAX));
        let workspaces = Workspaces(workspaces.as_mut_ptr());
        self.all(parts as u16, |part| {
            let part = part as usize;
            // SAFETY: each part is taken exactly once, so each workspace is borrowed once.
            let workspace = unsafe { &mut *workspaces.at(part) };
            work(workspace, n * part / parts..n * (part + 1) / parts);
        });
    }

    /// Calls `work` with each part number below `parts`, on all threads of the team. Returns when all parts are done.
    fn all<W: Fn(u32) + Sync>(&self, parts: u16, work: W) {
        unsafe fn call<W: Fn(u32)>(work: *const (), part: u32) {
            // SAFETY: the pointer comes from `all`, which is still waiting for this part.
            unsafe { (*work.cast::<W>())(part) }
        }
        // SAFETY: all parts of the previous step are done, so no thread reads the step.
        unsafe { *self.step.get() = Step { data: (&raw const work).cast(), call: call::<W> } };
        self.unfinished.store(u32::from(parts), Ordering::Relaxed);
        let step = Ticket::unpack(self.ticket.load(Ordering::Relaxed)).step.wrapping_add(1);
        self.ticket.store(Ticket { step, parts, next: 0 }.pack(), Ordering::Release);
        // Even after a panic, this function must not return while other threads still use `work`.
        let _wait = OnDrop(|| {
            self.unfinished.fetch_sub(self.take_all_free(), Ordering::Relaxed);
            let mut backoff = Backoff::default();
            while self.unfinished.load(Ordering::Acquire) > 0 {
                backoff.wait();
            }
        });
        while self.take_part() {}
    }

    /// Tries to take and compute a part. Returns `false` if no part was free. If another thread took the part first,
    /// returns `true`, so that the caller tries again.
    fn take_part(&self) -> bool {
        let old = self.ticket.load(Ordering::Acquire);
        let ticket = Ticket::unpack(old);
        if old == Ticket::OVER || ticket.next == ticket.parts {
            return false;
        }
        let new = Ticket { next: ticket.next + 1, ..ticket }.pack();
        if self.ticket.compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return true;
        }
        let _done = OnDrop(|| {
            self.unfinished.fetch_sub(1, Ordering::Release);
        });
        // SAFETY: the step does not change while this part is unfinished.
        unsafe {
            let step = *self.step.get();
            (step.call)(step.data, u32::from(ticket.next));
        }
        true
    }

    /// Takes all free parts without computing them, and returns their number.
    fn take_all_free(&self) -> u32 {
        let none_left = |old| {
            let ticket = Ticket::unpack(old);
            Some(Ticket { next: ticket.parts, ..ticket }.pack())
        };
        let old = self.ticket.fetch_update(Ordering::Relaxed, Ordering::Relaxed, none_left);
        let ticket = Ticket::unpack(old.unwrap_or_else(|ticket| ticket));
        u32::from(ticket.parts - ticket.next)
    }

    /// Computes parts of steps until the batch is done. Helper threads run this function.
    fn help(&self) {
        let mut backoff = Backoff::default();
        while self.ticket.load(Ordering::Acquire) != Ticket::OVER {
            if self.take_part() {
                backoff = Backoff::default();
            } else {
                backoff.wait();
            }
        }
    }
}

/// Wait loop for events that are expected very soon: spins first, then yields.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
    fn wait(&mut self) {
        if self.0 < SPINS {
            self.0 += 1;
            spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// Calls a function when dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Pointer to workspaces that are shared among threads. Each workspace is used by one thread only.
struct Workspaces<R>(*mut R);

// SAFETY: `each` passes every workspace to exactly one thread.
unsafe impl<R: Send> Sync for Workspaces<R> {}

impl<R> Workspaces<R> {
    fn at(&self, part: usize) -> *mut R {
        self.0.wrapping_add(part)
    }
}

/// Pointer to memory that several threads write to. Each thread writes a different part.
#[derive(Clone, Copy)]
pub(super) struct Shared(*mut f32);

// SAFETY: code that writes through it must ensure that no other thread accesses the same numbers.
unsafe impl Send for Shared {}
// SAFETY: code that writes through it must ensure that no other thread accesses the same numbers.
unsafe impl Sync for Shared {}

impl Shared {
    pub fn of(numbers: &mut [f32]) -> Self {
        Shared(numbers.as_mut_ptr())
    }

    pub fn at(self, n: usize) -> *mut f32 {
        self.0.wrapping_add(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_computed_once_in_every_step() {
        for threads in [1, 2, 3, 9] {
            Team::with(threads, |team| {
                for step in 0..2000 {
                    let (parts, n) = (step % 9 + 1, step % 41);
                    let mut workspaces = vec![Vec::new(); parts];
                    team.each(&mut workspaces, n, |workspace, range| workspace.extend(range));
                    assert!(workspaces.iter().all(|workspace| workspace.len() <= n.div_ceil(parts)));
                    assert_eq!(workspaces.concat(), (0..n).collect::<Vec<_>>());
                }
            });
        }
    }

    #[test]
    fn several_teams_can_run_at_the_same_time() {
        let sum = |team: &Team| {
            let mut workspaces = [0; 8];
            team.each(&mut workspaces, 1000, |workspace, range| *workspace = range.sum());
            workspaces.iter().sum::<usize>()
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert_eq!(Team::with(3, sum), 499_500);
                        let teams = rayon::join(|| Team::with(3, sum), || Team::with(2, sum));
                        assert_eq!(teams, (499_500, 499_500));
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_is_propagated_and_no_thread_keeps_waiting() {
        for bad in 0..4 {
            let panicked = std::panic::catch_unwind(|| {
                Team::with(3, |team| team.each(&mut [(); 4], 4, |(), part| assert!(part.start != bad)));
            });
            assert!(panicked.is_err());
        }
        assert_eq!(Team::with(2, |team| team.threads), 2);
    }

    #[test]
    fn small_work_is_not_split() {
        Team::with(4, |team| {
            assert_eq!(team.parts(3, 1, 100), 1);
            assert_eq!(team.parts(3, 1000, MIN_PART), 3);
            assert_eq!(team.parts(100, 1000, MIN_PART), 8);
            assert_eq!(team.parts(24, 1, 384 * 16), 4);
        });
        assert_eq!(Team::with(1, |team| team.parts(100, 1000, MIN_PART)), 1);
        // The sizes are those of a query of fifteen tokens on the default model.
        assert_eq!([2, 4, 64].map(|threads| Team::useful_threads(threads, 15, 384 * 1536)), [2, 4, 8]);
        assert_eq!(Team::useful_threads(64, 400, 384 * 1536), 64);
        assert_eq!(Team::useful_threads(2, 3, 100), 1);
    }
}
