//! `osmos web`: the picture of the cluster in a browser, with the last hour of it.
//!
//! A small web server that is a tool like any other: it asks the daemon of this node over its
//! control socket, as the user who runs it, so that nothing is shown or done that this user could
//! not see or do in a terminal. [`source`] asks, [`board`] is what is known and what of it has
//! changed, pure; [`hub`] hands that to all browsers; [`sessions`] and [`guard`] say whom the
//! server talks to, [`server`] bounds what anybody can take of it. The page itself is in `assets`.

mod answers;
mod board;
mod guard;
mod history;
mod hub;
mod log;
mod orders;
mod pages;
mod server;
mod sessions;
mod source;
mod stream;
#[cfg(test)]
mod test;
mod wording;

pub use wording::Wording;

use anyhow::{Context, Result};
use board::Board;
use client::Client;
use guard::Doors;
use hub::Hub;
use serde_json::json;
use sessions::{Secret, Sessions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;

pub struct Options {
    /// Control socket of the daemon.
    pub socket: PathBuf,
    pub listen: SocketAddr,
    /// The page shows, and does nothing.
    pub is_read_only: bool,
    /// Between two pictures while somebody looks.
    pub delay: Duration,
    /// The link is printed as JSON.
    pub is_json: bool,
    pub wording: Wording,
}

/// What all requests share.
struct Shared {
    options: Options,
    pub hub: Arc<Hub>,
    pub doors: Doors,
    pub sessions: Mutex<Sessions>,
    pub orders: Arc<Semaphore>,
    pub viewers: Arc<Semaphore>,
}

/// Serves the page until a signal ends this.
///
/// # Errors
/// There is no daemon, the address cannot be listened on, or threads cannot be started.
pub fn run(options: Options) -> Result<()> {
    // Without a daemon at the start this ends as any other command does.
    drop(Client::connect(&options.socket)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the web server")?;
    let served = runtime.block_on(serve(options));
    // Orders that are under way wait for a daemon; what ends with this program is called off.
    runtime.shutdown_background();
    served
}

async fn serve(options: Options) -> Result<()> {
    let listener = TcpListener::bind(options.listen).await.with_context(|| {
        let address = options.listen;
        format!(
            "cannot listen on {address} (another is chosen by `--listen`; port 0 is a free one)"
        )
    })?;
    let address = listener.local_addr().context("cannot tell the port")?;
    // From here on they end this in order.
    let mut endings = Endings::hear()?;
    let mut wanted = signal(SignalKind::user_defined1()).context("cannot wait for signals")?;
    let shared = share(options, address);
    source::begin(&shared).context("cannot start a thread that asks the daemon")?;
    if !address.ip().is_loopback() {
        eprintln!(
            "osmos: {address} is reached from other machines, and nothing is encrypted: whoever \
             can read the network can act as you. `ssh -L {0}:127.0.0.1:{0}` is the safe way",
            address.port()
        );
    }
    print_link(&shared, address)?;
    let serving = server::serve(listener, shared.clone());
    tokio::pin!(serving);
    loop {
        tokio::select! {
            () = &mut serving => return Ok(()),
            () = endings.next() => return Ok(()),
            _ = wanted.recv() => print_link(&shared, address)?,
        }
    }
}

fn share(options: Options, address: SocketAddr) -> Arc<Shared> {
    Arc::new(Shared {
        hub: Arc::new(Hub::new(Board::new(options.wording))),
        doors: Doors::new(address),
        sessions: Mutex::new(Sessions::default()),
        orders: Arc::new(Semaphore::new(orders::ORDERS_MAX)),
        viewers: Arc::new(Semaphore::new(stream::VIEWERS_MAX)),
        options,
    })
}

/// The signals that end a program.
struct Endings([Signal; 3]);

impl Endings {
    fn hear() -> Result<Endings> {
        let hear = |kind| signal(kind).context("cannot wait for signals");
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds;
        Ok(Endings([hear(interrupt)?, hear(terminate)?, hear(hangup)?]))
    }

    async fn next(&mut self) {
        let Endings([interrupt, terminate, hangup]) = self;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// A new link, good once; the one before it is good no more. The secret stands behind a `#`, which
/// browsers send to nobody: the page hands it in itself.
fn print_link(shared: &Shared, address: SocketAddr) -> Result<()> {
    let secret = Secret::random().context("cannot make a secret")?;
    let mut sessions = shared.sessions.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    sessions.set_link(secret, Instant::now());
    drop(sessions);
    let link = format!("http://{address}/login#{}", secret.text());
    let pid = std::process::id();
    let line = match shared.options.is_json {
        true => json!({ "link": link, "address": address, "pid": pid }).to_string(),
        false => link,
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot print the link")?;
    if !shared.options.is_json {
        eprintln!("osmos: this link is good once, for an hour; `kill -USR1 {pid}` makes another");
    }
    Ok(())
}
