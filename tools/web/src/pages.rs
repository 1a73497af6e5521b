//! What there is to ask for, and the files of the page, which are part of the program.

use crate::Shared;
use crate::answers::Refusal;
use crate::guard::{Session, guard, logged_in};
use crate::sessions::{SESSION_MAX, Secret};
use crate::{orders, stream};
use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, SET_COOKIE};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Instant;

const HTML: &str = "text/html; charset=utf-8";
const PAGE: &str = include_str!("../assets/page.html");
const LOGIN: &str = include_str!("../assets/login.html");

/// Files that hold nothing of the cluster.
const FILES: [(&str, &str, &str); 4] = [
    ("/page.js", "text/javascript; charset=utf-8", include_str!("../assets/page.js")),
    ("/login.js", "text/javascript; charset=utf-8", include_str!("../assets/login.js")),
    ("/style.css", "text/css; charset=utf-8", include_str!("../assets/style.css")),
    ("/favicon.ico", "image/svg+xml", include_str!("../assets/icon.svg")),
];

pub fn routes(shared: Arc<Shared>) -> Router {
    let mut files = Router::new();
    for (path, kind, text) in FILES {
        files = files.route(path, get(move || async move { ([(CONTENT_TYPE, kind)], text) }));
    }
    let inside = Router::new()
        .route("/live", get(stream::live))
        .route("/history", get(orders::history))
        .route("/why", get(orders::why))
        .route("/what-if", get(orders::what_if))
        .route("/order", post(orders::order))
        .route("/logout", post(log_out))
        .layer(from_fn(logged_in));
    files
        .merge(inside)
        .route("/", get(page))
        .route("/login", get(|| async { ([(CONTENT_TYPE, HTML)], LOGIN) }).post(log_in))
        .layer(from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

/// Who is not logged in gets the page that begins a session: a browser that comes by a link on a
/// page of others does not say who it is before it asks again.
async fn page(session: Option<Extension<Session>>) -> Response {
    match session {
        Some(_) => ([(CONTENT_TYPE, HTML)], PAGE).into_response(),
        None => (StatusCode::UNAUTHORIZED, [(CONTENT_TYPE, HTML)], LOGIN).into_response(),
    }
}

#[derive(Deserialize)]
struct Login {
    /// The secret of the link.
    link: String,
}

async fn log_in(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let login: Login = orders::body(request).await?;
    let session = Secret::random().map_err(|error| {
        let text = format!("cannot make a secret: {error}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", text)
    })?;
    let mut sessions = shared.sessions.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let is_in = Secret::parse(&login.link)
        .is_some_and(|link| sessions.log_in(link, session, Instant::now()));
    drop(sessions);
    if !is_in {
        let text = format!(
            "this link was used already, or is old: `kill -USR1 {}` has `osmos web` print another",
            std::process::id()
        );
        return Err(Refusal::new(StatusCode::FORBIDDEN, "bad-link", text));
    }
    let cookie = format!(
        "{}={}; HttpOnly; SameSite=Strict; Path=/; Max-Age={}",
        shared.doors.cookie_name(),
        session.text(),
        SESSION_MAX.as_secs()
    );
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response())
}

async fn log_out(
    State(shared): State<Arc<Shared>>,
    Extension(session): Extension<Session>,
) -> Response {
    let mut sessions = shared.sessions.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    sessions.log_out(session.secret);
    let cookie = format!("{}=; HttpOnly; Path=/; Max-Age=0", shared.doors.cookie_name());
    (StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response()
}
