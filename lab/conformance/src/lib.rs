//! Native Linux is the oracle: the same program runs without Osmos, at home, moved once, moved
//! back and forth, and in a storm of moves, and what can be seen of it must be the same.
//!
//! Programs are the guests of `lab/guests`, each about one kernel feature, and programs that nobody
//! here wrote. All run in node 1 of a lab, whose /tmp no other node sees: a file that is read or
//! written by a process that is away proves that its calls really went home.
//!
//! * [`guests`], [`programs`], [`inputs`]: what is run; [`outside`], [`packages`]: suites of others
//! * [`flavour`], [`method`]: how; [`stage`]: where; [`trial`]: one program in one flavour
//! * [`moves`]: who moved how often; [`observation`]: what was seen, and how two of them differ
//! * [`suite`]: all of it, in parallel; [`report`]: the table
//! * [`soak`]: many processes moved at random for a long time; [`machines`]: all of it between
//!   machines with other kernels, processors, clocks and users

pub mod flavour;
pub mod guests;
pub mod inputs;
pub mod machines;
pub mod method;
pub mod moves;
pub mod observation;
pub mod outside;
pub mod packages;
pub mod programs;
pub mod report;
pub mod soak;
pub mod stage;
pub mod subject;
pub mod suite;
pub mod trial;

pub use flavour::Flavour;
pub use method::Method;
pub use report::Report;
pub use suite::{Options, run};
