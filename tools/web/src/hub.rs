//! Between those who ask the daemon and those who tell browsers: one board, one channel to all
//! browsers, and whether anybody looks.

use crate::board::{Board, Frame};
use serde_json::Value;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::broadcast::{Receiver, Sender, channel};

/// Frames that a browser may be behind. One that is further behind begins anew.
const FRAMES_MAX: usize = 32;

pub struct Hub {
    board: Mutex<Board>,
    frames: Sender<Frame>,
    viewers: Mutex<usize>,
    has_come: Condvar,
}

/// Somebody who looks, until it is dropped.
pub struct Viewer(Arc<Hub>);

impl Drop for Viewer {
    fn drop(&mut self) {
        *lock(&self.0.viewers) -= 1;
    }
}

/// What a thread that has panicked has left is whole: every change is made under one lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Hub {
    pub fn new(board: Board) -> Hub {
        Hub {
            board: Mutex::new(board),
            frames: channel(FRAMES_MAX).0,
            viewers: Mutex::new(0),
            has_come: Condvar::new(),
        }
    }

    /// Has the board told something, and browsers told what comes of it.
    pub fn tell(&self, change: impl FnOnce(&mut Board) -> Vec<Frame>) {
        let mut board = lock(&self.board);
        for frame in change(&mut board) {
            // Nobody may be there.
            let _ = self.frames.send(frame);
        }
    }

    /// Everything, and then all that follows it, with nothing between.
    pub fn follow(&self, seen: u64) -> (Frame, Receiver<Frame>) {
        let board = lock(&self.board);
        (board.whole(seen), self.frames.subscribe())
    }

    pub fn history(&self) -> Value {
        lock(&self.board).history()
    }

    pub fn enter(self: &Arc<Hub>) -> Viewer {
        *lock(&self.viewers) += 1;
        self.has_come.notify_all();
        Viewer(self.clone())
    }

    pub fn is_watched(&self) -> bool {
        *lock(&self.viewers) > 0
    }

    /// Waits for as long as is usual while somebody looks, or so much longer while nobody does, but
    /// not after somebody has come.
    pub fn rest(&self, since: Instant, watched: Duration, unwatched: Duration) {
        let mut viewers = lock(&self.viewers);
        loop {
            let span = if *viewers > 0 { watched } else { unwatched };
            let rest = span.saturating_sub(since.elapsed());
            if rest.is_zero() {
                return;
            }
            let waited = self.has_come.wait_timeout(viewers, rest);
            viewers = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::WORDING;
    use std::thread;

    #[test]
    fn who_comes_ends_the_rest_of_those_who_ask() {
        let hub = Arc::new(Hub::new(Board::new(WORDING)));
        let begun = Instant::now();
        thread::scope(|scope| {
            let resting = scope.spawn(|| {
                hub.rest(begun, Duration::ZERO, Duration::from_secs(3_600));
                hub.is_watched()
            });
            let _viewer = hub.enter();
            assert!(resting.join().unwrap());
        });
        assert!(!hub.is_watched(), "the viewer has left");
    }

    #[test]
    fn what_follows_the_whole_is_what_was_told_after_it() {
        let hub = Hub::new(Board::new(WORDING));
        hub.tell(|board| board.take_loss("one"));
        let (whole, mut receiver) = hub.follow(0);
        assert!(whole.text.contains("\"lost\":\"one\""), "{}", whole.text);
        hub.tell(|board| board.take_loss("two"));
        assert!(receiver.try_recv().unwrap().text.contains("two"));
        assert!(receiver.try_recv().is_err());
    }

    #[test]
    fn who_does_not_read_is_told_that_it_is_behind() {
        use tokio::sync::broadcast::error::TryRecvError;
        let hub = Hub::new(Board::new(WORDING));
        let (_, mut receiver) = hub.follow(0);
        for _ in 0..=FRAMES_MAX {
            hub.tell(|board| board.take_loss("x"));
        }
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Lagged(1)));
    }
}
