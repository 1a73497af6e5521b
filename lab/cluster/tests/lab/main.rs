//! What a lab promises, tried on real labs. They need root; without it only `rootless` can run.

mod apart;
mod left_behind;
mod machine;
mod rootless;
mod terminal;
mod typed;
