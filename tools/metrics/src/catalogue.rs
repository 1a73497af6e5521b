//! Every metric: its name, type, labels, what it says, and where it is read. `docs/metrics.md` is
//! this table for people, and a test compares both.
//!
//! Names follow Prometheus: base units at the end, `_total` for what only grows.

use wire::control::{Metrics, Spans};

/// The label that tells nodes apart, and the one that people read.
pub const NODE: &str = "node";
pub const NAME: &str = "name";
/// Values of one label of one node. What a node says beyond that is left out: it may be hostile.
pub const VALUES_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Since the daemon has started; `_total` is added to its name.
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    #[cfg(test)]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One metric.
pub struct Described {
    /// Without what the format adds to it.
    pub name: &'static str,
    pub kind: Kind,
    /// Beside those of the node.
    pub label: Option<&'static str>,
    pub help: &'static str,
    pub read: fn(&Metrics) -> Vec<Sample<'_>>,
}

/// What it is for one value of its label.
pub struct Sample<'a> {
    pub of: &'a str,
    pub value: Value<'a>,
}

#[derive(Clone, Copy)]
pub enum Value<'a> {
    Whole(u64),
    Real(f64),
    Spans(&'a Spans),
}

/// Of a node that has answered 1, of others 0; it is all that there is of those.
pub const UP: &str = "osmos_up";
pub const UP_HELP: &str = "Whether the node has answered";

pub const CATALOGUE: [Described; 27] = [
    Described {
        name: "osmos_node_info",
        kind: Kind::Gauge,
        label: Some("version"),
        help: "The version of the daemon; always 1",
        read: |of| vec![Sample { of: &of.version, value: Value::Whole(1) }],
    },
    gauge("osmos_start_time_seconds", "When the daemon started, since the epoch", |of| {
        real(of.started)
    }),
    Described {
        name: "osmos_moves",
        kind: Kind::Counter,
        label: Some("outcome"),
        help: "Moves of processes that were born on the node, by how they ended",
        read: |of| {
            let counts = &of.counts;
            let ends = [
                ("moved", counts.moved_in_all()),
                ("stayed", counts.stayed),
                ("came_home", counts.came_home),
                ("lost", counts.lost),
            ];
            ends.map(|(of, count)| Sample { of, value: Value::Whole(count) }).into()
        },
    },
    Described {
        name: "osmos_moves_done",
        kind: Kind::Counter,
        label: Some("cause"),
        help: "Moves that were carried out, by who or what wanted them",
        read: |of| {
            let causes = of.counts.moved.iter().take(VALUES_MAX);
            causes.map(|(of, count)| Sample { of, value: Value::Whole(*count) }).collect()
        },
    },
    counter(
        "osmos_moves_over_budget",
        "Moves that held a program up for longer than they were to",
        |of| whole(of.counts.over_budget),
    ),
    counter("osmos_move_sent_bytes", "What moves have sent", |of| whole(of.counts.bytes_sent)),
    histogram("osmos_move_freeze_seconds", "How long programs stood still for moves", |of| {
        spans(&of.counts.freezes)
    }),
    histogram("osmos_move_duration_seconds", "How long moves took", |of| spans(&of.counts.moves)),
    counter("osmos_processes_managed", "Processes that came under Osmos on the node", |of| {
        whole(of.counts.managed)
    }),
    counter("osmos_processes_ended", "Those of them that have ended", |of| whole(of.counts.ended)),
    Described {
        name: "osmos_processes",
        kind: Kind::Gauge,
        label: Some("place"),
        help: "Processes that were born on the node, by whether they run there",
        read: |of| {
            let places = [("home", of.own_here), ("away", of.own_away)];
            places.map(|(of, count)| Sample { of, value: Value::Whole(count.into()) }).into()
        },
    },
    gauge("osmos_guests", "Processes of other nodes that run on the node", |of| {
        whole(of.guests.into())
    }),
    gauge("osmos_takes_guests", "Whether guests may come now", |of| whole(of.takes_guests.into())),
    gauge("osmos_cores", "Processor cores that the node has for programs", |of| {
        whole(of.cores.into())
    }),
    gauge("osmos_speed_ratio", "Speed of one core against the reference", |of| real(of.speed)),
    gauge("osmos_load_ratio", "Runnable threads per core", |of| real(of.load)),
    gauge("osmos_memory_size_bytes", "Memory of the node", |of| whole(of.mem_total_bytes)),
    gauge("osmos_memory_free_bytes", "Memory that programs can have", |of| {
        whole(of.mem_free_bytes)
    }),
    gauge("osmos_memory_imprints_bytes", "Memory kept of guests that have left", |of| {
        whole(of.imprint_bytes)
    }),
    gauge("osmos_links", "Other nodes that the node is linked to", |of| whole(of.links.into())),
    Described {
        name: "osmos_nodes",
        kind: Kind::Gauge,
        label: Some("status"),
        help: "Nodes of the cluster, by what the node believes of them",
        read: |of| {
            let states = of.nodes.iter().take(VALUES_MAX);
            states.map(|(of, count)| Sample { of, value: Value::Whole((*count).into()) }).collect()
        },
    },
    counter("osmos_strangers_rejected", "Calls of strangers that were met with silence", |of| {
        whole(of.counts.rejected)
    }),
    counter("osmos_datagrams_dropped", "Gossip that no member had made, or that was old", |of| {
        whole(of.counts.datagrams_dropped)
    }),
    counter("osmos_daemon_cpu_seconds", "Processor time of the daemon", |of| real(of.daemon.cpu_s)),
    gauge("osmos_daemon_resident_memory_bytes", "Resident memory of the daemon", |of| {
        whole(of.daemon.rss_bytes)
    }),
    gauge("osmos_daemon_threads", "Threads of the daemon", |of| whole(of.daemon.threads.into())),
    gauge("osmos_daemon_open_fds", "Files that the daemon has open", |of| {
        whole(of.daemon.open_files.into())
    }),
];

type Read = fn(&Metrics) -> Vec<Sample<'_>>;

const fn gauge(name: &'static str, help: &'static str, read: Read) -> Described {
    Described { name, kind: Kind::Gauge, label: None, help, read }
}

const fn counter(name: &'static str, help: &'static str, read: Read) -> Described {
    Described { name, kind: Kind::Counter, label: None, help, read }
}

const fn histogram(name: &'static str, help: &'static str, read: Read) -> Described {
    Described { name, kind: Kind::Histogram, label: None, help, read }
}

fn whole<'a>(value: u64) -> Vec<Sample<'a>> {
    vec![Sample { of: "", value: Value::Whole(value) }]
}

fn real<'a>(value: f64) -> Vec<Sample<'a>> {
    vec![Sample { of: "", value: Value::Real(value) }]
}

fn spans(value: &Spans) -> Vec<Sample<'_>> {
    vec![Sample { of: "", value: Value::Spans(value) }]
}
