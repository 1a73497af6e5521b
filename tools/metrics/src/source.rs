//! What nodes say of themselves, asked through the daemon here.

use client::{Client, Error};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use wire::control::{Failure, Metrics, Reply, Request};
use wire::ids::NodeId;

/// A daemon that says nothing for so long does not answer. Nodes that it asks have five seconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// What became of asking one node.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    pub node: NodeId,
    /// What people call it, as the node asked knows; none: it does not.
    pub name: Option<String>,
    #[serde(flatten, serialize_with = "told")]
    pub metrics: Result<Box<Metrics>, Failure>,
}

pub type Answers = Vec<Answer>;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Told<'a> {
    Metrics(&'a Metrics),
    Failure(&'a Failure),
}

fn told<S: serde::Serializer>(
    metrics: &Result<Box<Metrics>, Failure>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match metrics {
        Ok(metrics) => Told::Metrics(metrics).serialize(serializer),
        Err(failure) => Told::Failure(failure).serialize(serializer),
    }
}

/// Of the daemon's own node.
///
/// # Errors
/// If there is no daemon, or it does not answer in time.
pub fn ask(socket: &Path) -> client::Result<Answers> {
    let mut client = connect(socket)?;
    let node = match client.request(&Request::Status)? {
        Reply::Status(status) => status.node,
        other => return Err(unexpected("its status", &other)),
    };
    match client.request(&Request::Metrics)? {
        Reply::Metrics(metrics) => {
            Ok(vec![Answer { node, name: metrics.name.clone(), metrics: Ok(metrics) }])
        }
        other => Err(unexpected("what it measures", &other)),
    }
}

/// Of all nodes, in the order of their numbers, also of those that do not answer.
///
/// # Errors
/// If there is no daemon here, or it does not answer in time.
pub fn ask_everywhere(socket: &Path) -> client::Result<Answers> {
    let mut client = connect(socket)?;
    let names: BTreeMap<NodeId, Option<String>> =
        client.nodes()?.into_iter().map(|node| (node.id, node.name)).collect();
    let mut answers = Answers::new();
    client.everywhere(Request::Metrics, |node, said| {
        let metrics = match said {
            Ok(Reply::Metrics(metrics)) => Ok(metrics),
            Ok(_) => Err(Failure {
                code: "bad-answer".to_owned(),
                text: format!("node {node} answers something else than what it measures"),
            }),
            Err(failure) => Err(failure),
        };
        // By the name that this node knows, so that a label is the same whether it answers or not.
        answers.push(Answer { node, name: names.get(&node).cloned().flatten(), metrics });
        true
    })?;
    answers.sort_by_key(|answer| answer.node);
    answers.dedup_by_key(|answer| answer.node);
    Ok(answers)
}

fn connect(socket: &Path) -> client::Result<Client> {
    let client = Client::connect(socket)?;
    client.set_patience(PATIENCE)?;
    Ok(client)
}

fn unexpected(wanted: &'static str, got: &Reply) -> Error {
    Error::Unexpected { wanted, got: format!("{got:?}") }
}
