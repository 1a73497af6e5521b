//! The words in which the table describes the arguments of a call.

use crate::forward::{Direction, Yield};

/// What one argument register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A number, a descriptor, an address that is only compared: travels as it is.
    Value,
    /// A C string of at most so many bytes with its zero. Linux itself reads no further, so a
    /// longer one travels cut off, without a zero, and gets Linux's own error.
    Text(u32),
    /// Plain bytes.
    Memory { length: Length, direction: Direction, yields: Yield },
    /// An array of `struct iovec`, as many as argument `count` says, and what they point to.
    Vector { count: u8, direction: Direction },
    /// A `struct msghdr` with its name, parts and control bytes.
    Message(Direction),
    /// An array of `struct mmsghdr`, as many as argument `count` says.
    Messages { count: u8, direction: Direction },
    /// An array of pointers to C strings, ended by NULL, and the strings (execve).
    Strings,
    /// The sixth argument of pselect6: a pointer to {pointer to a signal mask, its size}.
    MaskPair,
}

/// How long the memory behind an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    Fixed(u32),
    /// A head, then as many units as another argument says.
    Counted {
        argument: u8,
        width: Width,
        unit: u32,
        head: u32,
    },
    /// One bit for each descriptor below another argument, in whole words of 64.
    DescriptorBits {
        argument: u8,
    },
    /// As the `int` behind another argument says: what Linux wrote there afterwards says how much
    /// of it was filled.
    Stored {
        argument: u8,
    },
}

/// The C type of a count. A negative `int` counts as none: Linux refuses it unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Int,
    Unsigned,
    Size,
}

impl Width {
    pub(super) fn read(self, register: u64) -> u64 {
        match self {
            Width::Int => u64::try_from(register as u32 as i32).unwrap_or(0),
            Width::Unsigned => u64::from(register as u32),
            Width::Size => register,
        }
    }
}

pub(super) const V: Argument = Argument::Value;
/// A path: `PATH_MAX`.
pub(super) const PATH: Argument = Argument::Text(4096);

/// A structure that the call reads.
pub(super) const fn input(size: u32) -> Argument {
    fixed(size, Direction::In, Yield::Whole)
}

/// A structure that the call fills completely when it succeeds.
pub(super) const fn output(size: u32) -> Argument {
    fixed(size, Direction::Out, Yield::Whole)
}

/// A structure that the call reads and writes, or writes only in part or only sometimes: what it
/// leaves alone comes back as it went.
pub(super) const fn update(size: u32) -> Argument {
    fixed(size, Direction::InOut, Yield::Whole)
}

/// As [`update`], but written even when the call fails: the time that was left.
pub(super) const fn remaining(size: u32) -> Argument {
    fixed(size, Direction::InOut, Yield::Always)
}

const fn fixed(size: u32, direction: Direction, yields: Yield) -> Argument {
    Argument::Memory { length: Length::Fixed(size), direction, yields }
}

/// A buffer that the call reads; argument `length` is its `size_t`.
pub(super) const fn sent(length: u8) -> Argument {
    array(length, Width::Size, 1, Direction::In, Yield::Whole)
}

/// A buffer whose filled length is the call's result; argument `length` is its `size_t`.
pub(super) const fn received(length: u8) -> Argument {
    array(length, Width::Size, 1, Direction::Out, Yield::Result)
}

/// Units of `unit` bytes, as many as argument `count` says.
pub(super) const fn array(
    count: u8,
    width: Width,
    unit: u32,
    direction: Direction,
    yields: Yield,
) -> Argument {
    let length = Length::Counted { argument: count, width, unit, head: 0 };
    Argument::Memory { length, direction, yields }
}

/// A buffer whose length is behind argument `length` (a socket address, an option).
pub(super) const fn stored(length: u8, direction: Direction) -> Argument {
    let length = Length::Stored { argument: length };
    Argument::Memory { length, direction, yields: Yield::Whole }
}

/// A set of descriptors below argument `count`.
pub(super) const fn descriptors(count: u8) -> Argument {
    Argument::Memory {
        length: Length::DescriptorBits { argument: count },
        direction: Direction::InOut,
        yields: Yield::Whole,
    }
}
