//! What a forwarded call is made of: each part measured alone, in the same run. What the parts
//! leave is the price of their meeting: processes that take turns on one processor find its caches
//! and translation buffers cold, and each turn is a wake-up.

use crate::engine::Setting;
use crate::engine::driven::Driven;
use crate::engine::figure::Figure;
use crate::engine::pairs::Pairs;
use crate::engine::stage::Stage;
use crate::engine::statistics::Samples;
use anyhow::{Context, Result};
use std::time::Instant;
use wire::forward::{Call, Reply, ToAway, ToHome};
use wire::ids::GuestTid;
use wire::secure::{BerthHandshake, Opener, Sealer};

pub fn run(setting: &Setting, stage: &Stage, forwarded: &Pairs) -> Result<Vec<Figure>> {
    let native = alone(setting, stage, 1, "getppid")?;
    let notify = alone(setting, stage, 2, "notify")?;
    let handover = alone(setting, stage, 1, "handover")?;
    let sealing = sealing(setting)?;
    let sum = [&notify, &handover, &sealing, &forwarded.floor];
    let sum: f64 = sum.into_iter().map(Samples::median).sum();
    let rest = forwarded.measured.median() - sum;
    let note = format!(
        "so of {:.1} us: TCP {:.1}, interception {:.1}, hand-over at home {:.1}, encoding and \
         encryption {:.1}, and {rest:.1} for their meeting",
        forwarded.measured.median(),
        forwarded.floor.median(),
        notify.median(),
        handover.median(),
        sealing.median()
    );
    Ok(vec![
        Figure::new("part: native getppid", "us", &native),
        Figure::new("part: interception by seccomp", "us", &notify),
        Figure::new("part: hand-over to the deputy and back", "us", &handover),
        Figure::new("part: encoding and encryption, both ways", "us", &sealing).with_note(note),
    ])
}

/// Medians of a program's rounds, run natively on a node.
fn alone(setting: &Setting, stage: &Stage, node: u32, name: &str) -> Result<Samples> {
    let mut driven = Driven::start(&mut stage.command(node, &[&setting.programs.path(name)]))?;
    driven.round::<4>(setting.effort.calls)?;
    let mut medians = Vec::new();
    for _ in 0..setting.effort.pairs {
        let [_, median_ns, ..] = driven.round::<4>(setting.effort.calls)?;
        medians.push(median_ns / 1000.0);
    }
    driven.end()?;
    Samples::new(medians).with_context(|| format!("{name} gave no times"))
}

/// Encoding, sealing, opening and decoding a call and its reply, with nothing in between.
fn sealing(setting: &Setting) -> Result<Samples> {
    let ((mut home_sealer, mut home_opener), (mut away_sealer, mut away_opener)) = link()?;
    let mut rounds = Vec::new();
    for _ in 0..setting.effort.pairs {
        let mut each = Vec::new();
        for sequence in 0..setting.effort.calls {
            let (tid, arguments, segments) = (GuestTid(100), [0; 6], vec![]);
            let call = Call { tid, sequence, signals_seen: 0, number: 110, arguments, segments };
            let reply =
                Reply { tid, sequence, result: 1000, outputs: vec![], home_ns: 1_000_000_000 };
            let started = Instant::now();
            let call: ToHome = through(&ToHome::Call(call), &mut away_sealer, &mut home_opener)?;
            let reply: ToAway = through(&ToAway::Reply(reply), &mut home_sealer, &mut away_opener)?;
            std::hint::black_box((call, reply));
            each.push(started.elapsed().as_nanos() as f64 / 1000.0);
        }
        rounds.push(Samples::new(each).context("no calls")?.median());
    }
    Samples::new(rounds).context("no rounds")
}

fn through<T: serde::Serialize + serde::de::DeserializeOwned>(
    message: &T,
    sealer: &mut Sealer,
    opener: &mut Opener,
) -> Result<T> {
    let plain = postcard::to_stdvec(message)?;
    let (mut sealed, mut opened) = ([0; 256], [0; 256]);
    let length = sealer.seal(&plain, &mut sealed)?;
    let length = opener.open(&sealed[..length], &mut opened)?;
    Ok(postcard::from_bytes(&opened[..length])?)
}

type End = (Sealer, Opener);

/// Both ends of an encrypted link, home first.
fn link() -> Result<(End, End)> {
    let key = [7; 32];
    let (mut home, mut away) = (BerthHandshake::initiator(&key)?, BerthHandshake::responder(&key)?);
    let mut message = [0; 64];
    let length = home.write(&mut message)?;
    away.read(&message[..length])?;
    let length = away.write(&mut message)?;
    home.read(&message[..length])?;
    Ok((home.finish()?, away.finish()?))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_sealed_at_one_end_is_opened_at_the_other() {
        let ((mut sealer, _), (_, mut opener)) = link().unwrap();
        for text in ["first", "second"] {
            let opened: String = through(&text.to_owned(), &mut sealer, &mut opener).unwrap();
            assert_eq!(opened, text);
        }
    }
}
