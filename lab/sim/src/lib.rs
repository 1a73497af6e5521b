//! A cluster without machines: unchanged brains of `core/brain` on simulated nodes, a simulated
//! network and simulated time.
//!
//! Every run is a function of a [`Scenario`], the brains' [`brain::Config`] and a seed, and ends
//! in an [`Outcome`]: what the work took, what was moved, what it cost, and whether all that must
//! hold did hold. `docs/decisions/0007-simulator-and-rotation.md` says how true it is.
//!
//! * [`scenario`]: what is simulated
//! * `world`: the loop of events; `agenda`: their order
//! * `node`, `process`: fair shares of cores in closed form; `looking`: what a daemon measures
//! * `moving`: the life of a move; `script`: what the scenario makes happen
//! * `users`: what each user has
//! * `builtin`: scenarios by name; [`command`]: `osmos sim`
//! * `check`: what must hold; [`outcome`]: what came of it

mod agenda;
mod builtin;
mod check;
pub mod command;
mod computing;
mod dice;
mod looking;
mod moving;
mod node;
pub mod outcome;
mod process;
pub mod scenario;
mod script;
mod users;

mod world;

pub use check::Findings;
pub use dice::Dice;
pub use outcome::Outcome;
pub use scenario::Scenario;
pub use world::World;
