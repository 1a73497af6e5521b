//! Sockets of this program inside nodes: what goes over a lab's network, without any program.

use lab::Node;
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const PORT: u16 = 7000;
/// A node asks three times, once a second, where another one is.
const FOUND: Duration = Duration::from_secs(4);
const ASKED: Duration = Duration::from_millis(50);
/// Bridges take no time: what has not followed the first by then was dropped.
const PATIENCE: Duration = Duration::from_millis(300);
/// Fewer than a socket holds.
const DATAGRAMS: usize = 100;

/// Does something on a thread that has the node's network.
fn inside<T: Send>(node: &Node<'_>, work: impl FnOnce() -> T + Send) -> T {
    let path = format!("/proc/{}/ns/net", node.keeper().unwrap().pid);
    let namespace = File::open(path).unwrap();
    std::thread::scope(|scope| {
        let work = scope.spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        });
        work.join().unwrap()
    })
}

fn at(address: Ipv4Addr) -> SocketAddr {
    SocketAddr::from((address, PORT))
}

/// Sends bytes over a stream; returns seconds until all have come.
pub fn send(from: &Node<'_>, to: &Node<'_>, count: usize) -> f64 {
    let target = at(to.address());
    let listener = inside(to, || TcpListener::bind(target).unwrap());
    let start = Instant::now();
    std::thread::scope(|scope| {
        let received = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
        });
        let mut stream = inside(from, || TcpStream::connect(target).unwrap());
        stream.write_all(&vec![0; count]).unwrap();
        drop(stream);
        assert_eq!(received.join().unwrap(), count as u64);
    });
    start.elapsed().as_secs_f64()
}

/// Why a stream from this node to an address does not come about; None if it does.
pub fn refusal(from: &Node<'_>, to: Ipv4Addr, patience: Duration) -> Option<std::io::ErrorKind> {
    inside(from, || TcpStream::connect_timeout(&at(to), patience)).err().map(|error| error.kind())
}

/// A stream between two nodes, ready.
pub fn stream(from: &Node<'_>, to: &Node<'_>) -> (TcpStream, TcpStream) {
    let target = at(to.address());
    let listener = inside(to, || TcpListener::bind(target).unwrap());
    let near = inside(from, || TcpStream::connect(target).unwrap());
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

/// Sends one byte; whether it comes in time.
pub fn passes((near, far): &mut (TcpStream, TcpStream), patience: Duration) -> bool {
    far.set_read_timeout(Some(patience)).unwrap();
    near.write_all(b"x").unwrap();
    far.read_exact(&mut [0]).is_ok()
}

/// Of a hundred datagrams, how many come.
pub fn datagrams(from: &Node<'_>, to: &Node<'_>) -> usize {
    let target = at(to.address());
    let receiver = inside(to, || UdpSocket::bind(target).unwrap());
    let sender = inside(from, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
    // While a node asks where the other one is, and if it gets no answer, it drops what it has.
    receiver.set_read_timeout(Some(ASKED)).unwrap();
    let begun = Instant::now();
    loop {
        // Refused for a while where there was no answer.
        let _ = sender.send_to(b"there?", target);
        if receiver.recv(&mut [0]).is_ok() {
            break;
        } else if begun.elapsed() > FOUND {
            return 0;
        }
    }
    for _ in 0..DATAGRAMS {
        sender.send_to(b"x", target).unwrap();
    }
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut first = [0];
    let mut count = 0;
    while receiver.recv(&mut first).is_ok() {
        count += usize::from(first == *b"x");
    }
    count
}
