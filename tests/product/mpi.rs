//! Jobs of several ranks that send each other messages.

use crate::stage::{Program, Stage, until};
use std::path::Path;
use std::process::Command;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/product/sums.c");
/// Open MPI asks root whether he means it.
const ROOT: [&str; 3] = ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"];
const LAUNCH: [&str; 4] = ["mpirun", "-np", "3", "/tmp/sums"];
/// More ranks than processors, of which those that wait leave them to others: in the words of Open
/// MPI; MPICH needs none.
const PATIENT: &str = "OMPI_MCA_mpi_yield_when_idle=1";
const CROWDED: &str = "OMPI_MCA_rmaps_base_oversubscribe=1";
const CROWDED_5: &str = "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe";

fn start(stage: &Stage, words: &[&str]) -> Program {
    let words = [&ROOT[..], &[CROWDED, CROWDED_5, PATIENT], words, &LAUNCH].concat();
    stage.start(1, &words)
}

fn compile(stage: &Stage) {
    let program = stage.path(1, "/tmp/sums");
    let mut command = Command::new("mpicc");
    command.arg("-O2").arg("-o").arg::<&Path>(&program).arg(SOURCE);
    assert!(command.status().expect("mpicc can be started").success(), "mpicc fails");
}

/// Has all ranks compute for so many rounds.
fn sums(program: &mut Program, rounds: usize) -> Vec<String> {
    program.write(&format!("{rounds}\n"));
    (0..rounds).map(|_| program.line()).collect()
}

/// The processes that compute.
fn ranks(stage: &Stage) -> Vec<i32> {
    until("three ranks are managed", || {
        let listed = stage.listed(1);
        let ranks = listed.iter().filter(|process| process["command"] == "sums");
        let pids = ranks.filter_map(|process| Some(process["pid"].as_i64()? as i32));
        Some(pids.collect::<Vec<i32>>()).filter(|pids| pids.len() == 3)
    })
}

#[test]
fn ranks_move_and_the_sums_are_those_of_a_job_that_does_not() {
    if !needs::can_run(&["mpicc", "mpirun"]) {
        return;
    }
    let stage = Stage::new("mpi", 3);
    compile(&stage);
    let mut native = start(&stage, &[]);
    let expected: Vec<Vec<String>> = (0..3).map(|_| sums(&mut native, 4)).collect();
    native.close_input();
    assert_eq!(native.end(), 0);
    let mut job = start(&stage, &["osmos", "run", "--home", "--mpi", "on", "--"]);
    assert_eq!(sums(&mut job, 4), expected[0]);
    let ranks = ranks(&stage);
    for (rank, node) in ranks.iter().zip(["2", "3", "2"]) {
        stage.migrate(*rank, node);
    }
    assert_eq!(sums(&mut job, 4), expected[1], "ranks are away");
    for (rank, node) in ranks.iter().zip([2, 3, 2]) {
        assert_eq!(stage.place(*rank), Some(node), "messages do not bring it home");
    }
    stage.migrate(ranks[0], "3");
    stage.migrate(ranks[1], "home");
    assert_eq!(sums(&mut job, 4), expected[2], "one has moved on, and one is home");
    job.close_input();
    assert_eq!(job.end(), 0);
}

/// One rank begins on each node, by a launcher of MPI that knows of Osmos only how to begin a
/// command on another node.
#[test]
fn ranks_that_begin_on_all_nodes_compute_what_those_of_one_do() {
    if !needs::can_run(&["mpicc", "mpirun"]) {
        return;
    }
    let stage = crate::jobs::stage("mpi-rsh", 3);
    compile(&stage);
    for node in [2, 3] {
        std::fs::copy(stage.path(1, "/tmp/sums"), stage.path(node, "/tmp").join("sums"))
            .expect("a copy");
    }
    let mut native = start(&stage, &[]);
    let expected: Vec<Vec<String>> = (0..2).map(|_| sums(&mut native, 4)).collect();
    native.close_input();
    assert_eq!(native.end(), 0);
    let hosts = [1, 2, 3].map(|node| stage.node(node).host_name()).join(",");
    let agent = ["--mca", "plm_rsh_agent", "osmos rsh", "-H", &hosts];
    let words = [
        &ROOT[..],
        &["osmos", "run", "--mpi", "on", "--", "mpirun"],
        &agent,
        &["-np", "3", "/tmp/sums"],
    ]
    .concat();
    let mut job = stage.start(1, &words);
    assert_eq!(sums(&mut job, 4), expected[0]);
    let is_rank = |process: &serde_json::Value| process["command"] == "sums";
    let mut ranks = Vec::new();
    for node in [2, 3] {
        let found = stage.listed(node).into_iter().find(|of| is_rank(of) && of["home"] == node);
        let rank = found.unwrap_or_else(|| panic!("a rank of node {node} is managed there"));
        ranks.push((node, rank["pid"].to_string()));
    }
    // They are processes like any other, and move on.
    for (node, pid) in &ranks {
        stage.text(1, &["osmos", "migrate", &format!("{node}:{pid}"), "1"]);
    }
    assert_eq!(sums(&mut job, 4), expected[1]);
    job.close_input();
    assert_eq!(job.end(), 0);
}

#[test]
fn a_job_that_shares_memory_stays_home_and_is_told_what_for() {
    if !needs::can_run(&["mpicc", "mpirun"]) {
        return;
    }
    let stage = Stage::new("mpi-off", 2);
    compile(&stage);
    let mut job = start(&stage, &["osmos", "run", "--home", "--mpi", "off", "--"]);
    let before = sums(&mut job, 1);
    let rank = ranks(&stage)[0];
    let complaint = stage.complaint(1, &["osmos", "migrate", &rank.to_string(), "2"]);
    assert!(complaint.contains("shares the file") || complaint.contains("shared"), "{complaint}");
    let why = stage.text(1, &["osmos", "why", &rank.to_string()]);
    assert!(why.contains("share"), "{why}");
    assert_ne!(sums(&mut job, 1), before);
    job.close_input();
    assert_eq!(job.end(), 0);
}
