//! The support matrix for people, made from the table.

use super::argument::{Argument, Length};
use super::entries::ENTRIES;
use super::table::{Class, Emulation, Rule};
use crate::forward::Direction;
use std::fmt::Write;

const HEAD: &str = "# System calls

Made from the table in `core/wire/src/calls` by `calls::matrix_markdown`; do not edit. A test says
how to renew it. What becomes of each x86-64 system call of Linux 6.18 that a program makes while it
is away from home:

- **local**: runs natively where the program is.
- **forwarded**: runs at home, in the deputy; only its memory travels.
- **emulated**: needs both halves, each in its own way.
- **comes home**: the program returns home, the call runs natively there, and the program may leave
  again. So does every call that is newer than this table. Correctness never depends on the table.

";

/// `docs/syscalls.md`.
pub fn matrix_markdown() -> String {
    let mut text = String::from(HEAD);
    let counted = |wanted: &str| ENTRIES.iter().filter(|e| class_of(&e.rule).0 == wanted).count();
    for kind in ["local", "forwarded", "emulated", "comes home", "by argument"] {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "- {kind}: {} calls", counted(kind));
    }
    text.push_str("\n| number | call | class | how |\n|--:|---|---|---|\n");
    for entry in ENTRIES {
        let (class, how) = class_of(&entry.rule);
        let _ = writeln!(text, "| {} | `{}` | {class} | {how} |", entry.number, entry.name);
    }
    text
}

fn class_of(rule: &Rule) -> (&'static str, String) {
    match rule {
        Rule::Always(Class::Local) => ("local", String::new()),
        Rule::Always(Class::Forward(form)) => ("forwarded", describe(form)),
        Rule::Always(Class::Emulate(emulation, _)) => {
            ("emulated", String::from(emulated(*emulation)))
        }
        Rule::Always(Class::Homecoming(word)) => ("comes home", String::from(*word)),
        Rule::LocalIf { text, .. } | Rule::Chosen { text, .. } => {
            ("by argument", String::from(*text))
        }
    }
}

fn emulated(emulation: Emulation) -> &'static str {
    match emulation {
        Emulation::SignalAction => "home decides on delivery by it, the body builds the frame",
        Emulation::SignalMask => "what is blocked stays pending at home",
        Emulation::SignalReturn => "native in the body; the mask that it restores is home's too",
        Emulation::RestartCall => "the interrupted call is made again with the time that is left",
        Emulation::ThreadExit => "the thread ends in both halves",
        Emulation::ProcessExit => "the process ends in both halves",
        Emulation::ProcessorClock => "the body adds up what was used at home and away",
        Emulation::ResourceUsage | Emulation::Times => {
            "forwarded; the body adds the processor time used away"
        }
        Emulation::FutexWait => "native in the body, which notes the deadline",
        Emulation::NewTask => {
            "a thread or a process is made in both halves, with the id that home's has; what \
             shares some of both comes home"
        }
        Emulation::FileMapping => {
            "home says which file it is; mapped here if the node has the same, else it comes home"
        }
        Emulation::MemorySync => {
            "made at home once it has what was written to the mapped file; of other memory it \
             comes home"
        }
    }
}

/// The arguments of a forwarded call, pointers as what they lead to.
fn describe(form: &[Argument]) -> String {
    let words: Vec<String> = form.iter().map(word).collect();
    if words.iter().all(|word| word == "value") {
        String::from("values only")
    } else {
        words.join(", ")
    }
}

fn word(argument: &Argument) -> String {
    match *argument {
        Argument::Value => String::from("value"),
        Argument::Text(_) => String::from("text"),
        Argument::Memory { length, direction, .. } => {
            let way = match direction {
                Direction::In => "in",
                Direction::Out => "out",
                Direction::InOut => "in and out",
            };
            match length {
                Length::Fixed(size) => format!("{size} bytes {way}"),
                Length::Counted { .. } | Length::Stored { .. } => format!("buffer {way}"),
                Length::DescriptorBits { .. } => format!("descriptors {way}"),
            }
        }
        Argument::Vector { .. } => String::from("vector"),
        Argument::Message(_) => String::from("message"),
        Argument::Messages { .. } => String::from("messages"),
        Argument::Strings => String::from("list of texts"),
        Argument::MaskPair => String::from("signal mask"),
    }
}
