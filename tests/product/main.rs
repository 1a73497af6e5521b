//! Osmos as its users have it: the built program, real daemons, real programs, a lab for each test.
//!
//! * [`stage`]: a lab and what a test can see and do in it; [`terminal`]: a pseudo-terminal in it
//! * [`job_control`]: signals, stops and ends of a process that is away
//! * [`faults`]: what is left after any part was killed
//! * [`broken_moves`]: moves that something breaks at a moment that nobody has chosen
//! * [`busy`]: load that nobody manages, and what it takes to see it
//! * [`succession`]: what becomes of processes when a daemon is killed and another one comes
//! * [`homecoming`]: what becomes of a process that its home cannot take in
//! * [`owners`]: what the owner of a node says, and what moves bring
//! * [`permissions`]: who may do what, and as whom it is done
//! * [`refusals`]: what stays at home and says why
//! * [`sandbox`]: what a guest sees of the node that it runs on
//! * [`screenshots`]: the pictures of the README
//! * [`sharing`]: memory that others have as well; [`shared_files`]: files that are mapped so
//! * [`administration`]: metrics, findings of all nodes, reports, classic verbs
//! * [`cluster`]: machines that ssh reaches become a cluster
//! * [`everywhere`]: what is seen and done from any node
//! * [`exec`]: programs that become others while they are away
//! * [`families`]: children, pipelines and threads
//! * [`features`]: what happens on kernels that lack something
//! * [`hostile`]: strangers, replays, floods; [`hostile_guest`]: guests that mean harm
//! * [`jobs`]: parallel jobs over several nodes
//! * [`late`]: pages that come behind their process
//! * [`limits`]: limits on memory
//! * [`mapped_files`]: files without a name, and none
//! * [`liars`]: supervisors whose other side has the keys and lies
//! * [`membership`]: nodes that leave or are forgotten
//! * [`memory`]: what Osmos itself takes
//! * [`names`]: nodes by what they are called
//! * [`progress`]: what is shown of what takes time, and what ^C leaves
//! * [`recordings`]: what a brain was told and decided
//! * [`threads`]: threads that begin away
//! * [`top`]: the cluster in a terminal
//! * [`web`]: the cluster in a browser, by [`browser`]
//! * [`vfork`]: programs begun by those that are away
//! * [`waits`]: waits that a move happens in
//! * [`mobile`]: programs that are told that there is no io_uring
//! * [`mount`]: the files of all nodes in one directory
//! * [`mpi`]: jobs whose ranks send each other messages
//! * [`own_files`]: what a program reads about itself
//! * [`processor_time`]: clocks and limits of processor time
//!
//! One program of tests, because each of these needs the same stage.

mod administration;
mod broken_moves;
mod browser;
mod busy;
mod calling_off;
mod cluster;
mod direct_files;
mod everywhere;
mod exec;
mod families;
mod faults;
mod features;
mod groups;
mod groups_named;
mod homecoming;
mod hostile;
mod hostile_guest;
mod job_control;
mod jobs;
mod late;
mod liars;
mod limits;
mod makers;
mod mapped_files;
mod mapping;
mod membership;
mod memory;
mod mobile;
mod mount;
mod mpi;
mod names;
mod own_files;
mod owners;
mod permissions;
mod processes;
mod processor_time;
mod processors;
mod progress;
mod read_ahead;
mod ready;
mod recordings;
mod refusals;
mod reports;
mod sandbox;
mod screenshots;
mod services;
mod shared_files;
mod sharing;
mod stage;
mod succession;
mod terminal;
mod threads;
mod top;
mod vfork;
mod waits;
mod web;
