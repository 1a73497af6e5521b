//! Nodes are apart, and have the limits that were asked for.

use crate::machine::{self, PROGRAM};
use crate::network::{refusal, send};
use lab::{Lab, Node, Spec};
use std::process::Stdio;
use std::time::Instant;

fn spec(nodes: u32) -> Spec {
    let mut spec = Spec::new(machine::name().parse().unwrap(), nodes).unwrap();
    spec.osmos = PROGRAM.into();
    spec.has_daemons = false;
    spec
}

fn shell(node: &Node<'_>, script: &str) -> String {
    let output = node.command("sh").args(["-c", script]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn each_node_has_names_files_and_processes_of_its_own() {
    machine::alone("apart::each_node_has_names_files_and_processes_of_its_own", || {
        let lab = Lab::up(&spec(2)).unwrap();
        let (one, two) = (lab.node(1), lab.node(2));
        let name = machine::name();
        assert_eq!(shell(&one, "hostname"), format!("{name}-node1\n"));
        assert_eq!(shell(&two, "cat /etc/hostname"), format!("{name}-node2\n"));
        for dir in ["/tmp", "/home", "/run", "/var/lib/osmos", "/dev/shm", "/etc"] {
            shell(&one, &format!("echo mine > {dir}/osmos-lab-test"));
            assert_eq!(shell(&two, &format!("ls {dir} | grep -c osmos-lab-test || true")), "0\n");
            let outside = std::path::Path::new(dir).join("osmos-lab-test");
            assert!(!outside.exists(), "{} is seen outside", outside.display());
            assert_eq!(shell(&one, &format!("cat {dir}/osmos-lab-test")), "mine\n");
        }
        // Process 1 is the keeper, the shell's parent is outside, and a group is one's own.
        assert_eq!(shell(&one, "cut -d' ' -f1 /proc/1/stat; echo $PPID"), "1\n0\n");
        assert_eq!(shell(&one, "test $(cut -d' ' -f5 /proc/$$/stat) = $$ && echo own"), "own\n");
        assert_eq!(shell(&one, "set -- /proc/[0-9]*; echo $#"), "2\n");
        let kinds = ["net", "pid", "mnt", "uts", "ipc"];
        for kind in kinds {
            let link = |node| shell(node, &format!("readlink /proc/self/ns/{kind}"));
            let own = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
            assert_ne!(link(&one), link(&two));
            assert_ne!(link(&one).trim(), own.to_str().unwrap());
        }
    });
}

#[test]
fn a_limited_link_is_no_faster_than_its_rate() {
    machine::alone("apart::a_limited_link_is_no_faster_than_its_rate", || {
        let mut limited = spec(2);
        limited.link = Some("20mbit".parse().unwrap());
        let lab = Lab::up(&limited).unwrap();
        // 2.5 MB are a second at that rate; one burst of each of the two limits comes for nothing.
        let took_s = send(&lab.node(1), &lab.node(2), 2_500_000);
        assert!(took_s > 0.9, "2.5 MB in {took_s} s");
    });
}

#[test]
fn nodes_reach_each_other_by_name_and_two_labs_do_not_meet() {
    machine::alone("apart::nodes_reach_each_other_by_name_and_two_labs_do_not_meet", || {
        let mut other = spec(1);
        other.name = format!("{}b", machine::name()).parse().unwrap();
        let (lab, other) = (Lab::up(&spec(2)).unwrap(), Lab::up(&other).unwrap());
        let (one, two) = (lab.node(1), lab.node(2));
        let found = shell(&one, "getent hosts node2");
        assert_eq!(found.split_whitespace().next(), Some(&*two.address().to_string()));
        send(&one, &two, 1_000_000);
        // The other lab has the same addresses and no second node.
        let patience = std::time::Duration::from_secs(10);
        let refused = refusal(&other.node(1), two.address(), patience);
        assert_eq!(refused, Some(std::io::ErrorKind::HostUnreachable));
        other.down().unwrap();
        send(&one, &two, 1_000);
    });
}

#[test]
fn programs_use_no_more_of_a_core_than_their_node_has() {
    machine::alone("apart::programs_use_no_more_of_a_core_than_their_node_has", || {
        let mut unequal = spec(2);
        // Six idle nodes beside the two make these small, so that they count on a busy machine too.
        unequal.speeds = [vec![1.0, 0.25], vec![1.0; 6]].concat();
        let lab = Lab::up(&unequal).unwrap();
        assert!(lab.missing().is_empty(), "{:?}", lab.missing());
        let busy = || lab.nodes().take(2);
        let start = Instant::now();
        // Two in each node: the limit is the node's and not a process's.
        let mut spins = Vec::new();
        for node in busy().chain(busy()) {
            let mut spin = node.command("/run/osmos-lab/bin/osmos");
            spin.args(["lab-spin", "60000"]).stdout(Stdio::null());
            spins.push(spin.spawn().unwrap());
        }
        let is_throttled = |node: Node<'_>| node.usage().throttled_ns.unwrap() > 0;
        while start.elapsed().as_secs_f64() < 1.0 || !busy().all(is_throttled) {
            assert!(start.elapsed().as_secs() < 30, "a node was never throttled");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        for node in busy() {
            let used_s = node.usage().work_cpu_ns.unwrap() as f64 / 1e9;
            // A CPU sees only at its next tick, 10 ms at most, that a quota is used up; it pays
            // back later.
            let overrun_s = 0.01 * std::thread::available_parallelism().unwrap().get() as f64;
            let allowed_s = node.cpu_share().unwrap() * start.elapsed().as_secs_f64() + overrun_s;
            assert!(used_s <= allowed_s, "node {}: {used_s} s of {allowed_s} s", node.id());
        }
        lab.down().unwrap();
        for spin in &mut spins {
            assert_eq!(spin.wait().unwrap().code(), Some(128 + 9));
        }
    });
}

#[test]
fn the_work_of_a_node_of_one_core_has_one_processor() {
    machine::alone("apart::the_work_of_a_node_of_one_core_has_one_processor", || {
        let processors = "sed -n 's/^Cpus_allowed_list:[[:blank:]]*//p' /proc/self/status";
        let mut single = spec(2);
        single.has_one_core_each = true;
        let lab = Lab::up(&single).unwrap();
        assert!(lab.missing().is_empty(), "{:?}", lab.missing());
        let [one, two] = [1, 2].map(|node| shell(&lab.node(node), processors));
        for own in [&one, &two] {
            assert!(own.trim().parse::<u32>().is_ok(), "{own}");
        }
        let count = std::thread::available_parallelism().unwrap().get();
        assert_eq!(one != two, count > 1, "{one} {two}");
        let beside = lab.node(1).command_beside("sh").args(["-c", processors]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&beside.stdout) != one, count > 1, "daemons roam");
    });
}

#[test]
fn unlimited_nodes_are_not_throttled() {
    machine::alone("apart::unlimited_nodes_are_not_throttled", || {
        let mut unlimited = spec(1);
        unlimited.is_cpu_limited = false;
        let lab = Lab::up(&unlimited).unwrap();
        assert_eq!(lab.node(1).cpu_share(), None);
        let status =
            lab.node(1).command("/run/osmos-lab/bin/osmos").args(["lab-spin", "200"]).output();
        assert!(status.unwrap().status.success());
        assert_eq!(lab.node(1).usage().throttled_ns, Some(0));
    });
}

#[test]
fn a_node_uses_no_more_memory_than_it_has() {
    machine::alone("apart::a_node_uses_no_more_memory_than_it_has", || {
        let mut small = spec(1);
        small.memory = Some("48m".parse().unwrap());
        let lab = Lab::up(&small).unwrap();
        let take = |mib: u32| {
            // Of a line without an end `tail` has to keep everything.
            let script = format!("head -c {mib}M /dev/zero | tail -n 1 > /dev/null");
            lab.node(1).command("sh").args(["-c", &script]).status().unwrap().code()
        };
        assert_eq!(take(8), Some(0));
        assert_eq!(take(200), Some(128 + 9));
    });
}

#[test]
fn shared_paths_are_seen_but_not_written() {
    machine::alone("apart::shared_paths_are_seen_but_not_written", || {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::write(dir.path().join("given"), "from outside").unwrap();
        let mut sharing = spec(1);
        sharing.shared = vec![dir.path().to_owned()];
        let lab = Lab::up(&sharing).unwrap();
        let path = dir.path().display();
        assert_eq!(shell(&lab.node(1), &format!("cat {path}/given")), "from outside");
        let script = format!("echo x 2>/dev/null > {path}/given; cat {path}/given");
        assert_eq!(shell(&lab.node(1), &script), "from outside");
    });
}

#[test]
fn guests_of_any_user_may_enter_the_work_cgroup_and_feel_its_limit() {
    machine::alone(
        "apart::guests_of_any_user_may_enter_the_work_cgroup_and_feel_its_limit",
        || {
            let lab = Lab::up(&spec(1)).unwrap();
            let script = "set -e
            for dir in /sys/fs/cgroup/*/ /sys/fs/cgroup; do
                file=${dir%/}/work/cgroup.procs
                test ! -e $file || setpriv --reuid 65534 --regid 65534 --clear-groups \
                    sh -c \"echo 0 > $file\" && echo $file
            done | grep -c work";
            let count: u32 = shell(&lab.node(1), script).trim().parse().unwrap();
            assert!(count >= 1);
        },
    );
}
