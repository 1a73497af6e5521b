//! A lab of one node of this machine's own kernel, and the machines beside it.

use crate::machines::image::{self, Built};
use crate::machines::kernels::Kernel;
use crate::machines::machine::{Machine, Plan};
use crate::machines::seat::LAB_NODE;
use anyhow::{Context, Result, ensure};
use lab::{Lab, LabName, Spec};
use std::collections::BTreeMap;
use std::path::PathBuf;
use wire::ids::NodeId;

/// The lab's name, unless told otherwise.
pub const LAB: &str = "machines";
/// The plans of the machines, in the lab's directory.
const PLANS: &str = "machines.json";
const PORT: u16 = 7780;

/// All of it. Ends when this is dropped, unless it is kept.
pub struct Ground {
    lab: Lab,
    pub machines: Vec<Machine>,
}

impl Ground {
    /// Builds lab and machines, and waits until all have booted. Daemons run in the lab only.
    pub fn up(name: &LabName, plans: &[Plan], tell: &dyn Fn(&str)) -> Result<Ground> {
        let built = build()?;
        let cache = cache_dir();
        std::fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
        let mut kernels = BTreeMap::new();
        for plan in plans {
            if kernels.contains_key(&plan.kernel) {
                continue;
            }
            tell(&format!("image for Linux {}", plan.kernel));
            let kernel = Kernel::find(&plan.kernel, &cache)?;
            let path = cache.join(format!("{name}-{}.cpio", plan.kernel));
            image::write(&path, &kernel, &built)?;
            kernels.insert(plan.kernel.clone(), (kernel, path));
        }
        let mut spec = Spec::unlimited(&built.osmos, name.as_str(), 1)?;
        spec.machines = plans.iter().map(|plan| plan.node.0).max().unwrap_or(1) - 1;
        let lab = Lab::up(&spec)?;
        let directory = lab.directory()?;
        std::fs::write(directory.join(PLANS), serde_json::to_vec_pretty(plans)?)?;
        let switch = lab.switch()?;
        let mut machines = Vec::new();
        for plan in plans {
            let (kernel, image) = &kernels[&plan.kernel];
            tell(&format!("{} starts: Linux {}, {}", plan.name(), plan.kernel, plan.cpu));
            machines.push(Machine::start(plan, kernel, image, &switch, &directory)?);
        }
        let ground = Ground { lab, machines };
        for machine in &ground.machines {
            machine.await_boot()?;
            tell(&format!("{} has booted", machine.plan.name()));
            ground.introduce(machine)?;
        }
        Ok(ground)
    }

    /// One that another command has brought up.
    pub fn open(name: &LabName) -> Result<Ground> {
        let lab = Lab::open(name)?;
        let directory = lab.directory()?;
        let text = std::fs::read(directory.join(PLANS))
            .with_context(|| format!("lab `{name}` has no machines"))?;
        let plans: Vec<Plan> = serde_json::from_slice(&text)?;
        let switch = lab.switch()?;
        let machines = plans.iter().map(|plan| Machine::open(plan, &switch, &directory)).collect();
        Ok(Ground { lab, machines })
    }

    /// Leaves it up.
    pub fn keep(self) -> Result<()> {
        self.lab.keep()
    }

    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The lab's node and the machines.
    pub fn members(&self) -> impl Iterator<Item = NodeId> {
        [LAB_NODE].into_iter().chain(self.machines.iter().map(|machine| machine.plan.node))
    }

    /// The machine with this number; none for the lab's node.
    pub fn machine(&self, node: NodeId) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.plan.node == node)
    }

    /// Gives a machine what members of the cluster share.
    fn introduce(&self, machine: &Machine) -> Result<()> {
        let key = std::fs::read(self.lab.cluster_key()?)?;
        let map = self.lab.record().spec.map();
        let remote = machine.remote();
        for (path, bytes) in [("/etc/cluster.key", &key[..]), ("/etc/mosix.map", map.as_bytes())] {
            let script = format!("umask 077 && cat > {path}");
            let ended = remote.output(0, &["sh", "-c", &script], bytes)?;
            let words = String::from_utf8_lossy(&ended.stderr);
            ensure!(ended.stderr.is_empty(), "cannot write {path}: {words}");
        }
        Ok(())
    }

    /// Starts the daemon of a machine; returns when it answers.
    pub fn start_daemon(&self, machine: &Machine) -> Result<()> {
        let node = machine.plan.node;
        let address = format!("{}:{PORT}", lab::address(node));
        machine.remote().must(
            0,
            &[
                "osmos",
                "up",
                "--node-id",
                &node.to_string(),
                "--listen",
                &address,
                "--map",
                "/etc/mosix.map",
                "--cluster-key",
                "/etc/cluster.key",
            ],
        )?;
        Ok(())
    }
}

/// Kernels and images: large, and made again if they are missing.
pub fn cache_dir() -> PathBuf {
    needs::target_dir().join("machines")
}

/// Osmos and process 1 of machines, built if they are not up to date.
fn build() -> Result<Built> {
    let [init, osmos] = needs::build(["machine-init", "osmos"])?;
    Ok(Built { init, osmos })
}

/// Ends lab and machines. False if there were none.
pub fn down(name: &LabName) -> Result<bool> {
    lab::down(name)
}
