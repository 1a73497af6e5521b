//! Osmos between machines that differ in what nodes of a lab share: kernel, processor, clock, boot,
//! users. QEMU emulates them in software, on the network of a lab whose one node runs this
//! machine's own kernel.
//!
//! * [`kernels`]: which kernels, from the distribution's packages; [`image`]: what they boot
//! * [`inside`]: process 1 of a machine and its agent; [`protocol`], [`remote`]: commands in it
//! * [`machine`]: one machine; [`ground`]: lab and machines together

pub mod ground;
pub mod image;
pub mod inside;
pub mod kernels;
pub mod machine;
pub mod protocol;
pub mod remote;
