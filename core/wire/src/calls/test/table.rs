//! The table is complete, consistent and says what it should of well-known calls.

use super::number;
use crate::calls::entries::ENTRIES;
use crate::calls::table::Rule;
use crate::calls::{
    Argument, Class, Emulation, Length, classify, limits_body, local_rules, matrix_markdown, name,
};
use std::collections::BTreeSet;

#[test]
fn every_call_of_linux_6_18_is_listed_once() {
    let numbers: BTreeSet<u32> = (0..=336).chain(424..=469).collect();
    let listed: BTreeSet<u32> = ENTRIES.iter().map(|entry| entry.number).collect();
    assert_eq!(listed, numbers);
    let names: BTreeSet<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), ENTRIES.len());
    assert_eq!(name(0), Some("read"));
    assert_eq!(name(231), Some("exit_group"));
    assert_eq!(name(469), Some("file_setattr"));
    assert_eq!(name(400), None);
}

#[test]
fn unlisted_numbers_come_home() {
    for number in [337, 423, 470, 1000, 0x4000_0000, u32::MAX] {
        assert_eq!(classify(number, &[0; 6]), Class::Homecoming("unlisted-call"));
    }
}

/// Every description that a call can have, as far as its first three arguments decide.
fn forms() -> Vec<&'static [Argument]> {
    let mut forms = Vec::new();
    for entry in ENTRIES {
        match &entry.rule {
            Rule::Always(Class::Forward(form) | Class::Emulate(_, form)) => forms.push(*form),
            Rule::Always(_) => {}
            Rule::LocalIf { .. } | Rule::Chosen { .. } => {
                for value in (0..0x600).chain(0x1200..0x1300).chain(0x5400..0x5500) {
                    for arguments in [
                        [value, 0, 0, 0, 0, 0],
                        [0, value, 0, 1, 0, 0],
                        [0, 0, value, 0, 0, 0],
                        [0, 1, value, 0, 0, 0],
                    ] {
                        if let Class::Forward(form) | Class::Emulate(_, form) =
                            classify(entry.number, &arguments)
                        {
                            forms.push(form);
                        }
                    }
                }
            }
        }
    }
    forms
}

#[test]
fn descriptions_refer_to_arguments_that_exist() {
    for form in forms() {
        assert!(form.len() <= 6);
        for argument in form {
            match *argument {
                Argument::Memory { length: Length::Counted { argument, .. }, .. }
                | Argument::Memory { length: Length::DescriptorBits { argument }, .. }
                | Argument::Vector { count: argument, .. }
                | Argument::Messages { count: argument, .. } => {
                    assert_eq!(form[usize::from(argument)], Argument::Value);
                }
                Argument::Memory { length: Length::Stored { argument }, .. } => {
                    let fixed = matches!(
                        form[usize::from(argument)],
                        Argument::Memory { length: Length::Fixed(4), .. }
                    );
                    assert!(fixed);
                }
                Argument::Memory { length: Length::Fixed(size), .. } => assert!(size > 0),
                Argument::Value
                | Argument::Text(_)
                | Argument::Message(_)
                | Argument::Strings
                | Argument::MaskPair => {}
            }
        }
    }
}

fn class(name: &str, arguments: [u64; 6]) -> Class {
    classify(number(name), &arguments)
}

fn is_forwarded(name: &str, arguments: [u64; 6]) -> bool {
    matches!(class(name, arguments), Class::Forward(_))
}

fn is_homecoming(name: &str, arguments: [u64; 6]) -> bool {
    matches!(class(name, arguments), Class::Homecoming(_))
}

#[test]
fn mmap_is_local_only_for_private_anonymous_memory() {
    let mmap = |flags: u64| class("mmap", [0, 4096, 3, flags, u64::MAX, 0]);
    for flags in [0x22, 0x32, 0x4022, 0x2_0022, 0x8022, 0x10_0022, 0x62] {
        assert_eq!(mmap(flags), Class::Local, "{flags:#x}");
    }
    assert_eq!(mmap(0x21), Class::Homecoming("shared-memory"));
    assert_eq!(mmap(0x28), Class::Homecoming("special-mapping"));
    for flags in [0x122, 0x2022, 0x4_0022] {
        assert_eq!(mmap(flags), Class::Homecoming("special-mapping"), "{flags:#x}");
    }
}

#[test]
fn files_are_mapped_away_private_or_to_be_read_only() {
    let mmap = |protection, flags| class("mmap", [0, 4096, protection, flags, 3, 0]);
    let mapped = Class::Emulate(Emulation::FileMapping, &[]);
    for (protection, flags) in [(3, 0x02), (5, 0x12), (7, 0x10_8802), (1, 0x01), (5, 0x01)] {
        assert_eq!(mmap(protection, flags), mapped, "{protection} {flags:#x}");
    }
    assert_eq!(mmap(3, 0x01), Class::Homecoming("shared-memory"));
    assert_eq!(mmap(1, 0x03), Class::Homecoming("shared-memory"));
    // Locked, huge, growing, synchronous, with a key: none of these is known there.
    for flags in [0x2002, 0x4_0002, 0x102, 0x8_0002] {
        assert_eq!(mmap(3, flags), Class::Homecoming("file-mapping"), "{flags:#x}");
    }
    assert_eq!(mmap(0x100_0001, 0x02), Class::Homecoming("file-mapping"));
    assert_eq!(class("mmap", [0, 0, 1, 0x02, 3, 0]), Class::Homecoming("file-mapping"));
}

#[test]
fn futex_is_local_but_for_relative_timeouts() {
    let futex = |operation: u64, timeout: u64| class("futex", [64, operation, 0, timeout, 0, 0]);
    assert_eq!(futex(0x80, 0), Class::Local);
    assert_eq!(futex(0x81, 0), Class::Local);
    assert_eq!(futex(0x189, 0x1000), Class::Local);
    assert!(matches!(futex(0x80, 0x1000), Class::Emulate(Emulation::FutexWait, _)));
    assert!(matches!(futex(0, 1 << 40), Class::Emulate(Emulation::FutexWait, _)));
    // FUTEX_FD is gone from Linux.
    assert_eq!(futex(2, 0), Class::Homecoming("unlisted-futex"));
}

#[test]
fn dispositions_are_asked_for_where_the_program_is_and_set_at_home_as_well() {
    assert_eq!(class("rt_sigaction", [2, 0, 1 << 40, 8, 0, 0]), Class::Local);
    for act in [0x1000, 1 << 40] {
        let set = class("rt_sigaction", [2, act, 0, 8, 0, 0]);
        assert!(matches!(set, Class::Emulate(Emulation::SignalAction, _)), "{act:#x}");
    }
}

#[test]
fn barriers_are_local_and_their_registrations_are_homes() {
    assert_eq!(class("membarrier", [8, 0, 0, 0, 0, 0]), Class::Local);
    assert!(is_homecoming("membarrier", [16, 0, 0, 0, 0, 0]));
    assert!(is_forwarded("membarrier", [512, 0, 0, 0, 0, 0]));
}

#[test]
fn processor_clocks_are_told_away_and_timers_on_them_are_homes() {
    assert_eq!(class("clock_gettime", [1, 0, 0, 0, 0, 0]), Class::Local);
    // The process's, the thread's, and the scheduler's clock of process and thread 4711.
    for clock in [2, 3, !4711_u64 << 3 | 2, !4711_u64 << 3 | 6, 0xffff_6cc2] {
        let told = class("clock_gettime", [clock, 0, 0, 0, 0, 0]);
        assert!(matches!(told, Class::Emulate(Emulation::ProcessorClock, _)), "{clock:#x}");
    }
    // PROF and VIRT of process 4711, and the clock of descriptor 4711.
    assert!(is_homecoming("clock_gettime", [!4711_u64 << 3, 0, 0, 0, 0, 0]));
    assert!(is_homecoming("clock_gettime", [!4711_u64 << 3 | 1, 0, 0, 0, 0, 0]));
    assert!(is_forwarded("clock_gettime", [!4711_u64 << 3 | 3, 0, 0, 0, 0, 0]));
    assert!(is_forwarded("clock_nanosleep", [1, 0, 0, 0, 0, 0]));
    assert!(is_homecoming("clock_nanosleep", [2, 0, 0, 0, 0, 0]));
    assert!(is_forwarded("timer_create", [0; 6]));
    assert!(is_homecoming("timer_create", [3, 0, 0, 0, 0, 0]));
    assert!(is_forwarded("setitimer", [0; 6]));
    assert!(is_homecoming("setitimer", [2, 0, 0, 0, 0, 0]));
}

#[test]
fn usage_of_children_is_homes_alone() {
    for own in [0, 1] {
        let usage = class("getrusage", [own, 0, 0, 0, 0, 0]);
        assert!(matches!(usage, Class::Emulate(Emulation::ResourceUsage, _)));
    }
    assert!(is_forwarded("getrusage", [u64::MAX, 0, 0, 0, 0, 0]));
    assert!(is_forwarded("getrusage", [7, 0, 0, 0, 0, 0]));
    assert!(matches!(class("times", [0; 6]), Class::Emulate(Emulation::Times, _)));
}

#[test]
fn argument_values_decide() {
    assert!(is_forwarded("ioctl", [0, 0x5401, 0, 0, 0, 0]));
    assert!(is_homecoming("ioctl", [0, 0xc010_aa3f, 0, 0, 0, 0]));
    assert!(is_forwarded("fcntl", [0, 3, 0, 0, 0, 0]));
    assert!(is_homecoming("fcntl", [0, 9999, 0, 0, 0, 0]));
    assert!(is_forwarded("prctl", [15, 0, 0, 0, 0, 0]));
    assert!(is_homecoming("prctl", [22, 0, 0, 0, 0, 0]));
    assert!(is_forwarded("setsockopt", [3, 1, 2, 0, 0, 0]));
    assert!(is_homecoming("setsockopt", [3, 1, 26, 0, 0, 0]));
    assert!(is_homecoming("setsockopt", [3, 6, 31, 0, 0, 0]));
    assert!(is_homecoming("sendto", [3, 0, 0, 0x400_0000, 0, 0]));
    assert!(is_homecoming("madvise", [0, 0, 9, 0, 0, 0]));
    assert_eq!(class("madvise", [0, 0, 4, 0, 0, 0]), Class::Local);
    assert!(is_forwarded("personality", [0xffff_ffff, 0, 0, 0, 0, 0]));
    assert!(is_homecoming("personality", [0x4_0000, 0, 0, 0, 0, 0]));
}

#[test]
fn new_limits_on_what_a_body_consumes_are_told_from_others() {
    for (name, arguments, does) in [
        ("prlimit64", [0, 9, 0, 64, 0, 0], false),
        ("prlimit64", [0, 9, 64, 0, 0, 0], true),
        ("prlimit64", [0, 7, 64, 0, 0, 0], false),
        ("setrlimit", [9, 64, 0, 0, 0, 0], true),
        ("setrlimit", [7, 64, 0, 0, 0, 0], false),
        ("getrlimit", [9, 64, 64, 0, 0, 0], false),
    ] {
        assert_eq!(limits_body(number(name), &arguments), does, "{name} {arguments:?}");
        assert!(is_forwarded(name, arguments), "a child of vfork does not go home for it");
    }
}

#[test]
fn calls_that_tie_memory_or_identity_to_a_kernel_come_home() {
    for name in [
        "clone",
        "execveat",
        "io_uring_setup",
        "shmat",
        "userfaultfd",
        "ptrace",
        "perf_event_open",
        "bpf",
        "seccomp",
        "modify_ldt",
        "mlock",
        "process_vm_readv",
        "vmsplice",
        "io_setup",
        "memfd_secret",
        "set_mempolicy",
        "pkey_alloc",
        "unshare",
        "setns",
        "setgroups",
        "capset",
        "iopl",
        "mount",
        "mseal",
    ] {
        assert!(is_homecoming(name, [0; 6]), "{name}");
    }
}

#[test]
fn local_rules_are_the_local_class() {
    let always: BTreeSet<u32> =
        local_rules().filter(|rule| rule.tests.is_empty()).map(|rule| rule.number).collect();
    for number in 0..480 {
        let is_local = classify(number, &[u64::MAX; 6]) == Class::Local
            && classify(number, &[0; 6]) == Class::Local;
        assert_eq!(always.contains(&number), is_local, "call {number}");
    }
    for rule in local_rules() {
        let mut arguments = [0; 6];
        for test in rule.tests {
            assert!(test.values.iter().all(|value| value & !test.mask == 0));
            arguments[usize::from(test.argument)] = test.values[0];
        }
        assert_eq!(classify(rule.number, &arguments), Class::Local);
    }
}

#[test]
fn syscalls_document_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/syscalls.md");
    if std::env::var_os("OSMOS_RENEW_DOCUMENTS").is_some() {
        std::fs::write(path, matrix_markdown()).expect("docs/syscalls.md is writable");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == matrix_markdown(),
        "docs/syscalls.md is out of date: run OSMOS_RENEW_DOCUMENTS=1 cargo test -p wire syscalls"
    );
}
