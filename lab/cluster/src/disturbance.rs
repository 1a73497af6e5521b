//! What is wrong with a lab's network: datagrams that are lost, nodes that cannot reach each other.
//!
//! All that the nodes send passes the bridge in the switch's network namespace, so a few rules of
//! nftables there are enough. The kernel's own emulator of bad networks (`sch_netem`) would do more
//! and is missing in many kernels.

use crate::network::feed;
use crate::process::Keeper;
use crate::record::address;
use anyhow::{Context, Result};
use std::process::Command;
use wire::ids::NodeId;

/// The default is a network with which nothing is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// Of a thousand datagrams so many are lost, at random; streams lose nothing.
    pub loss_permille: u32,
    /// The nodes up to this number and the others do not reach each other at all.
    pub cut_after: Option<u32>,
}

impl Disturbance {
    /// Rules that replace those of before.
    fn rules(&self) -> String {
        let mut rules = String::new();
        if let Some(last) = self.cut_after {
            let near = format!("{}-{}", address(NodeId(1)), address(NodeId(last)));
            rules += &format!("ip saddr {near} ip daddr != {near} drop\n");
            rules += &format!("ip saddr != {near} ip daddr {near} drop\n");
        }
        if self.loss_permille > 0 {
            let lost = self.loss_permille;
            rules += &format!("ip protocol udp numgen random mod 1000 < {lost} drop\n");
        }
        format!(
            "table bridge osmos\ndelete table bridge osmos\ntable bridge osmos {{\n\
             chain forward {{\ntype filter hook forward priority 0\n{rules}}}\n}}\n"
        )
    }

    /// Makes it so in the network namespace of the switch.
    pub(crate) fn impose(&self, switch: &Keeper) -> Result<()> {
        let namespace = format!("--net=/proc/{}/ns/net", switch.pid);
        let mut nft = Command::new("nsenter");
        nft.args([&namespace, "--", "nft", "--file", "-"]);
        let missing =
            "a lab with a bad network needs the program `nsenter`: install the package util-linux";
        feed(&mut nft, &self.rules(), missing)
            .context("cannot spoil the lab's network with `nft`, of the package nftables")
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_network_with_which_nothing_is_wrong_has_no_rules_left() {
        let rules = Disturbance::default().rules();
        assert!(rules.contains("delete table") && !rules.contains("drop"), "{rules}");
    }

    #[test]
    fn a_cut_holds_in_both_directions_and_for_streams_too() {
        let rules = Disturbance { cut_after: Some(6), loss_permille: 0 }.rules();
        assert!(rules.contains("saddr 10.77.0.1-10.77.0.6 ip daddr != 10.77.0.1-10.77.0.6 drop"));
        assert!(rules.contains("saddr != 10.77.0.1-10.77.0.6 ip daddr 10.77.0.1-10.77.0.6 drop"));
        assert!(!rules.contains("udp"), "{rules}");
    }
}
