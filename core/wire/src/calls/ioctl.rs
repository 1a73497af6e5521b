//! ioctl by request. The size that many requests encode is not believed for requests that are not
//! listed: a structure may hold pointers.

use super::argument::{Argument, V, input, output, update};
use super::table::{Class, Rule};

pub(super) const IOCTL: Rule = Rule::Chosen {
    by: |arguments| {
        let request = arguments[1] as u32;
        match terminal(request).or_else(|| file(request)).or_else(|| network(request)) {
            Some(form) => Class::Forward(form),
            None => Class::Homecoming("unlisted-ioctl"),
        }
    },
    text: "terminal, file and interface requests that are listed are forwarded; others come home",
};

type Form = &'static [Argument];
const VALUE: Form = &[V, V, V];
const INT_IN: Form = &[V, V, input(4)];
const INT_OUT: Form = &[V, V, output(4)];

/// tty_ioctl(2). The kernel's `struct termios` has 36 bytes, `termio` 18, `termios2` 44.
fn terminal(request: u32) -> Option<Form> {
    Some(match request {
        0x5401 => const { &[V, V, output(36)] },         // TCGETS
        0x5402..=0x5404 => const { &[V, V, input(36)] }, // TCSETS, TCSETSW, TCSETSF
        0x5405 => const { &[V, V, output(18)] },         // TCGETA
        0x5406..=0x5408 => const { &[V, V, input(18)] }, // TCSETA, TCSETAW, TCSETAF
        0x802c_542a => const { &[V, V, output(44)] },    // TCGETS2
        0x402c_542b..=0x402c_542d => const { &[V, V, input(44)] }, // TCSETS2, TCSETSW2, TCSETSF2
        0x5413 => const { &[V, V, output(8)] },          // TIOCGWINSZ
        0x5414 => const { &[V, V, input(8)] },           // TIOCSWINSZ
        0x5412 => const { &[V, V, input(1)] },           // TIOCSTI
        // TCSBRK, TCXONC, TCFLSH, TIOCEXCL, TIOCNXCL, TIOCSCTTY
        0x5409..=0x540e => VALUE,
        // TIOCCONS, TIOCNOTTY, TCSBRKP, TIOCSBRK, TIOCCBRK, TIOCVHANGUP, TIOCGPTPEER, TIOCSIG
        0x541d | 0x5422 | 0x5425 | 0x5427 | 0x5428 | 0x5437 | 0x5441 | 0x4004_5436 => VALUE,
        // TIOCGPGRP, TIOCOUTQ, TIOCMGET, TIOCGSOFTCAR, TIOCGETD, TIOCGSID
        0x540f | 0x5411 | 0x5415 | 0x5419 | 0x5424 | 0x5429 => INT_OUT,
        // TIOCSPGRP, TIOCMBIS, TIOCMBIC, TIOCMSET, TIOCSSOFTCAR, TIOCPKT, TIOCSETD
        0x5410 | 0x5416..=0x5418 | 0x541a | 0x5420 | 0x5423 => INT_IN,
        // TIOCGPTN, TIOCGDEV, TIOCGPKT, TIOCGPTLCK, TIOCGEXCL
        0x8004_5430 | 0x8004_5432 | 0x8004_5438 | 0x8004_5439 | 0x8004_5440 => INT_OUT,
        0x4004_5431 => INT_IN, // TIOCSPTLCK
        _ => return None,
    })
}

fn file(request: u32) -> Option<Form> {
    Some(match request {
        0x5450 | 0x5451 => VALUE,                     // FIONCLEX, FIOCLEX
        0x541b => INT_OUT,                            // FIONREAD
        0x5421 | 0x5452 => INT_IN,                    // FIONBIO, FIOASYNC
        0x5460 => const { &[V, V, output(8)] },       // FIOQSIZE
        0x0002 => INT_OUT,                            // FIGETBSZ
        0x8008_6601 => INT_OUT, // FS_IOC_GETFLAGS: an int, whatever its number says
        0x4008_6602 => INT_IN,  // FS_IOC_SETFLAGS: likewise
        0x8008_7601 => INT_OUT, // FS_IOC_GETVERSION: likewise
        0x801c_581f => const { &[V, V, output(28)] }, // FS_IOC_FSGETXATTR
        0x401c_5820 => const { &[V, V, input(28)] }, // FS_IOC_FSSETXATTR
        0x4004_9409 => VALUE,   // FICLONE
        0x4020_940d => const { &[V, V, input(32)] }, // FICLONERANGE
        0x125e | 0x1268 => INT_OUT, // BLKROGET, BLKSSZGET
        0x127b => INT_OUT,      // BLKPBSZGET
        0x1260 => const { &[V, V, output(8)] }, // BLKGETSIZE
        0x8008_1272 => const { &[V, V, output(8)] }, // BLKGETSIZE64
        0x8004_5200 => INT_OUT, // RNDGETENTCNT
        _ => return None,
    })
}

fn network(request: u32) -> Option<Form> {
    Some(match request {
        0x8901 | 0x8902 => INT_IN,  // FIOSETOWN, SIOCSPGRP
        0x8903..=0x8905 => INT_OUT, // FIOGETOWN, SIOCGPGRP, SIOCATMARK
        // SIOCGIF: NAME, FLAGS, ADDR, DSTADDR, BRDADDR, NETMASK, METRIC, MTU, HWADDR, INDEX,
        // TXQLEN: a struct ifreq without pointers. (SIOCGIFCONF has one.)
        0x8910 | 0x8913 | 0x8915 | 0x8917 | 0x8919 | 0x891b | 0x891d | 0x8921 | 0x8927 | 0x8933
        | 0x8942 => const { &[V, V, update(40)] },
        _ => return None,
    })
}
