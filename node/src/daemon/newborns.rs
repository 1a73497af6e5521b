//! Processes that have just been born: found while they are worth most, which is before they have
//! begun ([decision 0037](../../../docs/decisions/)).
//!
//! A look over `/proc` four times a second is too late for a compiler that takes as long. While
//! processes are being born, the kernel is asked every few milliseconds for the last number that it
//! gave to one: that is one small file. Only the numbers since are looked at, and those that were
//! born within the last second. [`crate::looks`] says when.

use super::Daemon;
use crate::looks::NEWBORN_PAUSE;
use crate::process::{Launch, Process, Retry};
use crate::procfs::{self, Stat};
use crate::programs::{self, Program, Programs};
use crate::sample::effort::thread_time;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A process is looked at each time while it may become another program, and now and then until it
/// is a second old: what it computed before it ended would not be known else.
const BEGINNING: Duration = Duration::from_millis(60);
pub(super) const YOUNG: Duration = Duration::from_secs(1);
const PAUSE_OF_YOUNG: Duration = Duration::from_millis(50);
/// Whoever has that much to compute yet may be worth a move at once.
const WORTH_THINKING: Duration = Duration::from_micros(brain::looks::WORTH_A_THOUGHT.0);
/// Who is so old has outlived what others of its name take that end soon.
const BRIEF_AGE: Duration = Duration::from_millis(100);

impl Daemon {
    pub(super) fn look_for_newborns(&mut self, now: Instant) {
        if !self.looks.begin_newborns(now) {
            return;
        }
        let began = thread_time();
        let is_worth_thinking = self.look_at_newborns(now);
        self.looks.newborns_took(thread_time().saturating_sub(began));
        if is_worth_thinking {
            self.tell_brain_load();
        }
    }

    /// Whether one of them may be worth a move.
    fn look_at_newborns(&mut self, now: Instant) -> bool {
        let numbers = self.looks.new_numbers(procfs::read_last_number());
        let stats: Vec<_> = numbers.filter_map(procfs::read_stat_of_first_thread).collect();
        if !stats.is_empty() {
            let managed: BTreeSet<i32> = self.processes.keys().map(|pid| pid.0).collect();
            self.inherit_all(procfs::born_of(&stats, &managed));
        }
        let me = self.me();
        let programs = &self.programs;
        let mut is_worth_thinking = false;
        for process in self.processes.values_mut().filter(|it| it.at == me && is_due(it, now)) {
            look_at(process, now);
            let left = process.left(programs).unwrap_or_default();
            is_worth_thinking |= process.is_ready() && left >= WORTH_THINKING;
        }
        is_worth_thinking
    }

    /// So that the next daemon knows them as well.
    pub(super) fn keep_programs(&mut self, now: Instant, is_end: bool) {
        let Some(encoded) = self.programs.take_news(now, is_end) else { return };
        if let Err(error) = self.state.keep_programs(&encoded) {
            tracing::warn!("{error}");
        }
    }

    /// It has ended, wherever it was.
    pub(super) fn remember_program(&mut self, process: &Process) {
        let cpu = Duration::from_micros(process.consumption.cpu_us());
        self.programs.ended(process.program(), cpu);
    }
}

/// Young, and not looked at just now.
fn is_due(process: &Process, now: Instant) -> bool {
    let age = now.saturating_duration_since(process.here_since);
    let is_itself = matches!(process.launch, Launch::Found | Launch::Running);
    if !is_itself || process.has_ended || process.moving.is_some() || age >= YOUNG {
        return false;
    }
    let seen = process.activity.looked_at().map(|at| now.saturating_duration_since(at));
    age < BEGINNING || seen.is_none_or(|since| since >= PAUSE_OF_YOUNG)
}

fn look_at(process: &mut Process, now: Instant) {
    let Some(stat) = process.look_again() else { return };
    if process.launch == Launch::Found {
        process.launch = Launch::Running;
    }
    process.activity.look(now, u32::from(stat.is_runnable()), process.consumption.home_cpu_us);
    process.activity.group = Some(stat.group);
}

/// How long a program is left alone that has just begun and has so much to compute yet, as far as
/// is known: most of those that end soon have ended then, and are not moved for nothing.
fn pause_of_program(left: Option<Duration>) -> Option<Duration> {
    match left {
        Some(left) if left >= WORTH_THINKING => None,
        Some(_) => Some(BRIEF_AGE),
        None => Some(NEWBORN_PAUSE),
    }
}

impl Process {
    /// Reads what it is called and has used by now, of one that is at home; None if it has ended.
    pub fn look_again(&mut self) -> Option<Stat> {
        let stat = procfs::read_stat(self.pid.0)?;
        if stat.started_ticks != self.started_ticks || stat.has_ended() {
            return None;
        }
        self.has_name(&stat.command);
        if let Some(cpu_us) = procfs::read_cpu_us(self.pid.0) {
            self.consumption.home_cpu_us = cpu_us;
        }
        Some(stat)
    }

    /// When to send it where its user wants it to be, now that it has begun its program; None: at
    /// once.
    pub fn retry_of_program(&mut self, programs: &Programs, now: Instant) -> Option<Retry> {
        self.look_again();
        Some(Retry::after(now, pause_of_program(self.left(programs))?))
    }

    /// How much processor time it is likely to have taken when it ends, in microseconds; 0 if that
    /// is not known.
    pub fn expected_us(&self, programs: &Programs) -> u64 {
        let left = self.left(programs);
        left.map_or(0, |left| self.consumption.cpu_us() + left.as_micros() as u64)
    }

    /// It is called so now: if that is another program than before, its options are another's, too.
    pub fn has_name(&mut self, command: &str) {
        if self.command != command || self.shape.is_none() {
            self.command.clear();
            self.command.push_str(command);
            self.shape = procfs::read_command_line(self.pid.0).map(|line| programs::shape(&line));
        }
    }

    fn program(&self) -> Program {
        let shape = self.shape.unwrap_or_default();
        Program { uid: self.owner.uid, command: self.command.clone(), shape }
    }

    /// What it is likely to compute yet; None if nobody knows.
    pub fn left(&self, programs: &Programs) -> Option<Duration> {
        programs.left(&self.program(), Duration::from_micros(self.consumption.cpu_us()))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn programs_are_left_alone_until_those_that_end_soon_have_ended() {
        assert_eq!(pause_of_program(Some(WORTH_THINKING)), None, "it is known to take long");
        let brief = pause_of_program(Some(WORTH_THINKING / 2));
        let unknown = pause_of_program(None);
        assert!(unknown.is_some() && unknown < brief, "{unknown:?}, {brief:?}");
    }
}
