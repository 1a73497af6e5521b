//! The thirteen tracks: music-like sound made from arithmetic, the same on every machine.
//!
//! A few detuned tones under a slow envelope, with a little noise, so that an encoder finds
//! structure but never enough of it. Integers only: floating point may round differently elsewhere.

use std::io::{self, Write};

const SAMPLES_PER_S: u32 = 44_100;
const CHANNELS: u16 = 2;
const BYTES_PER_SAMPLE: u16 = 2;
const HEAD_BYTES: u32 = 44;
/// One period of a sine in steps; a power of two, so that phases wrap by themselves.
const SINE_STEPS: usize = 1024;
const TONES: usize = 5;

/// Writes track `number` as a WAV file of `seconds` (in CD quality: 176,400 bytes each).
pub fn write_track(out: &mut impl Write, number: u32, samples: u32) -> io::Result<()> {
    write_head(out, samples)?;
    let sine = sine_table();
    let mut track = Track::new(number);
    let mut block = Vec::with_capacity(8192 * 4);
    for _ in 0..samples {
        for sample in track.next_frame(&sine) {
            block.extend_from_slice(&sample.to_le_bytes());
        }
        if block.len() >= 8192 * 4 {
            out.write_all(&block)?;
            block.clear();
        }
    }
    out.write_all(&block)
}

/// Samples for each channel of a file of about `bytes`.
pub fn samples_for(bytes: u64) -> u32 {
    let frame = u64::from(CHANNELS * BYTES_PER_SAMPLE);
    u32::try_from((bytes.saturating_sub(u64::from(HEAD_BYTES)) / frame).max(1))
        .unwrap_or(u32::MAX / 8)
}

fn write_head(out: &mut impl Write, samples: u32) -> io::Result<()> {
    let frame = CHANNELS * BYTES_PER_SAMPLE;
    let data_bytes = samples * u32::from(frame);
    out.write_all(b"RIFF")?;
    out.write_all(&(data_bytes + HEAD_BYTES - 8).to_le_bytes())?;
    out.write_all(b"WAVEfmt ")?;
    out.write_all(&16u32.to_le_bytes())?;
    out.write_all(&1u16.to_le_bytes())?;
    out.write_all(&CHANNELS.to_le_bytes())?;
    out.write_all(&SAMPLES_PER_S.to_le_bytes())?;
    out.write_all(&(SAMPLES_PER_S * u32::from(frame)).to_le_bytes())?;
    out.write_all(&frame.to_le_bytes())?;
    out.write_all(&(BYTES_PER_SAMPLE * 8).to_le_bytes())?;
    out.write_all(b"data")?;
    out.write_all(&data_bytes.to_le_bytes())
}

/// Parabolas in place of a sine: exact in integers, and rich enough in overtones.
fn sine_table() -> Vec<i32> {
    let half = SINE_STEPS as i64 / 2;
    (0..SINE_STEPS as i64)
        .map(|step| {
            let within = step % half;
            let height = 4 * within * (half - within) * 32_767 / (half * half);
            (if step < half { height } else { -height }) as i32
        })
        .collect()
}

struct Track {
    phases: [u32; TONES],
    steps: [u32; TONES],
    noise: u64,
    frame: u64,
}

impl Track {
    fn new(number: u32) -> Track {
        let mut noise = 0x9e37_79b9_7f4a_7c15 ^ u64::from(number);
        let mut steps = [0; TONES];
        for (tone, step) in steps.iter_mut().enumerate() {
            // About 55 Hz to 2 kHz, as a fraction of 2^32 for each sample.
            let hertz = 55 * (tone as u64 + 1) * (tone as u64 + 2) + random(&mut noise) % 60;
            *step = ((hertz << 32) / u64::from(SAMPLES_PER_S)) as u32;
        }
        Track { phases: [0; TONES], steps, noise, frame: 0 }
    }

    /// The next sample of each channel.
    fn next_frame(&mut self, sine: &[i32]) -> [i16; 2] {
        let mut sides = [0i64; 2];
        for tone in 0..TONES {
            self.phases[tone] = self.phases[tone].wrapping_add(self.steps[tone]);
            let value = i64::from(sine[self.phases[tone] as usize >> 22]);
            // Each tone swells and fades in its own time and stands at its own place.
            let swell = self.frame * (tone as u64 + 2) / 64;
            let envelope = i64::from(sine[(swell as usize / 16) % SINE_STEPS].abs());
            let part = (value * envelope) >> 18;
            sides[0] += part * (TONES - tone) as i64 / TONES as i64;
            sides[1] += part * (tone + 1) as i64 / TONES as i64;
        }
        self.frame += 1;
        sides.map(|side| {
            let hiss = (random(&mut self.noise) % 257) as i64 - 128;
            (side + hiss).clamp(i64::from(i16::MIN), i64::from(i16::MAX)) as i16
        })
    }
}

/// xorshift64*: no quality needed but that it is the same everywhere.
fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(number: u32, samples: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_track(&mut bytes, number, samples).expect("memory takes it");
        bytes
    }

    #[test]
    fn a_track_is_a_whole_wav_file() {
        let bytes = track(1, 10_000);
        assert_eq!(bytes.len(), 44 + 40_000);
        assert_eq!(&bytes[..4], b"RIFF");
        assert_eq!(&bytes[8..16], b"WAVEfmt ");
        assert_eq!(u32::from_le_bytes(bytes[4..8].try_into().unwrap()), 40_036);
        assert_eq!(u32::from_le_bytes(bytes[40..44].try_into().unwrap()), 40_000);
    }

    #[test]
    fn tracks_are_the_same_each_time_and_differ_from_each_other() {
        assert_eq!(track(3, 5000), track(3, 5000));
        assert_ne!(track(3, 5000), track(4, 5000));
    }

    #[test]
    fn there_is_sound_and_it_is_not_clipped() {
        let bytes = track(7, 100_000);
        let samples: Vec<i16> =
            bytes[44..].chunks(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
        let loudest = samples.iter().map(|sample| sample.unsigned_abs()).max().unwrap();
        assert!((2_000..32_000).contains(&loudest), "loudest sample {loudest}");
    }

    #[test]
    fn sizes_become_samples() {
        assert_eq!(samples_for(44 + 4000), 1000);
        assert_eq!(samples_for(0), 1);
    }
}
