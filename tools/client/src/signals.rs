//! Signals as people name them.

use nix::sys::signal::Signal;

/// Those without a name, which the C library and programs give a meaning of their own, are not
/// sent from elsewhere. Daemons refuse them, too.
pub const SIGNAL_MAX: i32 = 31;

/// Checks that it is one that can be sent.
///
/// # Errors
/// It is not, in the words of a refusal.
pub fn check(number: i32) -> Result<i32, String> {
    match number {
        1..=SIGNAL_MAX => Ok(number),
        _ => Err(format!(
            "signal {number} cannot be sent: only those with a name, 1 to {SIGNAL_MAX}; \
             `kill -l` lists them"
        )),
    }
}

/// `TERM`, `sigterm` or `15`, as kill(1) takes them.
///
/// # Errors
/// There is no such signal.
pub fn signal_of(word: &str) -> Result<i32, String> {
    let upper = word.to_uppercase();
    if let Ok(number) = upper.parse::<i32>() {
        return check(number);
    }
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    let signal = name.parse::<Signal>().map(|signal| signal as i32);
    signal.map_err(|_| format!("there is no signal `{word}`: `kill -l` lists them"))
}

/// `SIGTERM`; those without a name of their own by their number.
pub fn signal_name(signal: i32) -> String {
    match Signal::try_from(signal) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_a_name_or_a_number() {
        for (word, number) in
            [("TERM", 15), ("SIGTERM", 15), ("sigkill", 9), ("Usr1", 10), ("31", 31)]
        {
            assert_eq!(signal_of(word), Ok(number), "{word}");
        }
        for word in ["", "0", "32", "34", "65", "-9", "99", "TERMINATE", "SIG", "SIGSIGTERM"] {
            assert!(signal_of(word).is_err(), "{word:?} was accepted");
        }
        assert_eq!([signal_name(15), signal_name(40)], ["SIGTERM", "signal 40"]);
    }
}
