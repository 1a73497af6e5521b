//! What `/proc` says about a process. The parsers are pure functions of bytes.

pub mod maps;
pub mod pagemap;
pub mod process;
