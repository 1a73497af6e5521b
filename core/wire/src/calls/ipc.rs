//! System V semaphores and message queues by command. (Shared memory comes home.)

use super::argument::{Argument, Length, V, Width, input, output};
use super::table::{Class, Rule};
use crate::forward::{Direction, Yield};

const SEMID_DS: u32 = 104;
const MSQID_DS: u32 = 120;

pub(super) const SEMCTL: Rule = Rule::Chosen {
    by: |arguments| match arguments[2] as u32 {
        // IPC_RMID, GETPID, GETVAL, GETNCNT, GETZCNT, SETVAL
        0 | 11 | 12 | 14 | 15 | 16 => Class::Forward(&[V, V, V, V]),
        // IPC_SET; IPC_STAT, SEM_STAT, SEM_STAT_ANY; IPC_INFO, SEM_INFO
        1 => Class::Forward(const { &[V, V, V, input(SEMID_DS)] }),
        2 | 18 | 20 => Class::Forward(const { &[V, V, V, output(SEMID_DS)] }),
        3 | 19 => Class::Forward(const { &[V, V, V, output(40)] }),
        // GETALL, SETALL: as many values as the set has semaphores, which only home knows.
        _ => Class::Homecoming("unlisted-semctl"),
    },
    text: "forwarded; GETALL and SETALL come home",
};

pub(super) const MSGCTL: Rule = Rule::Chosen {
    by: |arguments| match arguments[1] as u32 {
        // IPC_RMID; IPC_SET; IPC_STAT, MSG_STAT, MSG_STAT_ANY; IPC_INFO, MSG_INFO
        0 => Class::Forward(&[V, V, V]),
        1 => Class::Forward(const { &[V, V, input(MSQID_DS)] }),
        2 | 11 | 13 => Class::Forward(const { &[V, V, output(MSQID_DS)] }),
        3 | 12 => Class::Forward(const { &[V, V, output(32)] }),
        _ => Class::Homecoming("unlisted-msgctl"),
    },
    text: "forwarded",
};

/// A message: a `long` type, then as many bytes as the third argument says.
const fn queued(direction: Direction, yields: Yield) -> Argument {
    let length = Length::Counted { argument: 2, width: Width::Size, unit: 1, head: 8 };
    Argument::Memory { length, direction, yields }
}

pub(super) const MSGSND: &[Argument] = &[V, queued(Direction::In, Yield::Whole), V, V];
pub(super) const MSGRCV: &[Argument] = &[V, queued(Direction::Out, Yield::ResultAfter(8)), V, V, V];
