//! Osmos between machines that differ in what nodes of a lab share: kernel, processor, clock, boot,
//! users. QEMU emulates them in software, on the network of a lab whose one node runs this
//! machine's own kernel.
//!
//! * [`kernels`]: which kernels, from the distribution's packages; [`image`]: what they boot
//! * [`inside`]: process 1 of a machine and its agent; [`protocol`], [`remote`]: commands in it
//! * [`machine`]: one machine; [`ground`]: lab and machines together; [`seat`]: a member, of either
//!   kind
//! * [`trials`]: programs between two members; [`checks`]: clocks and files; [`faults`]: what goes
//!   wrong meanwhile; [`table`]: what came of it; [`whole`]: all of it

pub mod checks;
pub mod faults;
pub mod ground;
pub mod image;
pub mod inside;
pub mod kernels;
pub mod machine;
pub mod protocol;
pub mod remote;
pub mod seat;
pub mod table;
pub mod trials;
pub mod whole;
