//! `osmos what-if`, and the places that `osmos why` shows: the brain's own rule is asked, and what
//! it answers is put into the shapes that tools and other nodes read.

use super::Daemon;
use super::requests::failure;
use brain::{Foresight, Guess, Unforeseen};
use wire::control::{Failure, Reply};
use wire::forecast::{Forecast, NodeForecast, Place, Weighed};
use wire::ids::{GlobalPid, HomePid, NodeId};
use wire::move_cost::Price;
use wire::peer::{PLACES_MAX, PlaceWeighed};

/// A hypothetical node with more is none.
const CORES_MAX: u32 = 65_535;
const SPEED_MAX: f64 = 10_000.0;
/// Of the text that another node sends about a place.
const BUT_CHARS_MAX: usize = 200;

impl Daemon {
    /// What the brain would say of the process now, if it runs here.
    pub(super) fn weigh_up(&self, process: GlobalPid) -> Option<Weighed> {
        let first = self.memory_groups.first_of(process);
        let (rate_here, guesses) = self.thought.brain().weigh_up(self.brain_time(), first)?;
        let unfit = |place: &Place| self.why_unfit(process, place.node?);
        let places = guesses.into_iter().map(place);
        let places =
            places.map(|place| Place { but: unfit(&place).or(place.but.clone()), ..place });
        Some(Weighed { rate_here, places: places.collect() })
    }

    pub(super) fn what_if(&self, pid: HomePid, to: NodeId) -> Result<Reply, Failure> {
        let process = self.process_here(pid)?;
        if self.members.get(to).is_none() {
            return Err(self.no_such_node(to));
        }
        let first = self.memory_groups.first_of(process);
        let foreseen = self.thought.brain().foresee(self.brain_time(), first, to);
        let price = self.price_of(process, to);
        let error_s = self.others.pace(self.me(), Some(to)).error_s;
        let told = |foresight| Reply::Forecast(over_link(forecast(foresight), price, error_s));
        foreseen.map(told).map_err(|why| {
            let text = format!("cannot say what would become of {pid} on node {to}: {why}");
            failure(code(&why), text)
        })
    }

    /// The process that runs here under this pid, of its home or of this node.
    fn process_here(&self, pid: HomePid) -> Result<GlobalPid, Failure> {
        if let Some(process) = self.processes.get(&pid) {
            if process.at != self.me() {
                let at = process.at;
                let text = format!(
                    "{pid} runs on node {at}, which knows it best: ask there, \
                     `osmos what-if {pid} NODE`"
                );
                return Err(failure("away", text));
            }
            return Ok(self.global(pid));
        }
        let is_asked = |guest: &&crate::guest::Guest| {
            guest.process.pid == pid || guest.local_pid() == Some(pid.0)
        };
        let guest = self.hosting.here().find(is_asked);
        guest.map(|guest| guest.process).ok_or_else(|| {
            let text =
                format!("process {pid} is not under osmos: `osmos adopt {pid}` puts it there");
            failure("not-managed", text)
        })
    }

    pub(super) fn what_if_node(
        &self,
        cores: u32,
        speed: f64,
        memory_bytes: u64,
    ) -> Result<Reply, Failure> {
        let is_possible = (1..=CORES_MAX).contains(&cores) && speed > 0.0 && speed <= SPEED_MAX;
        if !is_possible {
            let text = format!("there is no node with {cores} cores of speed {speed}");
            return Err(failure("bad-node", text));
        }
        let now = self.brain_time();
        let foreseen = self.thought.brain().foresee_node(now, cores, speed, memory_bytes);
        let foreseen = foreseen.map_err(|why| failure(code(&why), why.to_string()))?;
        Ok(Reply::NodeForecast(NodeForecast {
            cores,
            speed,
            handed_over: foreseen.handed_over.into_iter().map(forecast).collect(),
            runnable_before: foreseen.runnable_before,
            runnable_after: foreseen.runnable_after,
            rate_before: foreseen.rate_before,
            rate_after: foreseen.rate_after,
        }))
    }
}

fn code(why: &Unforeseen) -> &'static str {
    match why {
        Unforeseen::NotHere => "not-here",
        Unforeseen::There(_) => "already-there",
        Unforeseen::Unknown(_) => "unknown-node",
        Unforeseen::Unmeasured => "unmeasured",
    }
}

fn place(guess: Guess) -> Place {
    Place {
        // A node that does not exist has no number.
        node: (guess.node.0 > 0).then_some(guess.node),
        rate: guess.rate,
        runnable: guess.runnable,
        cores: guess.cores,
        speed: guess.speed,
        info_age_s: guess.age.as_secs_f64(),
        but: guess.but,
    }
}

fn forecast(foresight: Foresight) -> Forecast {
    let ms = |span: brain::Span| span.as_secs_f64() * 1e3;
    Forecast {
        pid: foresight.process.pid.0,
        home: foresight.process.home,
        from: foresight.from,
        to: place(foresight.to),
        rate_before: foresight.rate_before,
        freeze_ms: ms(foresight.freeze),
        total_ms: ms(foresight.freeze) + ms(foresight.copy),
        freeze_error_ms: None,
        cpu_s: foresight.cpu.as_secs_f64(),
        payback_ms: foresight.payback.map(ms),
    }
}

/// The same with what is known of the link to that node.
fn over_link(forecast: Forecast, price: Option<Price>, error_s: Option<f64>) -> Forecast {
    let Some(Price { freeze_s, total_s }) = price else { return forecast };
    let freeze_ms = freeze_s * 1e3;
    // It pays a freeze back in proportion to that.
    let payback = |ms: f64| ms / forecast.freeze_ms.max(f64::MIN_POSITIVE) * freeze_ms;
    Forecast {
        freeze_ms,
        total_ms: total_s * 1e3,
        freeze_error_ms: error_s.map(|error_s| error_s * 1e3),
        payback_ms: forecast.payback_ms.map(payback),
        ..forecast
    }
}

fn milli(value: f64) -> u32 {
    // `as` saturates and maps NaN to zero.
    (value * 1e3).round() as u32
}

/// For the process's home, which is where `osmos why` is asked.
pub(super) fn told(weighed: Option<&Weighed>) -> (u32, Vec<PlaceWeighed>) {
    let Some(weighed) = weighed else { return (0, Vec::new()) };
    let places = weighed.places.iter().filter_map(|place| {
        Some(PlaceWeighed {
            node: place.node?,
            rate_milli: milli(place.rate),
            runnable_milli: milli(place.runnable),
            cores: place.cores,
            speed_milli: milli(place.speed),
            age_ms: milli(place.info_age_s),
            but: place.but.clone(),
        })
    });
    (milli(weighed.rate_here), places.take(PLACES_MAX).collect())
}

/// What the node told where the process is a guest.
pub(super) fn heard(rate_milli: u32, places: Vec<PlaceWeighed>) -> Option<Weighed> {
    if places.is_empty() {
        return None;
    }
    let unit = |milli: u32| f64::from(milli) / 1e3;
    let places = places.into_iter().take(PLACES_MAX).map(|told| Place {
        node: Some(told.node),
        rate: unit(told.rate_milli),
        runnable: unit(told.runnable_milli),
        cores: told.cores,
        speed: unit(told.speed_milli),
        info_age_s: unit(told.age_ms),
        but: told.but.map(|but| but.chars().take(BUT_CHARS_MAX).collect()),
    });
    Some(Weighed { rate_here: unit(rate_milli), places: places.collect() })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_a_node_tells_of_places_is_heard_as_it_was_and_no_more_than_allowed() {
        let place = Place {
            node: Some(NodeId(3)),
            rate: 0.5,
            runnable: 1.25,
            cores: 4,
            speed: 1.5,
            info_age_s: 0.125,
            but: Some("x".repeat(5_000)),
        };
        let weighed = Weighed { rate_here: 0.25, places: vec![place.clone(); 20] };
        let (rate_milli, places) = told(Some(&weighed));
        let heard = heard(rate_milli, places).expect("there are places");
        assert_eq!((heard.rate_here, heard.places.len()), (0.25, PLACES_MAX));
        let but = Some("x".repeat(BUT_CHARS_MAX));
        assert_eq!(heard.places[0], Place { but, ..place });
        assert_eq!(told(None), (0, Vec::new()));
    }
}
