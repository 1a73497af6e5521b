//! Socket calls whose class depends on options and flags.

use super::Arguments;
use super::argument::{Argument, V, Width, array, received, remaining, sent, stored, update};
use super::table::{Class, Rule};
use crate::forward::{Direction, Yield};

/// `int *` with the length of the buffer: read and written.
const LENGTH: Argument = update(4);

pub(super) const ACCEPT: &[Argument] = &[V, stored(2, Direction::Out), LENGTH, V];
pub(super) const NAME_OF: &[Argument] = &[V, stored(2, Direction::Out), LENGTH];
pub(super) const NAMED: &[Argument] = &[V, array(2, Width::Int, 1, Direction::In, Yield::Whole), V];
pub(super) const RECVFROM: &[Argument] = &[V, received(2), V, V, stored(5, Direction::Out), LENGTH];
pub(super) const RECVMSG: &[Argument] = &[V, Argument::Message(Direction::Out), V];
pub(super) const RECVMMSG: &[Argument] =
    &[V, Argument::Messages { count: 2, direction: Direction::Out }, V, V, remaining(16)];

/// Sends the very pages of the caller, after the call has returned: they have to be its own.
const MSG_ZEROCOPY: u64 = 0x400_0000;

fn unless_zero_copy(flags: u64, form: &'static [Argument]) -> Class {
    if flags & MSG_ZEROCOPY != 0 { Class::Homecoming("zero-copy") } else { Class::Forward(form) }
}

const SENDS: &str = "forwarded; MSG_ZEROCOPY comes home";

pub(super) const SENDTO: Rule = Rule::Chosen {
    by: |arguments| {
        const NAME: Argument = array(5, Width::Int, 1, Direction::In, Yield::Whole);
        unless_zero_copy(arguments[3], const { &[V, sent(2), V, V, NAME, V] })
    },
    text: SENDS,
};

pub(super) const SENDMSG: Rule = Rule::Chosen {
    by: |arguments| {
        unless_zero_copy(arguments[2], const { &[V, Argument::Message(Direction::In), V] })
    },
    text: SENDS,
};

pub(super) const SENDMMSG: Rule = Rule::Chosen {
    by: |arguments| {
        const BATCH: Argument = Argument::Messages { count: 2, direction: Direction::In };
        unless_zero_copy(arguments[3], &[V, BATCH, V, V])
    },
    text: SENDS,
};

const SOL_IP: u64 = 0;
const SOL_SOCKET: u64 = 1;
const SOL_TCP: u64 = 6;
const SOL_UDP: u64 = 17;
const SOL_IPV6: u64 = 41;
const SOL_NETLINK: u64 = 270;

/// Options whose value is plain bytes. Not among them: SO_ATTACH_FILTER (26), SO_GET_FILTER's use
/// of a count instead of a length (the same 26), SO_ATTACH_REUSEPORT_CBPF (51) and SO_ZEROCOPY
/// (60) of sockets; TCP_ZEROCOPY_RECEIVE (35) and TCP_AO (38 and up); the tables of netfilter and
/// multicast routing (64 and up, 200 and up).
fn is_plain(level: u64, option: u64) -> bool {
    match level & 0xffff_ffff {
        SOL_SOCKET => matches!(option, 1..=25 | 27..=50 | 52..=59 | 61..=83),
        SOL_IP => matches!(option, 1..=15 | 17..=25 | 32..=40 | 49..=52),
        SOL_TCP => matches!(option, 1..=30 | 32..=34 | 36 | 37),
        SOL_UDP => matches!(option, 1 | 100..=104),
        SOL_IPV6 => matches!(option, 1..=11 | 15..=31 | 33 | 36 | 49..=63 | 66..=78),
        SOL_NETLINK => matches!(option, 1..=5 | 8..=12),
        _ => false,
    }
}

fn option(arguments: &Arguments, form: &'static [Argument]) -> Class {
    if is_plain(arguments[1], arguments[2] & 0xffff_ffff) {
        Class::Forward(form)
    } else {
        Class::Homecoming("unlisted-socket-option")
    }
}

const OPTIONS: &str = "options with plain values of sockets, IP, TCP, UDP and netlink are \
                       forwarded; filters, zero copy and unknown levels come home";

pub(super) const SETSOCKOPT: Rule = Rule::Chosen {
    by: |arguments| {
        const VALUE: Argument = array(4, Width::Int, 1, Direction::In, Yield::Whole);
        option(arguments, &[V, V, V, VALUE, V])
    },
    text: OPTIONS,
};

/// Some options read their buffer before they fill it (TCP_INFO's kin, multicast filters).
pub(super) const GETSOCKOPT: Rule = Rule::Chosen {
    by: |arguments| option(arguments, const { &[V, V, V, stored(4, Direction::InOut), LENGTH] }),
    text: OPTIONS,
};
