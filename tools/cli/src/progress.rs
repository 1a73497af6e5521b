//! How far something is that takes time, on one line of a terminal that is written over, and what
//! becomes of it at ^C.
//!
//! Whoever waits does so by [`Waiting`], whatever for: it draws the line after a second, and hears
//! ^C at any moment. Nothing is drawn where nobody looks, where a program reads (`--json`), and
//! where plain text is asked for (`NO_COLOR`, `TERM=dumb`).

use crate::interrupts::{Interrupts, News};
use crate::output;
use anyhow::Result;
use client::Client;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use wire::control::{Reply, Request};
use wire::owner::Owned;
use wire::supervisor::Progress;

/// What takes less time is not told of; the line is drawn again as often.
const TICK: Duration = Duration::from_secs(1);
/// A longer line would be broken by some terminal, and could not be written over.
const COLUMNS_MAX: usize = 78;
/// A daemon that says nothing for so long is not asked how far it is.
const CENSUS_PATIENCE: Duration = Duration::from_millis(500);

/// Characters of the line that stands there. All threads write to one terminal.
static DRAWN: Mutex<usize> = Mutex::new(0);

/// Prints something beside the line, on an empty one.
pub fn aside(print: impl FnOnce()) {
    let mut drawn = DRAWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    write_over(&mut drawn, "");
    print();
}

fn draw(text: &str) {
    let mut drawn = DRAWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    write_over(&mut drawn, text);
}

fn write_over(drawn: &mut usize, text: &str) {
    let text: String = output::printable(text).chars().take(COLUMNS_MAX).collect();
    if *drawn > 0 || !text.is_empty() {
        let columns = std::mem::replace(drawn, text.chars().count());
        // A terminal that is gone needs no progress.
        let _ = write!(io::stderr(), "\r{:columns$}\r{text}", "");
    }
}

/// Only people are shown it.
fn is_wanted(json: bool) -> bool {
    !json && io::stderr().is_terminal() && !output::is_plain_wanted()
}

/// A command waits. There is one at a time.
pub struct Waiting {
    doing: String,
    /// What becomes of it at ^C.
    stands: &'static str,
    is_wanted: bool,
    since: Instant,
    next_tick: Instant,
    interrupts: Interrupts,
    /// What is done before ^C ends the command.
    last: Option<Box<dyn FnOnce()>>,
}

impl Waiting {
    /// `doing`: `draining this node`; `stands`: a sentence for who does not wait for the end.
    pub fn begin(doing: impl Into<String>, stands: &'static str, json: bool) -> Result<Waiting> {
        let (interrupts, since) = (Interrupts::taken()?, Instant::now());
        let (doing, next_tick, is_wanted) = (doing.into(), since + TICK, is_wanted(json));
        Ok(Waiting { doing, stands, is_wanted, since, next_tick, interrupts, last: None })
    }

    /// Leaves nothing behind at ^C.
    pub fn and_last(mut self, last: Box<dyn FnOnce()>) -> Waiting {
        self.last = Some(last);
        self
    }

    /// What goes on from now on.
    pub fn goes_on(&mut self, doing: impl Into<String>) {
        self.doing = doing.into();
    }

    /// Until `other` has something to read. `left` says how far it is.
    pub fn until(
        &mut self,
        other: &impl AsFd,
        mut left: impl FnMut() -> Option<String>,
    ) -> Result<()> {
        while self.next(Some(other), None)? != News::Readable {
            let left = if self.is_wanted { left() } else { None };
            self.draw(left);
        }
        Ok(())
    }

    /// The same, until then at most; false if there is nothing by then.
    pub fn until_or_late(&mut self, other: &impl AsFd, late: Instant) -> Result<bool> {
        loop {
            match self.next(Some(other), Some(late))? {
                News::Readable => return Ok(true),
                _ if Instant::now() >= late => return Ok(false),
                _ => self.show(None),
            }
        }
    }

    /// Until something is done, in a thread of its own.
    pub fn during<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let (has_ended, working) = io::pipe()?;
        std::thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let done = work();
                drop(working);
                done
            });
            self.until(&has_ended, || None)?;
            worker.join().map_err(|_| anyhow::anyhow!("the work was lost: a fault of osmos"))
        })
    }

    /// For who looks again and again himself.
    pub fn pause(&mut self, pause: Duration) -> Result<()> {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            self.next(None, Some(until))?;
            self.show(None);
        }
        Ok(())
    }

    /// The line is drawn again, if a second has passed.
    pub fn show(&mut self, left: Option<String>) {
        if Instant::now() >= self.next_tick {
            self.draw(left);
        }
    }

    fn draw(&mut self, left: Option<String>) {
        self.next_tick = Instant::now() + TICK;
        if self.is_wanted {
            let took = self.since.elapsed().as_secs();
            let left = left.map(|left| format!(": {left}")).unwrap_or_default();
            draw(&format!("{}{left} ({took} s)", self.doing));
        }
    }

    /// ^C ends the command, and says what stands.
    fn next(&mut self, other: Option<&dyn AsFd>, until: Option<Instant>) -> Result<News> {
        let until = until.map_or(self.next_tick, |until| until.min(self.next_tick));
        let patience = until.saturating_duration_since(Instant::now());
        let news = self.interrupts.next(other, Some(patience + Duration::from_millis(1)))?;
        if news == News::Interrupt {
            aside(|| eprintln!("osmos: interrupted; {}", self.stands));
            if let Some(last) = self.last.take() {
                last();
            }
            self.interrupts.obey()?;
        }
        Ok(news)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        draw("");
    }
}

/// Asks for what takes the daemon time. What is still to move is shown meanwhile.
pub fn ask(
    client: &mut Client,
    request: &Request,
    (doing, stands): (&str, &'static str),
    json: bool,
) -> Result<Reply> {
    let mut waiting = Waiting::begin(doing, stands, json)?;
    let mut census = Census { asked: None };
    client.send(request)?;
    waiting.until(client, || census.take(client))?;
    Ok(client.receive()?)
}

/// How many processes are not where they are to be, by another connection to the daemon.
struct Census {
    asked: Option<Client>,
}

impl Census {
    /// None if the daemon does not say.
    fn take(&mut self, of: &Client) -> Option<String> {
        let mut client = self.asked.take().or_else(|| of.another().ok())?;
        client.set_patience(CENSUS_PATIENCE).ok()?;
        let Ok(Reply::Status(status)) = client.request(&Request::Status) else { return None };
        self.asked = Some(client);
        Some(left(&status.owner))
    }
}

fn left(owned: &Owned) -> String {
    let guests = output::counted(owned.guests, "guest", "guests");
    let away = output::counted(owned.own_away, "own process", "own processes");
    format!("{guests} here, {away} away")
}

/// Does something, and shows for how long.
pub fn during<T: Send>(
    (doing, stands): (&str, &'static str),
    json: bool,
    work: impl FnOnce() -> T + Send,
) -> Result<T> {
    Waiting::begin(doing, stands, json)?.during(work)
}

/// Asks all nodes, and takes what each says as it comes.
pub fn everywhere(
    client: &mut Client,
    request: Request,
    (doing, stands): (&str, &'static str),
    json: bool,
    mut take: impl FnMut(wire::ids::NodeId, std::result::Result<Reply, wire::control::Failure>),
) -> Result<()> {
    let mut waiting = Waiting::begin(doing, stands, json)?;
    let mut said = 0_u64;
    client.begin_everywhere(request)?;
    loop {
        if !client.has_more() {
            let answers = || Some(output::counted(said, "answer", "answers"));
            waiting.until(client, answers)?;
        }
        match client.next_said()? {
            Some((node, reply)) => take(node, reply),
            None => return Ok(()),
        }
        said += 1;
    }
}

/// The line of one move.
pub struct Shown {
    pid: i32,
    is_wanted: bool,
    since: Instant,
    last: Option<Progress>,
}

impl Shown {
    pub fn for_move(pid: i32, json: bool) -> Shown {
        Shown { pid, is_wanted: is_wanted(json), since: Instant::now(), last: None }
    }

    pub fn show(&mut self, progress: Progress) {
        self.last = Some(progress);
        self.draw();
    }

    /// Once a second, whether or not there is news.
    pub fn draw(&self) {
        let took = self.since.elapsed();
        if self.is_wanted && took >= TICK {
            let text = match &self.last {
                Some(progress) => line(self.pid, progress),
                None => format!("{}: the move has not begun yet", self.pid),
            };
            draw(&format!("{text} ({} s)", took.as_secs()));
        }
    }

    /// Between two looks.
    pub fn tick(&self) -> Option<Duration> {
        self.is_wanted.then_some(TICK)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        draw("");
    }
}

/// `4711: round 2, 1.1G sent, 64M left`
fn line(pid: i32, progress: &Progress) -> String {
    let Progress { round, bytes_sent, bytes_left, is_filling } = *progress;
    let sent = output::bytes(bytes_sent);
    if is_filling {
        let left = output::bytes(bytes_left);
        return format!("{pid}: waits for its last pages, {sent} came, {left} left");
    }
    match round {
        0 => format!("{pid}: frozen, {sent} sent"),
        _ => format!("{pid}: round {round}, {sent} sent, {} left", output::bytes(bytes_left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_is_sent_and_left() {
        let (bytes_sent, bytes_left) = (3 << 29, 64 << 20);
        let mut progress = Progress { round: 2, bytes_sent, bytes_left, is_filling: false };
        assert_eq!(line(4711, &progress), "4711: round 2, 1.5G sent, 64M left");
        progress.round = 0;
        assert_eq!(line(4711, &progress), "4711: frozen, 1.5G sent");
        progress.is_filling = true;
        assert_eq!(line(4711, &progress), "4711: waits for its last pages, 1.5G came, 64M left");
    }

    #[test]
    fn what_is_done_meanwhile_is_given_back() {
        let words = ("adding", "nothing was added");
        assert_eq!(during(words, true, || 2 + 3).expect("a thread"), 5);
    }

    #[test]
    fn what_is_still_to_move_is_counted() {
        let owned = Owned { guests: 1, own_away: 2, ..Owned::default() };
        assert_eq!(left(&owned), "1 guest here, 2 own processes away");
    }
}
