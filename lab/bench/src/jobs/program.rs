//! A program that reads a file in order, wherever it is: `bench-read FILE`. It tells megabytes a
//! second of each time that it reads all of it, by blocks of as many bytes as it is told.

use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Does what these words say.
///
/// # Errors
/// They name no file, or it cannot be read.
pub fn run(words: &[OsString]) -> Result<()> {
    let [path] = words else { anyhow::bail!("bench-read FILE") };
    let path = PathBuf::from(path);
    println!("ready {}", std::process::id());
    for line in std::io::stdin().lock().lines() {
        match line?.trim().parse().context("bytes of a block")? {
            0 => break,
            block => println!("{}", read(&path, block)?),
        }
    }
    Ok(())
}

fn read(path: &Path, block: usize) -> Result<f64> {
    let (mut block, mut bytes) = (vec![0; block], 0);
    let began = Instant::now();
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    loop {
        match file.read(&mut block)? {
            0 => return Ok(bytes as f64 / 1e6 / began.elapsed().as_secs_f64()),
            count => bytes += count,
        }
    }
}
