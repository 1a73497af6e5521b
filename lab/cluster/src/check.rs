//! `osmos lab check`: do the nodes really have the speeds that were asked for?
//!
//! Every node spins at once for a while; what each got done is compared with its share of what all
//! got done. This measures the machine as it is now, so it is a command and not a test: tests look
//! at the kernel's counters instead.

use crate::lab::Lab;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::hint::black_box;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use wire::ids::NodeId;

/// Rounds between two looks at the clock.
const ROUNDS: u64 = 10_000;

/// One node in the form of `osmos lab check --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub node: NodeId,
    /// As asked for, the fastest node being 1.
    pub asked: f64,
    /// As measured, the fastest node as asked being 1.
    pub achieved: f64,
    pub rounds: u64,
    /// Cores that the kernel says its programs used.
    pub cores_used: Option<f64>,
}

/// Spins in all nodes at once.
pub fn measure(lab: &Lab, span: Duration) -> Result<Vec<Measured>> {
    let osmos = crate::mounts::OSMOS;
    let before: Vec<_> = lab.nodes().map(|node| node.usage().work_cpu_ns).collect();
    let start = Instant::now();
    let spins: Vec<Child> = lab
        .nodes()
        .map(|node| {
            let mut spin = node.command(osmos);
            spin.arg("lab-spin").arg(span.as_millis().to_string());
            spin.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start a spin")
        })
        .collect::<Result<_>>()?;
    let rounds = spins.into_iter().map(rounds_of).collect::<Result<Vec<u64>>>()?;
    let wall_s = start.elapsed().as_secs_f64();
    let speeds = &lab.record().spec.speeds;
    let fastest = (0..speeds.len())
        .max_by(|a, b| speeds[*a].total_cmp(&speeds[*b]))
        .context("a lab has nodes")?;
    Ok(lab
        .nodes()
        .enumerate()
        .map(|(index, node)| Measured {
            node: node.id(),
            asked: speeds[index] / speeds[fastest],
            achieved: rounds[index] as f64 / rounds[fastest] as f64,
            rounds: rounds[index],
            cores_used: match (before[index], node.usage().work_cpu_ns) {
                (Some(before), Some(after)) => Some((after - before) as f64 / 1e9 / wall_s),
                _ => None,
            },
        })
        .collect())
}

fn rounds_of(spin: Child) -> Result<u64> {
    let output = spin.wait_with_output().context("lost a spin")?;
    ensure!(output.status.success(), "a spin failed: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("a spin says `{}`", text.trim()))
}

pub fn table(measured: &[Measured]) -> String {
    let mut text = "NODE  ASKED  ACHIEVED  CORES USED\n".to_owned();
    for row in measured {
        let cores = row.cores_used.map_or_else(|| "-".to_owned(), |cores| format!("{cores:.3}"));
        text +=
            &format!("{:>4}  {:>5.3}  {:>8.3}  {cores:>10}\n", row.node.0, row.asked, row.achieved);
    }
    text
}

/// `osmos lab-spin MS`: computes for that long and says how much it got done.
pub fn spin(span: Duration) -> u64 {
    let start = Instant::now();
    let (mut rounds, mut value) = (0, 1_u64);
    while start.elapsed() < span {
        for _ in 0..ROUNDS {
            value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        rounds += ROUNDS;
    }
    rounds
}
