//! Whom the server talks to. Every request passes here before anything of it is read.
//!
//! * `Host` has to be an address of this machine or `localhost`: a page of somebody else whose name
//!   suddenly points here (DNS rebinding) has a name of its own there.
//! * `Origin`, and what browsers say in `Sec-Fetch-Site`, has to be the page itself; requests that
//!   do something have to have an `Origin`.
//! * Without a session there is nothing but the page that begins one.

use crate::Shared;
use crate::answers::Refusal;
use crate::sessions::Secret;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nothing from elsewhere, no code but our files, in no frame of others.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Where the server listens, and so what it may be called.
pub struct Doors {
    address: SocketAddr,
}

/// Of the browser that asks.
#[derive(Clone, Copy)]
pub struct Session {
    pub secret: Secret,
    /// For so long it lasts yet.
    pub rest: Duration,
}

impl Doors {
    pub fn new(address: SocketAddr) -> Doors {
        Doors { address }
    }

    /// Cookies are the same for all ports of a machine, so its name has the port.
    pub fn cookie_name(&self) -> String {
        format!("osmos-{}", self.address.port())
    }

    fn is_called(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        match name.parse::<IpAddr>() {
            Ok(address) => {
                let listens = self.address.ip();
                address.is_loopback() || address == listens || listens.is_unspecified()
            }
            Err(_) => name.eq_ignore_ascii_case("localhost"),
        }
    }

    /// Why a request is not taken, whoever sends it; none: it is.
    fn complaint(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Refusal> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let refuse = |code, text: &str| Some(Refusal::new(StatusCode::FORBIDDEN, code, text));
        let host = text(HOST).unwrap_or_default();
        if !self.is_called(host) {
            return refuse("host", "this page is reached as `localhost`, or by its address");
        }
        let own = format!("http://{host}");
        let does_something = method != Method::GET && method != Method::HEAD;
        let is_own = match text(ORIGIN) {
            Some(origin) => origin.eq_ignore_ascii_case(&own),
            None => !does_something,
        };
        // A link may stand on a page of others; what it leads to then asks for itself.
        let is_page = !does_something && (path == "/" || path == "/login");
        let site = text(HeaderName::from_static(SEC_FETCH_SITE)).unwrap_or("none");
        if !is_own || !(is_page || site == "same-origin" || site == "none") {
            return refuse("origin", "this request comes from another page");
        }
        None
    }
}

/// Who asks, if there is a session.
fn session(shared: &Shared, headers: &HeaderMap) -> Option<Session> {
    let name = shared.doors.cookie_name();
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let values = cookies.flat_map(|line| line.split(';')).filter_map(|cookie| {
        let (own, value) = cookie.trim().split_once('=')?;
        (own == name).then_some(value)
    });
    let sessions = shared.sessions.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut found = values.filter_map(Secret::parse).filter_map(|secret| {
        Some(Session { secret, rest: sessions.rest(secret, Instant::now())? })
    });
    found.next()
}

/// Of every request.
pub async fn guard(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let mut response = match shared.doors.complaint(method, path, request.headers()) {
        Some(refusal) => refusal.into_response(),
        None => {
            if let Some(session) = session(&shared, request.headers()) {
                request.extensions_mut().insert(session);
            }
            next.run(request).await
        }
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Of those requests that need a session.
pub async fn logged_in(request: Request, next: Next) -> Response {
    if request.extensions().get::<Session>().is_some() {
        return next.run(request).await;
    }
    let text = "nobody is logged in: open the link that `osmos web` has printed";
    Refusal::new(StatusCode::UNAUTHORIZED, "no-session", text).into_response()
}

#[cfg(test)]
mod test {
    use super::*;

    fn complaint(
        listen: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Option<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.insert(name, value.parse().unwrap());
        }
        let doors = Doors::new(listen.parse().unwrap());
        let refusal = doors.complaint(&method.parse().unwrap(), path, &map)?;
        assert_eq!(refusal.status, StatusCode::FORBIDDEN);
        Some(refusal.code)
    }

    #[test]
    fn only_names_of_this_machine_are_ours() {
        let told = |listen, host| complaint(listen, "GET", "/", &[("host", host)]);
        // The port is another one behind `ssh -L`.
        for host in ["127.0.0.1:7788", "localhost:8080", "LOCALHOST", "[::1]:7788"] {
            assert_eq!(told("127.0.0.1:7788", host), None, "{host}");
        }
        for host in ["evil.example:7788", "10.0.0.1:7788", "localhost.evil.example", "", "a b"] {
            assert_eq!(told("127.0.0.1:7788", host).as_deref(), Some("host"), "{host}");
        }
        assert_eq!(told("10.0.0.1:7788", "10.0.0.1:7788"), None);
        assert_eq!(told("0.0.0.0:7788", "10.0.0.9:7788"), None);
        assert_eq!(told("0.0.0.0:7788", "evil.example").as_deref(), Some("host"));
        assert_eq!(complaint("127.0.0.1:1", "GET", "/", &[]).as_deref(), Some("host"));
    }

    #[test]
    fn only_the_page_itself_has_something_done() {
        let told = |method, path, more: &[(&str, &str)]| {
            complaint(
                "127.0.0.1:7788",
                method,
                path,
                &[&[("host", "localhost:7788")], more].concat(),
            )
        };
        let own = ("origin", "http://localhost:7788");
        assert_eq!(told("POST", "/order", &[own]), None);
        assert_eq!(told("POST", "/order", &[own, (SEC_FETCH_SITE, "same-origin")]), None);
        assert_eq!(told("GET", "/live", &[]), None);
        assert_eq!(told("GET", "/", &[(SEC_FETCH_SITE, "cross-site")]), None, "a link");
        for (method, path, headers) in [
            ("POST", "/order", &[][..]),
            ("POST", "/order", &[("origin", "http://localhost:7789")]),
            ("POST", "/order", &[("origin", "null")]),
            ("POST", "/order", &[("origin", "https://localhost:7788")]),
            ("POST", "/order", &[own, (SEC_FETCH_SITE, "same-site")]),
            ("POST", "/login", &[own, (SEC_FETCH_SITE, "cross-site")]),
            ("GET", "/live", &[(SEC_FETCH_SITE, "cross-site")]),
            ("GET", "/live", &[("origin", "http://evil.example")]),
            ("PUT", "/", &[]),
        ] {
            let told = told(method, path, headers);
            assert_eq!(told.as_deref(), Some("origin"), "{method} {path} {headers:?}");
        }
    }
}
