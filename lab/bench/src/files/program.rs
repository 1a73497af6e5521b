//! What is measured of a directory, wherever its files are: `bench-files DIR MIB SMALL [wait]`.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const BLOCK: usize = 4 << 10;
/// Blocks that are read at random places.
const BLOCKS: u64 = 4_000;
/// What mounts remember of files is old by then (a second for both).
const OLD: Duration = Duration::from_millis(1_500);

/// It tells its pid, and begins when its input ends: it is moved meanwhile.
pub const WAITS: &str = "wait";

/// In MiB a second and in files, or blocks, a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    pub write: f64,
    pub read: f64,
    pub random: f64,
    pub create: f64,
    pub stat: f64,
    pub list: f64,
    pub remove: f64,
}

pub fn run(arguments: &[OsString]) -> Result<()> {
    let [directory, mib, small, rest @ ..] = arguments else {
        anyhow::bail!("bench-files DIR MIB SMALL [{WAITS}]");
    };
    if rest.iter().any(|word| word == WAITS) {
        println!("{}", std::process::id());
        std::io::stdin().read_to_end(&mut Vec::new())?;
    }
    let number = |word: &OsString| word.to_str().and_then(|word| word.parse::<u64>().ok());
    let (mib, small) = (number(mib).context("no size")?, number(small).context("no number")?);
    let directory = PathBuf::from(directory);
    fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let rates = measure(&directory, mib, small)?;
    fs::remove_dir(&directory)?;
    println!("{}", serde_json::to_string(&rates)?);
    Ok(())
}

fn timed(of: u64, what: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    what()?;
    Ok(of as f64 / began.elapsed().as_secs_f64())
}

fn measure(directory: &Path, mib: u64, small: u64) -> Result<Rates> {
    let large = directory.join("large");
    let name = |number: u64| directory.join(format!("small-{number}"));
    let mut content = vec![0; MIB];
    (0..).zip(&mut content).for_each(|(at, byte): (u32, &mut u8)| *byte = ((at * 31) >> 3) as u8);
    let write = timed(mib, || {
        let mut file = File::create(&large)?;
        (0..mib).try_for_each(|_| file.write_all(&content))?;
        // Closing tells whether all of it has arrived, and `File` does not ask.
        Ok(file.sync_data()?)
    })?;
    forget_pages(&large)?;
    let read = timed(mib, || {
        let (mut file, mut all) = (File::open(&large)?, 0);
        loop {
            match file.read(&mut content)? {
                0 => break,
                count => all += count as u64,
            }
        }
        ensure!(all == mib * MIB as u64, "{all} bytes of {mib} MiB");
        Ok(())
    })?;
    forget_pages(&large)?;
    let random = timed(BLOCKS, || read_blocks(&large, mib))?;
    fs::remove_file(&large)?;
    let create = timed(small, || {
        (0..small).try_for_each(|number| Ok(File::create_new(name(number)).map(drop)?))
    })?;
    std::thread::sleep(OLD);
    let stat = timed(small, || {
        (0..small).try_for_each(|number| Ok(fs::metadata(name(number)).map(drop)?))
    })?;
    std::thread::sleep(OLD);
    let list = timed(small, || {
        let entries: Result<Vec<_>, _> = fs::read_dir(directory)?.collect();
        entries?.iter().try_for_each(|entry| Ok(entry.metadata().map(drop)?))
    })?;
    let remove =
        timed(small, || (0..small).try_for_each(|number| Ok(fs::remove_file(name(number))?)))?;
    Ok(Rates { write, read, random, create, stat, list, remove })
}

fn read_blocks(large: &Path, mib: u64) -> Result<()> {
    let file = File::open(large)?;
    // Else the kernel reads more than it is asked for.
    let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_RANDOM;
    nix::fcntl::posix_fadvise(&file, 0, 0, advice)?;
    let (mut block, mut random) = ([0; BLOCK], fastrand::Rng::with_seed(7));
    let blocks = mib * (MIB / BLOCK) as u64;
    (0..BLOCKS)
        .try_for_each(|_| Ok(file.read_exact_at(&mut block, random.u64(0..blocks) * BLOCK as u64)?))
}

/// What this kernel has of the file is read anew when it is opened next.
fn forget_pages(file: &Path) -> Result<()> {
    let file = OpenOptions::new().write(true).open(file)?;
    file.set_modified(std::time::SystemTime::now())?;
    let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED;
    nix::fcntl::posix_fadvise(&file, 0, 0, advice)?;
    Ok(())
}
