//! Connections, and what each of them may take.
//!
//! Anybody on this machine can connect. What nobody has logged in for costs a bounded number of
//! connections, each with a bounded head that has to come in time, and no body.

use crate::{Shared, pages};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

/// Connections at once; a browser has up to six. More wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// A request's head is to be here so long after the connection is there for it.
pub const HEAD_MAX: Duration = Duration::from_secs(10);
/// Bytes of a head.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// Who takes nothing for so long is gone.
pub const WRITE_MAX: Duration = Duration::from_secs(30);
/// Before a connection is accepted again after that has failed, for want of descriptors, say.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// How long is waited for a browser.
#[derive(Clone, Copy)]
pub struct Patience {
    pub head: Duration,
    pub write: Duration,
}

pub async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    serve_with(listener, shared, Patience { head: HEAD_MAX, write: WRITE_MAX }).await;
}

async fn serve_with(listener: TcpListener, shared: Arc<Shared>, patience: Patience) {
    let routes = pages::routes(shared);
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Nobody closes the semaphore.
    while let Ok(permit) = room.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((socket, _)) => {
                let routes = routes.clone();
                tokio::spawn(async move {
                    // How a connection ends is the browser's business.
                    let _ = connection(socket, routes, patience).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

async fn connection(socket: TcpStream, routes: Router, patience: Patience) -> hyper::Result<()> {
    let _ = socket.set_nodelay(true);
    let mut socket = TimeoutStream::new(socket);
    socket.set_write_timeout(Some(patience.write));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.head)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(Box::pin(socket)), TowerToHyperService::new(routes))
        .await
}

#[cfg(test)]
mod test;
