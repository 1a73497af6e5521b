//! The launcher's standard input, for ranks: read only as far as there is room at the other end.

use crate::launching::Event;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::mpsc::{Sender, SyncSender, channel};
use wire::jobs::{STREAM_BYTES_MAX, STREAM_WINDOW_BYTES};

/// Who has input, and how much of it is on its way to each.
pub struct Input {
    under_way: BTreeMap<u32, usize>,
    grants: Sender<()>,
    /// It was granted, and has not come yet.
    is_reading: bool,
    is_over: bool,
}

impl Input {
    /// Starts the thread that reads.
    ///
    /// # Errors
    /// There is none to be had.
    pub fn start(
        ranks: impl Iterator<Item = u32>,
        events: SyncSender<Event>,
    ) -> std::io::Result<Input> {
        let (grants, granted) = channel();
        std::thread::Builder::new().name("input".into()).spawn(move || {
            let mut input = std::io::stdin().lock();
            let mut place = vec![0; STREAM_BYTES_MAX];
            while granted.recv().is_ok() {
                // What cannot be read is over, as it is for a program.
                let count = input.read(&mut place).unwrap_or(0);
                if events.send(Event::Input(place[..count].to_vec())).is_err() || count == 0 {
                    return;
                }
            }
        })?;
        let under_way = ranks.map(|rank| (rank, 0)).collect();
        let mut input = Input { under_way, grants, is_reading: false, is_over: false };
        input.go_on();
        Ok(input)
    }

    /// Something was read: to whom it goes.
    pub fn read(&mut self, bytes: usize) -> Vec<u32> {
        self.is_reading = false;
        self.is_over |= bytes == 0;
        self.under_way.values_mut().for_each(|under_way| *under_way += bytes);
        let to = self.under_way.keys().copied().collect();
        self.go_on();
        to
    }

    pub fn taken(&mut self, rank: u32, bytes: usize) {
        if let Some(under_way) = self.under_way.get_mut(&rank) {
            *under_way = under_way.saturating_sub(bytes);
        }
        self.go_on();
    }

    /// It reads no more.
    pub fn close(&mut self, rank: u32) {
        self.under_way.remove(&rank);
        self.go_on();
    }

    fn go_on(&mut self) {
        let Some(most) = self.under_way.values().max() else { return };
        if !self.is_reading && !self.is_over && most + STREAM_BYTES_MAX <= STREAM_WINDOW_BYTES {
            // Where nobody reads any more there is nothing to come.
            self.is_reading = self.grants.send(()).is_ok();
        }
    }
}
