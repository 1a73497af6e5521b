//! How a program is told to leave out features of the processor: by the environment variables that
//! libraries and runtimes have for that. Only for what is to be left out, and what the user has set
//! himself stays.
//!
//! Java is not told: it repeats its variable on standard error.
//!
//! The loader binds all functions at the start: when it does so as they are called it saves and
//! restores registers by XSAVE, in as much room as the processor wanted where the program started,
//! and a call may be under way when the program moves to one that wants more, or less.

use std::ffi::OsString;
use wire::processor::place_of;

/// Names that glibc knows, in lower case: those of 2.33 and later. Before, `_Usable` was appended
/// to most; what a version does not know it ignores.
const GLIBC: &[&str] = &[
    "avx", "avx2", "avx512bw", "avx512cd", "avx512dq", "avx512er", "avx512f", "avx512pf",
    "avx512vl", "bmi1", "bmi2", "fma", "fma4", "lzcnt", "movbe", "popcnt", "rtm", "sse4_1",
    "sse4_2", "ssse3", "xsave", "xsavec",
];
/// Names that every version of Go knows: it complains about others.
const GO: &[(&str, &str)] = &[
    ("adx", "adx"),
    ("aes", "aes"),
    ("avx", "avx"),
    ("avx2", "avx2"),
    ("bmi1", "bmi1"),
    ("bmi2", "bmi2"),
    ("fma", "fma"),
    ("pclmulqdq", "pclmulqdq"),
    ("popcnt", "popcnt"),
    ("sse3", "sse3"),
    ("sse4_1", "sse41"),
    ("sse4_2", "sse42"),
    ("ssse3", "ssse3"),
];

/// The variables to set for a program that is to do without `left_out`; `current` tells what the
/// user has set.
pub fn variables(
    left_out: &[String],
    current: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let is_out = |name: &str| left_out.iter().any(|out| out == name);
    let mut set: Vec<(&'static str, OsString)> = Vec::new();
    let glibc: Vec<&str> = GLIBC.iter().copied().filter(|name| is_out(name)).collect();
    if !left_out.is_empty() && current("LD_BIND_NOW").is_none() {
        set.push(("LD_BIND_NOW", "1".into()));
    }
    if !glibc.is_empty() {
        let each = glibc.iter().map(|name| name.to_ascii_uppercase());
        let words: Vec<String> = each.map(|name| format!("-{name},-{name}_Usable")).collect();
        let tunable = format!("glibc.cpu.hwcaps={}", words.join(","));
        let own = current("GLIBC_TUNABLES");
        set.extend(appended("GLIBC_TUNABLES", own, ":", "glibc.cpu.hwcaps", tunable));
    }
    let go: Vec<String> = GO
        .iter()
        .filter(|(name, _)| is_out(name))
        .map(|(_, name)| format!("cpu.{name}=off"))
        .collect();
    if !go.is_empty() {
        set.extend(appended("GODEBUG", current("GODEBUG"), ",", "cpu.", go.join(",")));
    }
    let others = [
        ("OPENSSL_ia32cap", openssl(left_out)),
        ("OPENBLAS_CORETYPE", openblas(left_out)),
        ("MKL_ENABLE_INSTRUCTIONS", mkl(left_out)),
    ];
    for (name, value) in others {
        if let Some(value) = value.filter(|_| current(name).is_none()) {
            set.push((name, value.into()));
        }
    }
    set
}

/// A variable that is a list, with one more in it; unless the user has said something about
/// `topic`.
fn appended(
    name: &'static str,
    own: Option<OsString>,
    separator: &str,
    topic: &str,
    more: String,
) -> Option<(&'static str, OsString)> {
    let Some(own) = own.filter(|own| !own.is_empty()) else { return Some((name, more.into())) };
    if own.to_string_lossy().contains(topic) {
        return None;
    }
    let mut value = own;
    value.push(separator);
    value.push(more);
    Some((name, value))
}

/// Bits of CPUID to clear: leaf 1 (edx, then ecx), and leaf 7 (ebx, then ecx).
fn openssl(left_out: &[String]) -> Option<String> {
    let mut vectors = [0u64; 2];
    for (leaf, register, bit) in left_out.iter().filter_map(|name| place_of(name)) {
        match (leaf, register) {
            (1, "edx") => vectors[0] |= 1 << bit,
            (1, "ecx") => vectors[0] |= 1 << (bit + 32),
            (7, "ebx") => vectors[1] |= 1 << bit,
            (7, "ecx") => vectors[1] |= 1 << (bit + 32),
            _ => {}
        }
    }
    let [first, second] = vectors;
    (vectors != [0, 0]).then(|| format!("~{first:#x}:~{second:#x}"))
}

/// The largest set of instructions that is left of those that libraries choose from.
fn level(left_out: &[String]) -> Option<usize> {
    const LEVELS: [&[&str]; 3] = [&["sse4_2", "ssse3"], &["avx", "xsave"], &["avx2", "fma"]];
    let is_out = |name: &&str| left_out.iter().any(|out| out == name);
    let lower = LEVELS.iter().position(|level| level.iter().any(is_out));
    let has_less_avx512 = left_out.iter().any(|name| name.starts_with("avx512"));
    lower.or(has_less_avx512.then_some(LEVELS.len()))
}

fn openblas(left_out: &[String]) -> Option<String> {
    let kernels = ["Prescott", "Nehalem", "Sandybridge", "Haswell"];
    level(left_out).map(|level| kernels[level].to_owned())
}

fn mkl(left_out: &[String]) -> Option<String> {
    let sets = ["SSE4_2", "SSE4_2", "AVX", "AVX2"];
    level(left_out).map(|level| sets[level].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(left_out: &[&str], own: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let left_out: Vec<String> = left_out.iter().map(|name| (*name).to_owned()).collect();
        let current = |name: &str| {
            let found = own.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let variables = variables(&left_out, current).into_iter();
        variables.map(|(name, value)| (name, value.into_string().unwrap())).collect()
    }

    #[test]
    fn nothing_is_set_where_nothing_differs_or_no_library_has_a_word_for_it() {
        assert_eq!(set(&[], &[]), []);
        assert_eq!(set(&["sha512"], &[]), [("LD_BIND_NOW", "1".to_owned())]);
    }

    #[test]
    fn each_library_is_told_in_its_own_words() {
        let told = set(&["avx2", "vaes", "rdrand"], &[]);
        let expected = [
            ("LD_BIND_NOW", "1"),
            ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable"),
            ("GODEBUG", "cpu.avx2=off"),
            ("OPENSSL_ia32cap", "~0x4000000000000000:~0x20000000020"),
            ("OPENBLAS_CORETYPE", "Sandybridge"),
            ("MKL_ENABLE_INSTRUCTIONS", "AVX"),
        ];
        assert_eq!(told, expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn what_the_user_has_set_stays() {
        let own = [
            ("LD_BIND_NOW", ""),
            ("GLIBC_TUNABLES", "glibc.malloc.check=3"),
            ("GODEBUG", "cpu.avx=off"),
            ("OPENBLAS_CORETYPE", "Zen"),
        ];
        let told = set(&["avx512f"], &own);
        let tunables = "glibc.malloc.check=3:glibc.cpu.hwcaps=-AVX512F,-AVX512F_Usable";
        assert_eq!(told[0], ("GLIBC_TUNABLES", tunables.to_owned()));
        assert!(
            told.iter()
                .all(|(name, _)| !["LD_BIND_NOW", "GODEBUG", "OPENBLAS_CORETYPE"].contains(name))
        );
        let own = [("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-ERMS")];
        assert!(set(&["avx512f"], &own).iter().all(|(name, _)| *name != "GLIBC_TUNABLES"));
    }
}
