//! What a lab promises, tried on real labs. They need root; without it only `rootless` can run.

mod apart;
mod disturbed;
mod left_behind;
mod machine;
mod network;
mod rootless;
mod terminal;
mod typed;
