//! fcntl by command.

use super::argument::{V, input, output, update};
use super::table::{Class, Rule};

const FLOCK: u32 = 32;

pub(super) const FCNTL: Rule = Rule::Chosen {
    by: |arguments| match arguments[1] as u32 {
        // F_DUPFD, GETFD, SETFD, GETFL, SETFL, SETOWN, GETOWN, SETSIG, GETSIG
        0..=4 | 8..=11
        // F_SETLEASE, GETLEASE, NOTIFY, DUPFD_QUERY, CREATED_QUERY, DUPFD_CLOEXEC
        | 1024..=1028 | 1030
        // F_SETPIPE_SZ, GETPIPE_SZ, ADD_SEALS, GET_SEALS
        | 1031..=1034 => Class::Forward(&[V, V, V]),
        // F_GETLK, F_OFD_GETLK
        5 | 36 => Class::Forward(const { &[V, V, update(FLOCK)] }),
        // F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW
        6 | 7 | 37 | 38 => Class::Forward(const { &[V, V, input(FLOCK)] }),
        // F_SETOWN_EX; F_GETOWN_EX, F_GETOWNER_UIDS
        15 => Class::Forward(const { &[V, V, input(8)] }),
        16 | 17 => Class::Forward(const { &[V, V, output(8)] }),
        // F_GET_RW_HINT, F_GET_FILE_RW_HINT; F_SET_RW_HINT, F_SET_FILE_RW_HINT
        1035 | 1037 => Class::Forward(const { &[V, V, output(8)] }),
        1036 | 1038 => Class::Forward(const { &[V, V, input(8)] }),
        _ => Class::Homecoming("unlisted-fcntl"),
    },
    text: "the commands of Linux 6.18 are forwarded but F_CANCELLK; others come home",
};
