//! What a browser follows: everything once, then what changes, as server-sent events.
//!
//! A browser that is slower than the cluster is cut off. It comes again by itself, says what it has
//! seen last, and begins with everything as it is then.

use crate::Shared;
use crate::answers::Refusal;
use crate::board::Frame;
use crate::guard::Session;
use crate::hub::Viewer;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::time::Instant;

/// Browsers that may look at once.
pub const VIEWERS_MAX: usize = 32;
/// A browser comes again so long after it was cut off.
const AGAIN: Duration = Duration::from_secs(1);
/// After so long without anything else, something is sent: whoever is gone is found out then.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

struct Following {
    first: VecDeque<Event>,
    frames: Receiver<Frame>,
    /// When the session ends.
    until: Instant,
    _viewer: Viewer,
    _permit: OwnedSemaphorePermit,
}

pub async fn live(
    State(shared): State<Arc<Shared>>,
    Extension(session): Extension<Session>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let permit = shared.viewers.clone().try_acquire_owned().map_err(|_| {
        let text = format!("{VIEWERS_MAX} browsers look already: close one of them");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text)
    })?;
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let viewer = shared.hub.enter();
    let (whole, frames) = shared.hub.follow(seen.unwrap_or(0));
    let hello = json!({
        "is_read_only": shared.options.is_read_only,
        "delay_s": shared.options.delay.as_secs_f64(),
        "user": user(),
    });
    let hello = Event::default().event("hello").data(hello.to_string()).retry(AGAIN);
    let following = Following {
        first: [hello, event(&whole)].into(),
        frames,
        until: Instant::now() + session.rest,
        _viewer: viewer,
        _permit: permit,
    };
    let events = futures_util::stream::unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((Ok::<Event, Infallible>(event), following))
    });
    let alive = KeepAlive::new().interval(SIGN_OF_LIFE);
    Ok(Sse::new(events).keep_alive(alive).into_response())
}

impl Following {
    /// None when this is over: the browser is too far behind, or its session has ended.
    async fn next(&mut self) -> Option<Event> {
        if let Some(first) = self.first.pop_front() {
            return Some(first);
        }
        let frame = tokio::time::timeout_at(self.until, self.frames.recv()).await;
        Some(event(&frame.ok()?.ok()?))
    }
}

fn event(frame: &Frame) -> Event {
    Event::default().event(frame.kind).id(frame.number.to_string()).data(&frame.text)
}

/// As whom things are done.
fn user() -> String {
    let uid = nix::unistd::geteuid();
    let named = nix::unistd::User::from_uid(uid).ok().flatten();
    named.map_or_else(|| format!("user {uid}"), |user| user.name)
}
