//! Values of options that are bounded wherever they come from: read here, checked by their types.

use std::num::NonZeroU32;
use std::time::Duration;
use wire::freeze_budget::FreezeBudget;
use wire::move_limits::{BadBandwidth, Bandwidth};

/// Whole milliseconds.
pub fn freeze_budget(word: &str) -> Result<FreezeBudget, String> {
    let ms = word.parse::<u32>().map_err(|_| format!("`{word}` is no number of milliseconds"))?;
    FreezeBudget::try_from(ms).map_err(|error| error.to_string())
}

/// `512M`, `2G`, or bytes.
pub fn size(word: &str) -> Result<u64, String> {
    let complaint = || format!("`{word}` is no size: a number of bytes, or one with K, M, G or T");
    let (digits, unit) = match word.char_indices().last() {
        Some((at, letter)) if letter.is_ascii_alphabetic() => (&word[..at], Some(letter)),
        _ => (word, None),
    };
    let shift = match unit.map(|unit| unit.to_ascii_uppercase()) {
        None => 0,
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        Some(_) => return Err(complaint()),
    };
    let number: u64 = digits.parse().map_err(|_| complaint())?;
    number.checked_mul(1 << shift).ok_or_else(complaint)
}

/// Of a core.
pub fn speed(word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(speed) if speed.is_finite() && speed > 0.0 => Ok(speed),
        _ => Err(format!("`{word}` is no speed; a number above 0, 1 being the reference")),
    }
}

/// Seconds between two pictures.
pub fn delay(word: &str) -> Result<Duration, String> {
    const FROM_S: f64 = 0.1;
    const TO_S: f64 = 3600.0;
    let complaint = || format!("`{word}` is no number of seconds from {FROM_S} to {TO_S}");
    let seconds = word.parse::<f64>().map_err(|_| complaint())?;
    match (FROM_S..=TO_S).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(complaint()),
    }
}

/// `500Mbit`.
pub fn bandwidth(word: &str) -> Result<Bandwidth, String> {
    word.parse().map_err(|error: BadBandwidth| error.to_string())
}

/// Of a move, which cannot do without any.
pub fn processors(word: &str) -> Result<NonZeroU32, String> {
    word.parse().map_err(|_| format!("`{word}` is no number of processors from 1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::Parser;

    #[test]
    fn a_delay_is_from_a_tenth_of_a_second_to_an_hour() {
        assert_eq!(delay("0.1"), Ok(Duration::from_millis(100)));
        assert_eq!(delay("3600"), Ok(Duration::from_secs(3600)));
        for word in ["0.09", "0", "-1", "inf", "NaN", "1s", "", "3601"] {
            assert!(delay(word).is_err(), "{word:?} was accepted");
        }
    }

    #[test]
    fn a_freeze_budget_is_from_a_millisecond_to_a_minute() {
        assert_eq!(freeze_budget("20"), Ok(FreezeBudget::DEFAULT));
        for word in ["0", "60001", "-1", "2.5", "5ms", ""] {
            assert!(freeze_budget(word).is_err(), "{word:?} was accepted");
        }
        for line in ["run --freeze-budget 0 -- true", "migrate 1 2 --freeze-budget 0"] {
            let words = ["osmos"].into_iter().chain(line.split(' '));
            let error = Arguments::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains("1 to 60000 ms, not 0"), "{error}");
        }
    }

    #[test]
    fn a_size_is_a_number_with_or_without_a_unit() {
        assert_eq!(
            ["7", "2k", "512M", "3G"].map(|w| size(w).unwrap()),
            [7, 2 << 10, 512 << 20, 3 << 30]
        );
        for word in ["", "G", "1.5G", "-1", "1X", "99999999999T"] {
            assert!(size(word).is_err(), "{word:?} was accepted");
        }
    }
}
