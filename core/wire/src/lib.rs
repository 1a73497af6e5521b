//! The vocabulary of Osmos and every format that crosses a process or machine boundary.
//!
//! Pure: no input or output, no clock, no threads. Everything decoded here came from somewhere else
//! and is hostile until checked, so each format bounds its sizes before it allocates.
//!
//! * [`bounded`]: decoding with bounds
//! * [`ids`], [`units`], [`limits`]: names for things, with their units and their maxima;
//!   [`node_name`]: what people call nodes
//! * [`secure`]: the encrypted, mutually authenticated framing between nodes
//! * [`calls`], [`forward`]: system calls as they travel from a body to its deputy;
//!   [`read_ahead`]: what files contain, before it is read
//! * [`hashes`]: pages of memory that need not travel, told by what they contain
//! * [`image`]: the state of one process; [`processor_time`]: its clocks, wherever it ran;
//!   [`processor`]: what it can see of the processor
//! * [`stream`]: memory contents that travel beside their image; [`late`]: behind their process
//! * [`assignment`], [`supervisor`]: a node daemon and the supervisors it starts
//! * [`control`]: user tools and their node daemon; [`owner`], [`users`], [`forecast`]: parts of
//!   it; [`freeze_budget`]: how long a process may stand still, [`move_cost`]: how long it will,
//!   [`move_limits`]: what moves may take of a node
//! * [`files`], [`jobs`]: what a node does for users of others: `osmos mount`, `osmos job`
//! * [`peer`]: one node daemon and another; [`motive`]: what brains move processes for

pub mod assignment;
pub mod bounded;
pub mod calls;
pub mod clocks;
pub mod control;
pub mod files;
pub mod forecast;
pub mod forward;
pub mod freeze_budget;
mod greeting;
pub mod hashes;
pub mod ids;
pub mod image;
pub mod jobs;
pub mod late;
pub mod limits;
pub mod memory;
pub mod memory_group;
pub mod motive;
pub mod move_cost;
pub mod move_limits;
pub mod node_name;
pub mod owner;
pub mod peer;
pub mod processor;
pub mod processor_time;
pub mod read_ahead;
pub mod secure;
pub mod stream;
pub mod supervisor;
pub mod users;
