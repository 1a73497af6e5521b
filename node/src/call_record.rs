//! Keeps the newest calls on the disk (see [`crate::keys::replay`]), on a thread of its own. A disk
//! may be busy for seconds, and a dispatcher that waits for it passes for dead. So the call waits:
//! it is answered when its record is safe.

use crate::keys::replay::Replay;
use crate::state::StateError;
use std::io;
use std::sync::mpsc;
use tokio::sync::oneshot;

struct Order {
    calls: Replay,
    kept: oneshot::Sender<()>,
}

/// Ends its thread when it is dropped.
pub struct CallRecord(mpsc::Sender<Order>);

impl CallRecord {
    /// `keep` makes a record safe, and may take its time.
    pub fn start(
        keep: impl Fn(&Replay) -> Result<(), StateError> + Send + 'static,
    ) -> io::Result<CallRecord> {
        let (orders, given) = mpsc::channel();
        std::thread::Builder::new().name("calls".into()).spawn(move || serve(&given, keep))?;
        Ok(CallRecord(orders))
    }

    /// Answers when these calls, or later ones, are safe; with an error if they cannot be: without
    /// a record a call could be played again.
    pub fn keep(&self, calls: &Replay) -> oneshot::Receiver<()> {
        let (kept, answer) = oneshot::channel();
        // Without the thread there is no answer.
        let _ = self.0.send(Order { calls: calls.clone(), kept });
        answer
    }
}

/// What came while the disk was busy is kept at once: the last of it says all.
fn serve(given: &mpsc::Receiver<Order>, keep: impl Fn(&Replay) -> Result<(), StateError>) {
    while let Ok(first) = given.recv() {
        let mut orders = vec![first];
        orders.extend(given.try_iter());
        let Some(last) = orders.last() else { continue };
        match keep(&last.calls) {
            Ok(()) => {
                for order in orders {
                    // Who does not wait any more need not know.
                    let _ = order.kept.send(());
                }
            }
            Err(error) => tracing::error!("{error}"),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::path::PathBuf;
    use wire::peer::NodeKey;

    fn calls(count: u8) -> Replay {
        Replay::restore((1..=count).map(|nth| (NodeKey([nth; 32]), u64::from(nth))))
    }

    #[test]
    fn whoever_keeps_does_not_wait_and_what_came_meanwhile_is_kept_at_once() {
        let (busy, disk) = mpsc::channel::<()>();
        let (written, seen) = mpsc::channel();
        let record = CallRecord::start(move |calls: &Replay| {
            written.send(calls.clone()).unwrap();
            disk.recv().unwrap();
            Ok(())
        });
        let record = record.unwrap();
        let mut first = record.keep(&calls(1));
        assert_eq!(seen.recv().unwrap(), calls(1));
        let later = [record.keep(&calls(2)), record.keep(&calls(3))];
        assert!(first.try_recv().is_err(), "answered before it was safe");
        busy.send(()).unwrap();
        first.blocking_recv().unwrap();
        assert_eq!(seen.recv().unwrap(), calls(3));
        busy.send(()).unwrap();
        for answer in later {
            answer.blocking_recv().unwrap();
        }
    }

    #[test]
    fn a_call_that_cannot_be_kept_is_not_answered() {
        let full = || StateError::Damaged(PathBuf::from("calls.json"));
        let record = CallRecord::start(move |_: &Replay| Err(full())).unwrap();
        record.keep(&calls(1)).blocking_recv().unwrap_err();
    }
}
