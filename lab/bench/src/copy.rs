//! What a link carries, the floor of all that travels: so many bytes over one TCP connection, as
//! they are or sealed as between two nodes.
//!
//! `bench-copy listen HOW` prints its port; `bench-copy ADDRESS PORT HOW MB` is driven as the
//! programs of `guests/`, and tells megabytes a second of each copy. HOW is `plain` or `sealed`.
//! The program `copy` is the same by itself.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;
use wire::limits::FRAME_PLAIN_BYTES_MAX;
use wire::secure::{BerthHandshake, Opener, Sealer, TAG_BYTES};

const KEY: [u8; 32] = [7; 32];
const BLOCK_BYTES: usize = 256 << 10;
const FRAME_BYTES: usize = FRAME_PLAIN_BYTES_MAX + TAG_BYTES;

/// Does what these words say.
///
/// # Errors
/// They say nothing, or no connection can be had.
pub fn run(words: &[OsString]) -> Result<()> {
    let words: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    match words.context("these words are no text")?[..] {
        ["listen", how] => listen(is_sealed(how)?),
        [address, port, how, megabytes] => {
            let port = port.parse().context("a port")?;
            drive((address, port), is_sealed(how)?, megabytes.parse().context("megabytes")?)
        }
        _ => bail!("usage: listen HOW | ADDRESS PORT HOW MB"),
    }
}

fn is_sealed(how: &str) -> Result<bool> {
    ensure!(["plain", "sealed"].contains(&how), "`{how}` is neither plain nor sealed");
    Ok(how == "sealed")
}

fn listen(is_sealed: bool) -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:0")?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept()?;
        receive(stream, is_sealed)?;
    }
}

/// All there is; then one byte goes back.
fn receive(mut stream: TcpStream, is_sealed: bool) -> Result<()> {
    if is_sealed {
        let mut opener = shake_hands(&mut stream, BerthHandshake::responder(&KEY)?, false)?.1;
        let (mut sealed, mut plain) = (vec![0; FRAME_BYTES], vec![0; FRAME_BYTES]);
        while stream.read_exact(&mut sealed).is_ok() {
            opener.open(&sealed, &mut plain)?;
        }
    } else {
        let mut block = vec![0; BLOCK_BYTES];
        while stream.read(&mut block)? > 0 {}
    }
    stream.write_all(&[1])?;
    Ok(())
}

fn drive(to: (&str, u16), is_sealed: bool, megabytes: usize) -> Result<()> {
    println!("ready {}", std::process::id());
    for line in std::io::stdin().lock().lines() {
        if line?.trim() == "0" {
            break;
        }
        println!("{}", send(to, is_sealed, megabytes << 20)?);
    }
    Ok(())
}

/// Megabytes a second.
fn send(to: (&str, u16), is_sealed: bool, bytes: usize) -> Result<f64> {
    let mut stream = TcpStream::connect(to)?;
    let block: Vec<u8> = (0..BLOCK_BYTES as u64).map(|at| ((at * 2_654_435) >> 13) as u8).collect();
    let began = Instant::now();
    if is_sealed {
        let mut sealer = shake_hands(&mut stream, BerthHandshake::initiator(&KEY)?, true)?.0;
        let mut frame = vec![0; FRAME_BYTES];
        for _ in 0..bytes.div_ceil(FRAME_PLAIN_BYTES_MAX) {
            sealer.seal(&block[..FRAME_PLAIN_BYTES_MAX], &mut frame)?;
            stream.write_all(&frame)?;
        }
    } else {
        (0..bytes / BLOCK_BYTES).try_for_each(|_| stream.write_all(&block))?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read_exact(&mut [0])?;
    Ok(bytes as f64 / 1e6 / began.elapsed().as_secs_f64())
}

fn shake_hands(
    stream: &mut TcpStream,
    mut handshake: BerthHandshake,
    is_first: bool,
) -> Result<(Sealer, Opener)> {
    for is_ours in [is_first, !is_first] {
        let mut message = [0; 64];
        if is_ours {
            let length = handshake.write(&mut message)?;
            stream.write_all(&[length as u8])?;
            stream.write_all(&message[..length])?;
        } else {
            let mut length = [0];
            stream.read_exact(&mut length)?;
            let length = usize::from(length[0]).min(message.len());
            stream.read_exact(&mut message[..length])?;
            handshake.read(&message[..length])?;
        }
    }
    Ok(handshake.finish()?)
}
