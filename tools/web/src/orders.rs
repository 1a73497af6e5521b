//! What the user wants done or foreseen. The daemon decides by the user who runs `osmos web`; what
//! it refuses is told in its own words.

use crate::Shared;
use crate::answers::{Refusal, shown};
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use client::signals;
use client::{Client, Error};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use wire::control::{Destination, Failure, Reply, Request as Asked};
use wire::ids::NodeId;
use wire::owner::OwnerOrder;

/// Orders and questions that may be under way at once: each has a thread and a connection.
pub const ORDERS_MAX: usize = 8;
/// No order is longer.
pub const BODY_BYTES_MAX: usize = 4 << 10;
/// Whoever is slower has left.
const BODY_MAX: Duration = Duration::from_secs(10);
/// The daemon's word for a process that is where it is to go.
const ALREADY_THERE: &str = "already-there";

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    /// To `home`, `best` or the number of a node.
    Migrate {
        process: String,
        to: String,
    },
    /// To stay on that node.
    Pin {
        process: String,
        node: u32,
    },
    Signal {
        process: String,
        signal: i32,
    },
    /// The owner's: guests of that node leave, and no more come.
    Expel {
        node: u32,
    },
    /// Guests come to that node again.
    Noblock {
        node: u32,
    },
    /// That node is emptied, or takes part again.
    Drain {
        node: u32,
        on: bool,
    },
}

/// A process as it is called in links and orders: `HOME:PID`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Called {
    home: NodeId,
    pid: i32,
}

impl FromStr for Called {
    type Err = Refusal;

    fn from_str(word: &str) -> Result<Called, Refusal> {
        let parts = word.split_once(':');
        let called = parts.and_then(|(home, pid)| Some((home.parse().ok()?, pid.parse().ok()?)));
        match called {
            Some((home, pid)) if pid > 0 => Ok(Called { home: NodeId(home), pid }),
            _ => Err(bad(format!("`{word}` is no process: they are called HOME:PID"))),
        }
    }
}

impl Called {
    /// Its home knows all of it.
    fn at_home(self, request: Asked) -> Asked {
        at_node(self.home, request)
    }
}

fn at_node(node: NodeId, request: Asked) -> Asked {
    Asked::At { node, request: Box::new(request) }
}

fn bad(text: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "bad-request", text)
}

/// The body of a request, of bounded length and made in bounded time.
pub async fn body<T: DeserializeOwned>(request: Request) -> Result<T, Refusal> {
    let reading = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX);
    let bytes = tokio::time::timeout(BODY_MAX, reading).await.map_err(|_| {
        Refusal::new(StatusCode::REQUEST_TIMEOUT, "slow", "the request did not come to its end")
    })?;
    let bytes = bytes.map_err(|_| {
        let text = format!("the request is longer than {BODY_BYTES_MAX} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too-long", text)
    })?;
    serde_json::from_slice(&bytes).map_err(|error| bad(format!("no known request: {error}")))
}

pub async fn order(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    if shared.options.is_read_only {
        let text = "this page only shows: `osmos web` runs with --read-only";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "read-only", text));
    }
    let order: Order = body(request).await?;
    let request = request_of(&order)?;
    let wording = shared.options.wording;
    let text = ask(&shared, move |client| match (client.request(&request), &order) {
        // Asking for it has pinned it.
        (Err(Error::Refused(failure)), Order::Pin { process, node })
            if failure.code == ALREADY_THERE =>
        {
            Ok(format!("{process} stays on node {node} from now on"))
        }
        (reply, order) => match (reply?, order) {
            (Reply::Migrated(migration), _) => Ok((wording.migration)(&migration)),
            (Reply::Done, Order::Signal { process, .. }) => {
                Ok(format!("the signal was sent to {process}"))
            }
            (
                Reply::Owned(owned),
                Order::Expel { node } | Order::Noblock { node } | Order::Drain { node, .. },
            ) => Ok(format!("node {node}: {}", (wording.owned)(&owned))),
            (other, _) => Err(unexpected("what became of an order", &other)),
        },
    })
    .await?;
    Ok(shown(json!({ "text": text })))
}

fn request_of(order: &Order) -> Result<Asked, Refusal> {
    let migrate = |called: Called, to| Asked::Migrate {
        pid: called.pid,
        to,
        freeze_budget_ms: None,
        way: None,
        is_watched: false,
    };
    Ok(match order {
        Order::Migrate { process, to } => {
            let called: Called = process.parse()?;
            called.at_home(migrate(called, destination(to)?))
        }
        Order::Pin { process, node } => {
            let called: Called = process.parse()?;
            called.at_home(migrate(called, Destination::Node(NodeId(*node))))
        }
        Order::Expel { node } => at_node(NodeId(*node), Asked::Owner(OwnerOrder::Expel)),
        Order::Noblock { node } => {
            at_node(NodeId(*node), Asked::Owner(OwnerOrder::Block { on: false }))
        }
        Order::Drain { node, on } => {
            at_node(NodeId(*node), Asked::Owner(OwnerOrder::Drain { on: *on }))
        }
        Order::Signal { process, signal } => {
            let called: Called = process.parse()?;
            let signal = signals::check(*signal).map_err(bad)?;
            called.at_home(Asked::Signal { pid: called.pid, signal })
        }
    })
}

fn destination(word: &str) -> Result<Destination, Refusal> {
    match word {
        "home" => Ok(Destination::Home),
        "best" => Ok(Destination::Best),
        number => match number.parse() {
            Ok(node) => Ok(Destination::Node(NodeId(node))),
            Err(_) => Err(bad(format!("`{word}` is no node: `home`, `best` or a number"))),
        },
    }
}

#[derive(Deserialize)]
pub struct About {
    process: String,
}

/// Where a process was and why, in the shape of `osmos why --json`.
pub async fn why(
    State(shared): State<Arc<Shared>>,
    Query(about): Query<About>,
) -> Result<Response, Refusal> {
    let called: Called = about.process.parse()?;
    let request = called.at_home(Asked::Why { pid: called.pid });
    let told = ask(&shared, move |client| match client.request(&request)? {
        Reply::Why { process, decisions, now, moves } => Ok(json!({
            "process": process, "decisions": decisions, "now": now, "moves": moves,
        })),
        other => Err(unexpected("reasons", &other)),
    })
    .await?;
    Ok(shown(told))
}

#[derive(Deserialize)]
pub struct Hypothesis {
    process: String,
    to: u32,
    /// Where it runs: that node knows best.
    at: u32,
}

/// What a move would bring, in the words and the shape of `osmos what-if`.
pub async fn what_if(
    State(shared): State<Arc<Shared>>,
    Query(Hypothesis { process, to, at }): Query<Hypothesis>,
) -> Result<Response, Refusal> {
    let called: Called = process.parse()?;
    let request = at_node(NodeId(at), Asked::WhatIf { pid: called.pid, to: NodeId(to) });
    let wording = shared.options.wording;
    let told: Value = ask(&shared, move |client| match client.request(&request)? {
        // Processes of two homes may have the same number there.
        Reply::Forecast(forecast) if forecast.home != called.home => {
            let text =
                format!("node {at} has another process {}: {process} is not there", called.pid);
            Err(Error::Refused(Failure { code: "no-process".into(), text }))
        }
        Reply::Forecast(forecast) => {
            let (numbers, verdict) = (wording.forecast)(&forecast);
            Ok(json!({ "numbers": numbers, "verdict": verdict, "forecast": forecast }))
        }
        other => Err(unexpected("a forecast", &other)),
    })
    .await?;
    Ok(shown(told))
}

fn unexpected(wanted: &'static str, got: &Reply) -> Error {
    Error::Unexpected { wanted, got: format!("{got:?}") }
}

/// Asks the daemon in a thread, over a connection of its own. A browser that leaves meanwhile does
/// not undo what it has ordered.
async fn ask<T: Send + 'static>(
    shared: &Arc<Shared>,
    question: impl FnOnce(&mut Client) -> client::Result<T> + Send + 'static,
) -> Result<T, Refusal> {
    let of = shared.clone();
    let Ok(permit) = shared.orders.clone().try_acquire_owned() else {
        let text = format!("{ORDERS_MAX} orders are under way: wait until one of them is answered");
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "busy", text));
    };
    let asking = tokio::task::spawn_blocking(move || {
        let asked = Client::connect(&of.options.socket).and_then(|mut c| question(&mut c));
        // Not before the thread is free, even if nobody waits for the answer any more.
        drop(permit);
        asked
    });
    match asking.await {
        Ok(asked) => asked.map_err(Refusal::from),
        Err(error) => {
            let text = format!("the question was not asked: {error}");
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", text))
        }
    }
}

pub async fn history(State(shared): State<Arc<Shared>>) -> Response {
    shown(shared.hub.history()).into_response()
}

#[cfg(test)]
mod test {
    use super::*;

    fn parsed(text: &str) -> Result<Asked, String> {
        let order: Order = serde_json::from_str(text).map_err(|error| error.to_string())?;
        request_of(&order).map_err(|refusal| refusal.text)
    }

    #[test]
    fn an_order_is_asked_of_the_home_of_its_process() {
        let asked_at = |text: &str| match parsed(text).expect(text) {
            Asked::At { node, request } => (node, *request),
            other => panic!("{other:?}"),
        };
        let (home, asked) = asked_at(r#"{"order":"migrate","process":"2:10","to":"home"}"#);
        assert_eq!(home, NodeId(2));
        assert!(
            matches!(asked, Asked::Migrate { pid: 10, to: Destination::Home, .. }),
            "{asked:?}"
        );
        let (_, asked) = asked_at(r#"{"order":"pin","process":"2:10","node":3}"#);
        assert!(matches!(asked, Asked::Migrate { to: Destination::Node(NodeId(3)), .. }));
        let signal = asked_at(r#"{"order":"signal","process":"1:7","signal":15}"#);
        assert_eq!(signal, (NodeId(1), Asked::Signal { pid: 7, signal: 15 }));
    }

    #[test]
    fn an_owners_order_is_asked_of_his_node() {
        for (text, order) in [
            (r#"{"order":"expel","node":3}"#, OwnerOrder::Expel),
            (r#"{"order":"noblock","node":3}"#, OwnerOrder::Block { on: false }),
            (r#"{"order":"drain","node":3,"on":true}"#, OwnerOrder::Drain { on: true }),
            (r#"{"order":"drain","node":3,"on":false}"#, OwnerOrder::Drain { on: false }),
        ] {
            assert_eq!(parsed(text), Ok(at_node(NodeId(3), Asked::Owner(order))), "{text}");
        }
    }

    #[test]
    fn what_is_no_order_is_refused_by_what_is_wrong() {
        for (text, complaint) in [
            (r#"{"order":"migrate","process":"10","to":"home"}"#, "no process"),
            (r#"{"order":"migrate","process":"1:-4","to":"home"}"#, "no process"),
            (r#"{"order":"migrate","process":"1:4","to":"nowhere"}"#, "no node"),
            (r#"{"order":"signal","process":"1:4","signal":65}"#, "signal 65 cannot be sent"),
            (r#"{"order":"signal","process":"1:4","signal":0}"#, "signal 0 cannot be sent"),
            (r#"{"order":"down","process":"1:4"}"#, "unknown variant"),
            (r#"{"order":"pin","process":"1:4","node":3,"more":1}"#, "unknown field"),
        ] {
            let told = parsed(text).expect_err(text);
            assert!(told.contains(complaint), "{text}: {told}");
        }
    }
}
