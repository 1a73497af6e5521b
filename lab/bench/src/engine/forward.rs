//! A forwarded system call against a plain exchange over TCP of messages of the same sizes, between
//! the same two nodes in the same run.

use crate::engine::driven::{Driven, Serving};
use crate::engine::figure::Figure;
use crate::engine::pairs::{Pairs, take_turns};
use crate::engine::stage::{Share, Stage};
use crate::engine::{Setting, parts};
use anyhow::Result;
use wire::forward::{Call, Reply, ToAway, ToHome};
use wire::ids::GuestTid;
use wire::secure::TAG_BYTES;

const RATIO_MAX: f64 = 2.0;
/// Before the sealed bytes of a frame, and before a message's own bytes.
const LENGTH_BYTES: usize = 2 + 4;
const GETPPID: u32 = 110;

pub fn run(setting: &Setting) -> Result<Vec<Figure>> {
    if !setting.effort.is_whole {
        return compare(setting, Share::One, "one processor");
    }
    // The scheduler's free choice is between the other two, and not the same from run to run.
    let mut figures = compare(setting, Share::Whole, "anywhere")?;
    figures.extend(compare(setting, Share::One, "one processor")?);
    figures.extend(compare(setting, Share::Own, "one for each node")?);
    Ok(figures)
}

fn compare(setting: &Setting, share: Share, how: &str) -> Result<Vec<Figure>> {
    let stage = Stage::up(setting, 2, share)?;
    let (call_bytes, reply_bytes) = message_bytes()?;
    let mut floor = Exchange::start(setting, &stage, call_bytes, reply_bytes)?;
    let bytes = format!("{call_bytes} and {reply_bytes} bytes");
    let alone = Caller { name: format!("getppid away ({how})"), words: &[] };
    let (mut figures, median) = alone.compare(setting, &stage, (&mut floor, &bytes))?;
    let name = format!("getppid away beside a thread that sleeps ({how})");
    let beside = Caller { name, words: &["beside"] };
    figures.extend(beside.compare(setting, &stage, (&mut floor, &bytes))?.0);
    if share == Share::One {
        figures.extend(parts::run(setting, &stage, &median)?);
    }
    Ok(figures)
}

/// A program that makes the call, given these words.
struct Caller<'a> {
    name: String,
    words: &'a [&'a str],
}

impl Caller<'_> {
    /// Its figures, and the median of its rounds beside those of the floor.
    fn compare(
        &self,
        setting: &Setting,
        stage: &Stage,
        (floor, bytes): (&mut Exchange, &str),
    ) -> Result<(Vec<Figure>, Pairs)> {
        let mut caller = self.start(setting, stage)?;
        let calls = setting.effort.calls;
        // The first rounds let the scheduler find a place for everything.
        caller.round::<4>(calls)?;
        floor.asking.round::<4>(calls)?;
        let [p10, median, p90, mean] = take_turns(
            setting.effort.pairs,
            || Ok(caller.round::<4>(calls)?.map(|ns| ns / 1000.0)),
            || Ok(floor.asking.round::<4>(calls)?.map(|ns| ns / 1000.0)),
        )?;
        caller.end()?;
        let (tcp, name) = ("exchange over TCP", &self.name);
        let spread = format!(
            "within a round p10 {:.1}, p90 {:.1} us; TCP p10 {:.1}, p90 {:.1} us; {bytes}",
            p10.measured.median(),
            p90.measured.median(),
            p10.floor.median(),
            p90.floor.median()
        );
        let figures = vec![
            Figure::new(format!("{name}, median"), "us", &median.measured)
                .with_paired_floor(tcp, &median.floor, &median.ratios)
                .ratio_at_most(RATIO_MAX)
                .with_note(spread),
            Figure::new(format!("{name}, mean"), "us", &mean.measured).with_paired_floor(
                tcp,
                &mean.floor,
                &mean.ratios,
            ),
        ];
        Ok((figures, median))
    }

    fn start(&self, setting: &Setting, stage: &Stage) -> Result<Driven> {
        let getppid = setting.programs.path("getppid");
        let run = ["osmos", "run", "--node", "2", "--", &getppid];
        let driven = Driven::start(&mut stage.command(1, &[&run, self.words].concat()))?;
        stage.await_arrival(driven.pid(), 2)?;
        Ok(driven)
    }
}

/// What the two messages of one call take on the link, after the first few hundred calls.
fn message_bytes() -> Result<(usize, usize)> {
    let (tid, sequence) = (GuestTid(100), 1000);
    let (arguments, segments) = ([0; 6], vec![]);
    let call = Call { tid, sequence, signals_seen: 0, number: GETPPID, arguments, segments };
    let reply = Reply { tid, sequence, result: 1000, outputs: vec![], home_ns: 1_000_000_000 };
    let call = postcard::to_stdvec(&ToHome::Call(call))?;
    let reply = postcard::to_stdvec(&ToAway::Reply(reply))?;
    Ok((LENGTH_BYTES + TAG_BYTES + call.len(), LENGTH_BYTES + TAG_BYTES + reply.len()))
}

/// Node 2 asks, node 1 answers: as a body and its deputy would.
pub struct Exchange {
    pub asking: Driven,
    _answering: Serving,
}

impl Exchange {
    pub fn start(setting: &Setting, stage: &Stage, there: usize, back: usize) -> Result<Exchange> {
        let ping = setting.programs.path("ping");
        let (there, back) = (there.to_string(), back.to_string());
        let answering = Serving::start(&mut stage.command(1, &[&ping, "listen", &there, &back]))?;
        let address = stage.address(1);
        let words = [&ping, &address, &answering.line, &there, &back].map(|word| word.as_str());
        let asking = Driven::start(&mut stage.command(2, &words))?;
        Ok(Exchange { asking, _answering: answering })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn messages_of_a_call_without_memory_are_small() {
        let (call, reply) = message_bytes().unwrap();
        assert!((30..64).contains(&call) && (24..48).contains(&reply), "{call} {reply}");
    }
}
