//! What is wrong with a lab's network: datagrams that are lost, nodes that cannot reach each other.
//!
//! A cut is a second bridge: the cables of one part are plugged into it, as if the cable between
//! two switches were cut. Every kernel that has a lab has that. Datagrams are lost at a filter
//! where they enter the switch, a few instructions of classic BPF, because the kernel's own
//! emulator of bad networks (`sch_netem`) is missing in many kernels and would not spare the
//! streams.

use crate::netlink::{self, Netlink, Traffic};
use crate::network::{self, Side};
use crate::record::{self, Record};
use anyhow::{Context, Result, ensure};
use netlink_packet_core::DefaultNla;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::TcHandle;
use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use wire::ids::NodeId;

/// The default is a network with which nothing is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Of a thousand datagrams so many are lost, at random; streams lose nothing.
    pub loss_permille: u32,
    /// The nodes up to this number and the others do not reach each other at all.
    pub cut_after: Option<u32>,
}

impl Disturbance {
    /// Makes it so, by way of a process that enters the namespaces of the lab's switch.
    pub(crate) fn impose(&self, record: &Record) -> Result<()> {
        let lab_dir = record::labs_dir()?.join(record.spec.name.as_str());
        let output = Command::new(&record.spec.osmos)
            .args(["lab-keeper", "disturb"])
            .arg(lab_dir)
            .arg(serde_json::to_string(self)?)
            .stdin(Stdio::null())
            .output()
            .context("cannot start whoever spoils the lab's network")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cannot spoil the lab's network: {}", complaint.trim());
        Ok(())
    }
}

/// `osmos lab-keeper disturb LAB_DIR DISTURBANCE`; in a process without other threads.
pub(crate) fn main(lab_dir: &Path, words: &str) -> Result<()> {
    let disturbance: Disturbance = serde_json::from_str(words).context("no disturbance")?;
    let record = record::read(lab_dir)?.context("the lab is gone")?;
    enter_switch(&record)?;
    let mut network = Netlink::open()?;
    let count = record.spec.nodes().count() as u32;
    for node in record.spec.nodes() {
        match disturb(&mut network, node, count, &disturbance) {
            // The cable of a node that has crashed went with it.
            Err(error) if netlink::is_absent(&error) => {}
            outcome => outcome.with_context(|| {
                format!(
                    "node {node}: the kernel needs `sch_ingress` and `cls_bpf` to lose datagrams"
                )
            })?,
        }
    }
    Ok(())
}

/// The network namespace of the switch, and before it the user namespace of a lab that is not
/// root's.
fn enter_switch(record: &Record) -> Result<()> {
    let switch = record.switch.as_ref().context("the lab has no switch")?;
    let path = |kind: &str| format!("/proc/{}/ns/{kind}", switch.pid);
    let open = |kind: &str| File::open(path(kind)).with_context(|| format!("no {kind} namespace"));
    let (user, net) = (open("user")?, open("net")?);
    // Compared after opening: what is open now is the switch's and not a later process's.
    ensure!(switch.is_alive(), "the lab's switch has ended");
    if std::fs::read_link(path("user"))? != std::fs::read_link("/proc/self/ns/user")? {
        setns(user, CloneFlags::CLONE_NEWUSER).context("only the owner of the lab can")?;
    }
    setns(net, CloneFlags::CLONE_NEWNET).context("cannot enter the lab's network")
}

fn disturb(
    network: &mut Netlink,
    node: NodeId,
    count: u32,
    disturbance: &Disturbance,
) -> io::Result<()> {
    // The smaller part goes: packets between the others, which are to notice nothing, would be lost
    // while they go one after another.
    let is_far = disturbance.cut_after.is_some_and(|last| {
        let first_go = last < count.saturating_sub(last);
        (node.0 <= last) == first_go
    });
    let link = network::switch_link(node);
    network::seat(network, &link, if is_far { Side::Far } else { Side::Near })?;
    lose(network, &link, disturbance.loss_permille)
}

/// Where a link takes packets in, before any filter (linux/pkt_sched.h: TC_H_CLSACT and so on).
const HOOK: TcHandle = TcHandle { major: 0xffff, minor: 0 };
const AT_INGRESS: TcHandle = TcHandle { major: 0xffff, minor: TcHandle::MIN_INGRESS };

/// Loses datagrams that come in by this link; none is lost any more for 0.
fn lose(network: &mut Netlink, link: &str, loss_permille: u32) -> io::Result<()> {
    let hook = || Traffic {
        kind: "clsact",
        handle: HOOK,
        parent: TcHandle::CLSACT,
        info: 0,
        options: Vec::new(),
    };
    // The filter goes with its hook. There may have been none.
    match network.change(Message::DelQueueDiscipline(hook().on(link)?)) {
        Err(error) if !is_no_hook(&error) => return Err(error),
        _ => {}
    }
    if loss_permille == 0 {
        return Ok(());
    }
    network.make(Message::NewQueueDiscipline(hook().on(link)?))?;
    let filter = Traffic {
        kind: "bpf",
        handle: TcHandle { major: 0, minor: 1 },
        parent: AT_INGRESS,
        info: FIRST_FILTER << 16 | u32::from(ETH_P_ALL.to_be()),
        options: filter_options(&losing(loss_permille)),
    };
    network.make(Message::NewTrafficFilter(filter.on(link)?))
}

fn is_no_hook(error: &io::Error) -> bool {
    use nix::libc::{EINVAL, ENOENT};
    matches!(error.raw_os_error(), Some(ENOENT | EINVAL))
}

const FIRST_FILTER: u32 = 1;
const ETH_P_ALL: u16 = 3;
/// Options of the kernel's BPF classifier (linux/pkt_cls.h).
const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
const TCA_BPF_FLAGS: u16 = 8;
/// What the program returns is what becomes of the packet.
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
const TC_ACT_UNSPEC: u32 = u32::MAX;
const TC_ACT_SHOT: u32 = 2;

/// One instruction of classic BPF: code, jump if true, jump if false, operand.
type Instruction = (u16, u8, u8, u32);

/// A program for an Ethernet frame: drops so many of a thousand UDP datagrams.
fn losing(permille: u32) -> [Instruction; 8] {
    // linux/bpf_common.h, linux/filter.h
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_NOT_LESS: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const RANDOM: u32 = 0xffff_f000 + 56;
    const ETHER_TYPE: u32 = 12;
    const IP_PROTOCOL: u32 = 14 + 9;
    const IPV4: u32 = 0x0800;
    const UDP: u32 = 17;
    let share = u64::from(permille.min(1000)) * (1 << 32) / 1000;
    let limit = u32::try_from(share).unwrap_or(u32::MAX);
    [
        (LOAD_HALF, 0, 0, ETHER_TYPE),
        (JUMP_IF_EQUAL, 0, 4, IPV4),
        (LOAD_BYTE, 0, 0, IP_PROTOCOL),
        (JUMP_IF_EQUAL, 0, 2, UDP),
        (LOAD_WORD, 0, 0, RANDOM),
        (JUMP_IF_NOT_LESS, 0, 1, limit),
        (RETURN, 0, 0, TC_ACT_UNSPEC),
        (RETURN, 0, 0, TC_ACT_SHOT),
    ]
}

fn filter_options(program: &[Instruction]) -> Vec<DefaultNla> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for (code, if_true, if_false, operand) in program {
        bytes.extend(code.to_ne_bytes());
        bytes.extend([*if_true, *if_false]);
        bytes.extend(operand.to_ne_bytes());
    }
    let count = program.len() as u16;
    vec![
        DefaultNla::new(TCA_BPF_OPS_LEN, count.to_ne_bytes().to_vec()),
        DefaultNla::new(TCA_BPF_OPS, bytes),
        DefaultNla::new(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes().to_vec()),
    ]
}
