//! The ten situations of `docs/brain.md`, by which a newcomer sees whether he can predict the
//! brain.

use crate::world::World;
use brain::{Input, Ownership, Placement, Span};
use wire::ids::{GlobalPid, NodeId};

const PAGE: &str = include_str!("../../../../docs/brain.md");
const ENDLESS_S: f64 = 1e9;
const FIRST: NodeId = NodeId(1);
const SECOND: NodeId = NodeId(2);
const LONG: Span = Span::from_secs(60);

/// A world of two nodes of one core, the second of that speed, once the page has this situation.
fn situation(title: &str, speed: f64) -> World {
    assert!(PAGE.contains(&format!("| **{title}** |")), "docs/brain.md has no `{title}`");
    World::of_speeds(7, &[1.0, speed])
}

fn set(world: &mut World, processes: &[GlobalPid], how: impl Fn(&mut crate::world::Process)) {
    for process in processes {
        how(world.processes.get_mut(process).expect("it runs"));
    }
}

#[test]
fn one_of_three_goes_to_an_idle_node_and_no_more() {
    let mut world = situation("Three processes on one node, another is idle", 1.0);
    world.start_processes(FIRST, 3, ENDLESS_S);
    world.run_for(Span::from_secs(1));
    assert_eq!(world.counts(), [2, 1]);
    world.run_for(LONG);
    assert_eq!(world.moves.len(), 1, "{:?}", world.moves);
}

#[test]
fn one_alone_goes_to_a_node_that_is_twice_as_fast_and_stays() {
    let mut world = situation("One process on a node, an idle one is twice as fast", 2.0);
    world.start_process(FIRST, ENDLESS_S);
    world.run_for(LONG);
    assert_eq!((world.counts(), world.moves.len()), (vec![0, 1], 1));
}

#[test]
fn one_alone_stays_where_another_node_is_hardly_faster() {
    let mut world = situation("One process on a node, an idle one is 4 % faster", 1.04);
    world.start_process(FIRST, ENDLESS_S);
    world.run_for(LONG);
    assert_eq!(world.moves, []);
}

#[test]
fn two_stay_where_they_would_share_elsewhere_too() {
    let title = "Two processes on one node, on the other computes something that cannot move";
    let mut world = situation(title, 1.0);
    world.machine(SECOND).background = 1.0;
    world.run_for(Span::from_secs(2));
    world.start_processes(FIRST, 2, ENDLESS_S);
    world.run_for(LONG);
    assert_eq!(world.moves, []);
}

#[test]
fn five_of_six_go_to_a_node_with_four_cores() {
    let title = "Six processes on one node, an idle one has four cores";
    assert!(PAGE.contains(title));
    let mut world = World::new(7);
    world.add_node(1, 1.0);
    world.add_node(4, 1.0);
    world.run_for(Span::from_secs(3));
    world.start_processes(FIRST, 6, ENDLESS_S);
    world.run_for(LONG);
    assert_eq!((world.counts(), world.moves.len()), (vec![1, 5], 5));
}

#[test]
fn short_ones_stay() {
    let mut world = situation("Processes of 80 ms come and go on a crowded node", 1.0);
    for _ in 0..100 {
        world.start_processes(FIRST, 2, 0.08);
        world.run_for(Span::from_millis(200));
    }
    assert_eq!((world.moves.len(), world.finished_at.len()), (0, 200));
}

#[test]
fn those_that_are_not_pinned_go() {
    let title = "Four processes on one node, two of them pinned, another is idle";
    let mut world = situation(title, 1.0);
    let processes = world.start_processes(FIRST, 4, ENDLESS_S);
    for process in &processes[..2] {
        let placement = Placement::Pinned;
        world.tell(FIRST, Input::ProcessPlaced { process: *process, placement });
    }
    world.run_for(LONG);
    let on = |process: &GlobalPid| world.processes[process].node;
    assert_eq!(processes.iter().map(on).collect::<Vec<_>>(), [FIRST, FIRST, SECOND, SECOND]);
}

#[test]
fn one_that_calls_home_goes_to_an_idle_core_and_comes_home_when_there_is_room() {
    let title = "Two processes on one node that call home 10,000 times a second, another is idle";
    let mut world = situation(title, 1.0);
    let processes = world.start_processes(FIRST, 2, ENDLESS_S);
    set(&mut world, &processes, |process| process.calls_per_cpu_s = 10_000.0);
    world.run_for(Span::from_secs(10));
    assert_eq!(world.counts(), [1, 1]);
    let at_home = |process: &&GlobalPid| world.processes[*process].node == FIRST;
    let at_home = *processes.iter().find(at_home).expect("one is");
    set(&mut world, &[at_home], |process| process.work_s = 0.0);
    world.run_for(LONG);
    assert_eq!((world.counts(), world.moves.len()), (vec![1, 0], 2));
}

#[test]
fn large_ones_stay_where_another_node_has_no_memory_for_them() {
    let mut world = situation("Two processes of 900 MiB on one node, an idle one has 512 MiB", 1.0);
    world.machine(FIRST).memory_bytes = 4 << 30;
    world.machine(SECOND).memory_bytes = 512 << 20;
    let processes = world.start_processes(FIRST, 2, ENDLESS_S);
    set(&mut world, &processes, |process| process.rss_bytes = 900 << 20);
    world.run_for(LONG);
    assert_eq!(world.moves, []);
}

#[test]
fn a_guest_goes_on_to_where_it_gets_most_when_the_owner_wants_his_node() {
    let title = "A guest's node is wanted by its owner, its home is crowded, a third is idle";
    let mut world = situation(title, 2.0);
    let guest = world.start_process(FIRST, ENDLESS_S);
    world.run_for(Span::from_secs(10));
    assert_eq!(world.processes[&guest].node, SECOND);
    world.machine(FIRST).background = 2.0;
    let third = world.add_node(1, 1.0);
    world.run_for(Span::from_secs(5));
    let ownership = Ownership { expels: true, ..Ownership::default() };
    world.tell(SECOND, Input::OwnerDecided { ownership });
    world.run_for(Span::from_secs(2));
    assert_eq!(world.processes[&guest].node, third);
}

/// A reader who looks where the page sends him finds it.
#[test]
fn the_table_of_decisions_names_functions_and_constants_that_there_are() {
    let table = PAGE.split("## Where it is decided").nth(1).expect("the table");
    let table = table.split("\n## ").next().expect("its end");
    let config = format!("{:?}", brain::Config::default());
    let mut named = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.split('|').collect();
        let words = |cell: usize| cells[cell].split('`').skip(1).step_by(2);
        let mut text = String::new();
        for word in words(2) {
            if word.ends_with(".rs") {
                let path = format!("{}/src/{word}", env!("CARGO_MANIFEST_DIR"));
                text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
                continue;
            }
            let begins = [format!("fn {word}("), format!("fn {word}<"), format!("struct {word} ")];
            assert!(begins.iter().any(|begin| text.contains(begin)), "{word} is not there: {row}");
            named += 1;
        }
        for word in words(3) {
            assert!(config.contains(&format!(" {word}: ")), "there is no constant {word}: {row}");
        }
    }
    assert!(named >= 15, "{named}");
}
