//! The lab's network: a bridge in a network namespace of its own, one cable to each node, nothing
//! in the machine's own network. Made by netlink: no program is needed.

use crate::netlink::{self, Netlink, Traffic};
use crate::record::address;
use crate::spec::Rate;
use anyhow::{Context, Result};
use netlink_packet_core::DefaultNla;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_packet_route::tc::TcHandle;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use wire::ids::NodeId;

/// All nodes meet here.
const BRIDGE: &str = "br0";
/// And those that are cut off from the others, here.
const FAR_BRIDGE: &str = "br1";
const LOOPBACK: &str = "lo";
/// A node's only link, as it sees it.
const NODE_LINK: &str = "eth0";
const PREFIX_BITS: u8 = 24;
/// What a limited link may send at once, as time at its rate: below it the kernel's timer costs
/// rate, above it a message arrives faster than the link allows.
const BURST_S: f64 = 0.002;
/// The largest packet the kernel hands to a link in one piece must fit the burst.
const BURST_BYTES_MIN: u64 = 65_536 + 1_500;
/// What may wait at a limited link before packets are dropped, seconds at its rate.
const QUEUE_S: f64 = 0.05;
/// Options of the kernel's token bucket (linux/pkt_sched.h).
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;

/// Makes the bridges in this network namespace.
pub fn make_switch() -> Result<()> {
    let mut network = Netlink::open()?;
    start_loopback(&mut network)?;
    for name in [BRIDGE, FAR_BRIDGE] {
        let what = || format!("cannot make the lab's bridge {name}: the kernel needs `bridge`");
        // Forwards from the first packet on.
        let data = InfoData::Bridge(vec![InfoBridge::ForwardDelay(0)]);
        let bridge = netlink::up(of_kind(netlink::link(name), InfoKind::Bridge, data));
        network.make(Message::NewLink(bridge)).with_context(what)?;
    }
    Ok(())
}

/// Lays a cable from the bridge here to the namespace of process `pid`, and limits what comes down.
pub fn connect(node: NodeId, pid: i32, rate: Option<Rate>) -> Result<()> {
    let mut network = Netlink::open()?;
    let link = switch_link(node);
    let namespace = File::open(format!("/proc/{pid}/ns/net")).context("cannot see its network")?;
    let mut peer = netlink::link(NODE_LINK);
    peer.attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
    let data = InfoData::Veth(InfoVeth::Peer(peer));
    network
        .make(Message::NewLink(of_kind(netlink::link(&link), InfoKind::Veth, data)))
        .with_context(|| format!("cannot lay the cable {link}: the kernel needs `veth`"))?;
    seat(&mut network, &link, Side::Near).with_context(|| format!("cannot plug in {link}"))?;
    limit(&mut network, &link, rate)
}

/// Plugs a link of this namespace into the bridge.
pub fn plug(link: &str) -> Result<()> {
    seat(&mut Netlink::open()?, link, Side::Near).with_context(|| format!("cannot plug in {link}"))
}

/// Gives a link of this namespace an address of its own.
pub fn attend(link: &str, address: Ipv4Addr, prefix_bits: u8) -> Result<()> {
    let mut network = Netlink::open()?;
    give_address(&mut network, link, address, prefix_bits)?;
    network
        .change(Message::SetLink(netlink::up(netlink::link(link))))
        .with_context(|| format!("cannot bring up {link}"))
}

/// Takes a link of this namespace down, or brings it up again.
pub fn set_link(link: &str, is_up: bool) -> Result<()> {
    let message = netlink::link(link);
    let message = if is_up { netlink::up(message) } else { netlink::down(message) };
    Netlink::open()?
        .change(Message::SetLink(message))
        .with_context(|| format!("cannot take {link} {}", if is_up { "up" } else { "down" }))
}

/// Brings up the network inside a node, and limits what goes up.
pub fn start_node(node: NodeId, rate: Option<Rate>) -> Result<()> {
    let mut network = Netlink::open()?;
    start_loopback(&mut network)?;
    give_address(&mut network, NODE_LINK, address(node), PREFIX_BITS)?;
    network
        .change(Message::SetLink(netlink::up(netlink::link(NODE_LINK))))
        .with_context(|| format!("cannot bring up {NODE_LINK} of node {node}"))?;
    limit(&mut network, NODE_LINK, rate)
}

/// Its neighbours' addresses have the same first bits.
fn give_address(
    network: &mut Netlink,
    link: &str,
    address: Ipv4Addr,
    prefix_bits: u8,
) -> Result<()> {
    let what = || format!("cannot give {link} the address {address}/{prefix_bits}");
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = prefix_bits;
    message.header.index = netlink::index_of(link).with_context(what)?;
    let others = u32::MAX.checked_shr(prefix_bits.into()).unwrap_or(0);
    message.attributes = vec![
        AddressAttribute::Local(address.into()),
        AddressAttribute::Address(address.into()),
        AddressAttribute::Broadcast(Ipv4Addr::from(u32::from(address) | others)),
    ];
    network.make(Message::NewAddress(message)).with_context(what)
}

/// The two parts of a network that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Near,
    Far,
}

/// Puts a link of this namespace into the bridge of its side.
pub fn seat(network: &mut Netlink, link: &str, side: Side) -> io::Result<()> {
    let bridge = match side {
        Side::Near => BRIDGE,
        Side::Far => FAR_BRIDGE,
    };
    let mut message = netlink::up(netlink::link(link));
    message.attributes.push(LinkAttribute::Controller(netlink::index_of(bridge)?));
    network.change(Message::SetLink(message))
}

/// The end of a node's cable that is at the switch.
pub fn switch_link(node: NodeId) -> String {
    format!("node{node}")
}

fn start_loopback(network: &mut Netlink) -> Result<()> {
    let message = netlink::up(netlink::link(LOOPBACK));
    network.change(Message::SetLink(message)).context("cannot bring up the loopback")
}

fn of_kind(mut message: LinkMessage, kind: InfoKind, data: InfoData) -> LinkMessage {
    let info = vec![LinkInfo::Kind(kind), LinkInfo::Data(data)];
    message.attributes.push(LinkAttribute::LinkInfo(info));
    message
}

fn limit(network: &mut Netlink, link: &str, rate: Option<Rate>) -> Result<()> {
    let Some(rate) = rate else { return Ok(()) };
    let bucket = Traffic {
        kind: "tbf",
        handle: TcHandle::UNSPEC,
        parent: TcHandle::ROOT,
        info: 0,
        options: bucket_options(rate),
    };
    let limited = bucket.on(link).map(Message::NewQueueDiscipline);
    limited.and_then(|message| network.make(message)).with_context(|| {
        let rate = rate.bits_per_s;
        format!("cannot limit {link} to {rate} bit/s: the kernel needs `sch_tbf`")
    })
}

/// A token bucket as the kernel takes it: `struct tc_tbf_qopt`, and what outgrew its 32 bits.
fn bucket_options(rate: Rate) -> Vec<DefaultNla> {
    let bytes_per_s = rate.bits_per_s / 8;
    let burst_bytes = burst_bytes(rate);
    let queue_bytes = (bytes_per_s as f64 * QUEUE_S) as u64 + burst_bytes;
    let limit_bytes = u32::try_from(queue_bytes).unwrap_or(u32::MAX);
    // rate and peak rate, 12 bytes each (the rate proper is the last four); limit, buffer, mtu
    let mut parameters = vec![0; 36];
    let rate32 = u32::try_from(bytes_per_s).unwrap_or(u32::MAX);
    parameters[8..12].copy_from_slice(&rate32.to_ne_bytes());
    parameters[24..28].copy_from_slice(&limit_bytes.to_ne_bytes());
    let burst32 = u32::try_from(burst_bytes).unwrap_or(u32::MAX);
    let mut options = vec![
        DefaultNla::new(TCA_TBF_PARMS, parameters),
        DefaultNla::new(TCA_TBF_BURST, burst32.to_ne_bytes().to_vec()),
    ];
    if rate32 == u32::MAX {
        options.push(DefaultNla::new(TCA_TBF_RATE64, bytes_per_s.to_ne_bytes().to_vec()));
    }
    options
}

fn burst_bytes(rate: Rate) -> u64 {
    let bytes = rate.bits_per_s as f64 / 8.0 * BURST_S;
    (bytes as u64).max(BURST_BYTES_MIN)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_burst_holds_the_largest_packet_and_two_milliseconds() {
        let slow = burst_bytes(Rate { bits_per_s: 64_000 });
        assert_eq!(slow, BURST_BYTES_MIN);
        assert_eq!(burst_bytes(Rate { bits_per_s: 1_000_000_000 }), 250_000);
    }

    #[test]
    fn names_of_links_fit_the_kernel() {
        assert!(switch_link(NodeId(crate::spec::NODES_MAX)).len() < 16);
    }
}
