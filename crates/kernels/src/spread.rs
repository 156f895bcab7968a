//! The steps of one batch, shared out among threads.
//!
//! A single query takes a few milliseconds and some thirty steps, each of which needs all of the one before. With each
//! step handed to rayon by itself, two threads gained little in f32 and lost in int8. So the helpers are woken once, look
//! out for parts of steps until the batch is done, and nobody waits for a helper that did not come.

use std::{
    cell::UnsafeCell,
    hint::spin_loop,
    ops::Range,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

/// Multiplications that are worth a part of their own: some 5 microseconds.
const WORTH: usize = 1 << 18;

/// Rows for which a weight is fetched in the time in which it is multiplied; with fewer, fetching is the work.
const FETCH_ROWS: usize = 8;

/// Looks in vain after which somebody who waits lets others have the processor.
const PATIENCE: u32 = 10_000;

/// The threads that share a batch.
pub(super) struct Team {
    threads: usize,
    /// The parts of the step at hand that nobody has taken yet.
    ticket: AtomicU64,
    /// How many of its parts are not done.
    undone: AtomicU32,
    step: UnsafeCell<Step>,
}

/// What is done with each part.
#[derive(Clone, Copy)]
struct Step {
    data: *const (),
    call: unsafe fn(*const (), u32),
}

/// Which step it is (so that no two tickets are alike), how many parts it has, and the next one to be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ticket {
    step: u32,
    parts: u16,
    next: u16,
}

impl Ticket {
    /// The batch is done.
    const OVER: u64 = u64::MAX;

    fn pack(self) -> u64 {
        u64::from(self.step) << 32 | u64::from(self.parts) << 16 | u64::from(self.next)
    }

    fn unpack(ticket: u64) -> Self {
        Ticket { step: (ticket >> 32) as u32, parts: (ticket >> 16) as u16, next: ticket as u16 }
    }
}

// SAFETY: `step` is read only by those who hold an undone part of it, and written only when there is none.
unsafe impl Sync for Team {}

impl Team {
    /// Calls `lead` with a team of so many threads, the caller's among them; the others are rayon's. Within a part of a
    /// step rayon must not be called: it may take up a helper's place, which ends only after that part.
    pub fn with<R>(threads: usize, lead: impl FnOnce(&Team) -> R) -> R {
        unsafe fn nothing(_: *const (), _: u32) {}
        let team = Team {
            threads: threads.clamp(1, usize::from(u16::MAX) / 2),
            ticket: AtomicU64::new(0),
            undone: AtomicU32::new(0),
            step: UnsafeCell::new(Step { data: std::ptr::null(), call: nothing }),
        };
        if team.threads == 1 {
            return lead(&team);
        }
        rayon::in_place_scope(|scope| {
            // Also when the leader panics: helpers have to come home.
            let _end = OnDrop(|| team.ticket.store(Ticket::OVER, Ordering::Release));
            (1..team.threads).for_each(|_| scope.spawn(|_| team.help()));
            lead(&team)
        })
    }

    /// How many of so many threads are worth waking for a batch of so many tokens, of which the largest step takes so
    /// many multiplications a token: a few parts of that step should be there for each.
    pub fn worth(threads: usize, tokens: usize, multiplications: usize) -> usize {
        threads.min(tokens.max(FETCH_ROWS) * multiplications / (4 * WORTH)).max(1)
    }

    /// Into how many parts `n` equal pieces go, each piece so many multiplications for each of so many rows.
    pub fn parts(&self, n: usize, rows: usize, multiplications: usize) -> usize {
        if self.threads == 1 {
            return 1;
        }
        let all = n * rows.max(FETCH_ROWS) * multiplications;
        // More than threads: those who come late or are held up leave more to the others.
        (2 * self.threads).min(all / WORTH).min(n).max(1)
    }

    /// Calls `work` once for each of so many parts of `0..n`, as even as can be, with the part's own of the `rooms`.
    pub fn each<R: Send>(&self, rooms: &mut [R], n: usize, work: impl Fn(&mut R, Range<usize>) + Sync) {
        let parts = rooms.len();
        if let [room] = rooms {
            return work(room, 0..n);
        }
        assert!(parts <= usize::from(u16::MAX));
        let rooms = Rooms(rooms.as_mut_ptr());
        self.all(parts as u16, |part| {
            let part = part as usize;
            // SAFETY: every part is taken once, and no two are the same.
            let room = unsafe { &mut *rooms.at(part) };
            work(room, n * part / parts..n * (part + 1) / parts);
        });
    }

    /// Calls `work` with each of so many parts, and comes back when all are done.
    fn all<W: Fn(u32) + Sync>(&self, parts: u16, work: W) {
        unsafe fn call<W: Fn(u32)>(work: *const (), part: u32) {
            // SAFETY: `all` has put a `W` there, and is still waiting for this part.
            unsafe { (*work.cast::<W>())(part) }
        }
        // SAFETY: no part of another step is undone, so that nobody reads.
        unsafe { *self.step.get() = Step { data: (&raw const work).cast(), call: call::<W> } };
        self.undone.store(u32::from(parts), Ordering::Relaxed);
        let step = Ticket::unpack(self.ticket.load(Ordering::Relaxed)).step.wrapping_add(1);
        self.ticket.store(Ticket { step, parts, next: 0 }.pack(), Ordering::Release);
        // Also after a panic nobody may come back before those who borrowed `work` are done with it.
        let _wait = OnDrop(|| {
            self.undone.fetch_sub(self.take_all_that_is_left(), Ordering::Relaxed);
            let mut look = Lookout::default();
            while self.undone.load(Ordering::Acquire) > 0 {
                look.in_vain();
            }
        });
        while self.take_part() {}
    }

    /// Does one part, if there is one.
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
            self.undone.fetch_sub(1, Ordering::Release);
        });
        // SAFETY: this part is not done, so that the step stays what it was when the ticket was written.
        unsafe {
            let step = *self.step.get();
            (step.call)(step.data, u32::from(ticket.next));
        }
        true
    }

    /// Takes what nobody has taken, to leave it undone: how many parts.
    fn take_all_that_is_left(&self) -> u32 {
        let none_left = |old| {
            let ticket = Ticket::unpack(old);
            Some(Ticket { next: ticket.parts, ..ticket }.pack())
        };
        let old = self.ticket.fetch_update(Ordering::Relaxed, Ordering::Relaxed, none_left);
        let ticket = Ticket::unpack(old.unwrap_or_else(|ticket| ticket));
        u32::from(ticket.parts - ticket.next)
    }

    /// Does parts until the batch is done.
    fn help(&self) {
        let mut look = Lookout::default();
        while self.ticket.load(Ordering::Acquire) != Ticket::OVER {
            if self.take_part() {
                look = Lookout::default();
            } else {
                look.in_vain();
            }
        }
    }
}

/// Somebody who waits for what comes very soon.
#[derive(Default)]
struct Lookout(u32);

impl Lookout {
    fn in_vain(&mut self) {
        if self.0 < PATIENCE {
            self.0 += 1;
            spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Rooms of which every thread uses others.
struct Rooms<R>(*mut R);

// SAFETY: `each` hands every room to one thread.
unsafe impl<R: Send> Sync for Rooms<R> {}

impl<R> Rooms<R> {
    fn at(&self, part: usize) -> *mut R {
        self.0.wrapping_add(part)
    }
}

/// A place in memory of which several threads write different parts.
#[derive(Clone, Copy)]
pub(super) struct Shared(*mut f32);

// SAFETY: whoever writes behind it has to see to it that nobody else writes or reads there.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Where the numbers begin.
    pub fn of(numbers: &mut [f32]) -> Self {
        Shared(numbers.as_mut_ptr())
    }

    /// The place of a number.
    pub fn at(self, n: usize) -> *mut f32 {
        self.0.wrapping_add(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once_in_every_step() {
        for threads in [1, 2, 3, 9] {
            Team::with(threads, |team| {
                for step in 0..2000 {
                    let (parts, n) = (step % 9 + 1, step % 41);
                    let mut rooms = vec![Vec::new(); parts];
                    team.each(&mut rooms, n, |room, range| room.extend(range));
                    assert!(rooms.iter().all(|room| room.len() <= n.div_ceil(parts)));
                    assert_eq!(rooms.concat(), (0..n).collect::<Vec<_>>());
                }
            });
        }
    }

    #[test]
    fn teams_work_side_by_side() {
        let sum = |team: &Team| {
            let mut rooms = [0; 8];
            team.each(&mut rooms, 1000, |room, range| *room = range.sum());
            rooms.iter().sum::<usize>()
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
    fn a_panic_comes_through_and_leaves_nobody_waiting() {
        for bad in 0..4 {
            let panicked = std::panic::catch_unwind(|| {
                Team::with(3, |team| team.each(&mut [(); 4], 4, |(), part| assert!(part.start != bad)));
            });
            assert!(panicked.is_err());
        }
        assert_eq!(Team::with(2, |team| team.threads), 2);
    }

    #[test]
    fn little_work_stays_where_it_is() {
        Team::with(4, |team| {
            assert_eq!(team.parts(3, 1, 100), 1);
            assert_eq!(team.parts(3, 1000, WORTH), 3);
            assert_eq!(team.parts(100, 1000, WORTH), 8);
            assert_eq!(team.parts(24, 1, 384 * 16), 4);
        });
        assert_eq!(Team::with(1, |team| team.parts(100, 1000, WORTH)), 1);
        // A query of fifteen tokens on the default model.
        assert_eq!([2, 4, 64].map(|threads| Team::worth(threads, 15, 384 * 1536)), [2, 4, 8]);
        assert_eq!(Team::worth(64, 400, 384 * 1536), 64);
        assert_eq!(Team::worth(2, 3, 100), 1);
    }
}
