//! Files that programs read. They are made from nothing but arithmetic, so that every run of every
//! machine has the same ones.

/// Name, and what makes it.
type Input = (&'static str, fn() -> Vec<u8>);

const INPUTS: &[Input] = &[
    ("numbers", numbers),
    ("words", words),
    ("sound.wav", sound),
    ("sums.bc", sums),
    ("build.mk", build),
    ("Work.java", java),
];

/// The name as a constant, if there is such an input.
pub fn find(name: &str) -> Option<&'static str> {
    INPUTS.iter().map(|(known, _)| *known).find(|known| *known == name)
}

/// Every input, made.
pub fn all() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    INPUTS.iter().map(|(name, make)| (*name, make()))
}

/// A linear congruential generator: of no quality, but the same everywhere.
pub struct Numbers(u64);

impl Numbers {
    pub fn from_seed(seed: u64) -> Numbers {
        Numbers(seed)
    }

    /// The next number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Three thousand numbers, one a line.
fn numbers() -> Vec<u8> {
    let mut draw = Numbers::from_seed(1);
    let mut text = String::new();
    for _ in 0..3000 {
        text += &format!("{}\n", draw.below(1_000_000));
    }
    text.into_bytes()
}

/// Some 2 MB of lines of words, the short ones more frequent.
fn words() -> Vec<u8> {
    const SYLLABLES: [&str; 16] = [
        "ka", "lo", "mi", "ter", "an", "os", "re", "vu", "si", "pol", "en", "da", "ri", "mo", "xe",
        "u",
    ];
    let mut draw = Numbers::from_seed(2);
    let mut text = String::new();
    while text.len() < 2 << 20 {
        for _ in 0..4 + draw.below(9) {
            for _ in 0..1 + draw.below(4).min(draw.below(4)) {
                text += SYLLABLES[(draw.below(16) * draw.below(16) / 15) as usize];
            }
            text.push(' ');
        }
        text += &format!("{}\n", draw.below(100_000));
    }
    text.into_bytes()
}

/// For make: rules that make files and depend on their times.
fn build() -> Vec<u8> {
    include_bytes!("../programs/build.mk").to_vec()
}

/// For java, which compiles it first.
fn java() -> Vec<u8> {
    include_bytes!("../programs/Work.java").to_vec()
}

/// For bc: two numbers with very many digits, and a recursive function.
fn sums() -> Vec<u8> {
    let program = "scale = 1100\n4 * a(1)\ne(1)\n\
        define f(n) { if (n < 2) { return (n); }; return (f(n - 1) + f(n - 2)); }\nf(20)\n";
    program.as_bytes().to_vec()
}

/// Twelve seconds of stereo sound with 44100 samples a second: tones that glide, and some noise.
fn sound() -> Vec<u8> {
    const RATE: u32 = 44_100;
    let frames = 12 * RATE;
    let size = frames * 4;
    let mut draw = Numbers::from_seed(3);
    let mut wav = Vec::new();
    wav.extend_from_slice(b"RIFF");
    wav.extend_from_slice(&(36 + size).to_le_bytes());
    wav.extend_from_slice(b"WAVEfmt \x10\0\0\0\x01\0\x02\0");
    wav.extend_from_slice(&RATE.to_le_bytes());
    wav.extend_from_slice(&(RATE * 4).to_le_bytes());
    wav.extend_from_slice(b"\x04\0\x10\0data");
    wav.extend_from_slice(&size.to_le_bytes());
    for frame in 0..frames {
        let seconds = f64::from(frame) / f64::from(RATE);
        for glide in [30.0, 47.0] {
            let tone = (seconds * (440.0 + glide * seconds) * std::f64::consts::TAU).sin();
            let noise = draw.below(600) as i16 - 300;
            wav.extend_from_slice(&((tone * 20_000.0) as i16 + noise).to_le_bytes());
        }
    }
    wav
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn inputs_are_the_same_every_time() {
        for ((name, first), (_, second)) in all().zip(all()) {
            assert!(first == second, "{name}");
            assert!(!first.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_sound_says_its_own_size() {
        let wav = sound();
        let said = u32::from_le_bytes(wav[40..44].try_into().unwrap());
        assert_eq!(said as usize, wav.len() - 44);
    }
}
