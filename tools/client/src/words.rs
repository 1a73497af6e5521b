//! How names and numbers look to people, the same in every tool.
//!
//! Everything shown may come from another user's process or another node, so control characters
//! never reach the terminal.

use std::fmt::Write as _;

/// Text without control characters and other ways to steer a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_invisible(c) { '?' } else { c }).collect()
}

/// Characters that reorder or hide what stands beside them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
}

/// `1 guest`, `2 guests`.
pub fn counted(count: impl Into<u64>, one: &str, many: &str) -> String {
    match count.into() {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// `1536` as `1.5K`: three significant figures at most, powers of 1024.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 9.95 {
        format!("{value:.0}{}", UNITS[unit])
    } else {
        format!("{value:.1}{}", UNITS[unit])
    }
}

/// Seconds as `7.3s`, `2m05s` or `3h12m`.
pub fn seconds(value: f64) -> String {
    let value = value.max(0.0);
    let whole = if value < 59.95 { value as u64 } else { value.round() as u64 };
    match whole {
        0..60 => format!("{value:.1}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        _ => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
    }
}

/// A bar of `columns` characters, filled to `share` of them in steps of an eighth.
pub fn bar(share: f64, columns: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * columns as f64 * 8.0).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    if eighths / 8 < columns {
        text.push(EIGHTHS[eighths % 8]);
    }
    let rest = columns.saturating_sub(text.chars().count());
    let _ = write!(text, "{:rest$}", "");
    text
}

/// Seconds since the epoch as the time of day, UTC: `14:03:27.120`.
pub fn clock(epoch_s: f64) -> String {
    let ms = (epoch_s.max(0.0) * 1000.0).round() as u64;
    let second = ms / 1000;
    format!("{:02}:{:02}:{:02}.{:03}", second / 3600 % 24, second / 60 % 60, second % 60, ms % 1000)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn nothing_shown_can_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\nc\u{202e}d\u{9b}"), "a?[2Jb?c?d?");
        assert_eq!(printable("größe"), "größe");
    }

    #[test]
    fn sizes_have_at_most_three_figures() {
        let shown: Vec<String> =
            [0, 999, 1000, 1536, 10 << 20, 123_456_789, u64::MAX].map(bytes).into();
        assert_eq!(shown, ["0", "999", "1.0K", "1.5K", "10M", "118M", "16384P"]);
    }

    #[test]
    fn spans_of_time_stay_short() {
        let shown: Vec<String> = [-1.0, 0.04, 59.94, 60.0, 3599.0, 11_520.0].map(seconds).into();
        assert_eq!(shown, ["0.0s", "0.0s", "59.9s", "1m00s", "59m59s", "3h12m"]);
    }

    #[test]
    fn a_bar_has_its_width_whatever_the_share() {
        for share in [-1.0, 0.0, 0.01, 0.33, 0.999, 1.0, 7.0, f64::NAN] {
            assert_eq!(bar(share, 10).chars().count(), 10, "share {share}");
        }
        assert_eq!(bar(0.5, 4), "██  ");
        assert_eq!(bar(0.5, 3), "█▌ ");
    }

    #[test]
    fn the_clock_shows_milliseconds() {
        assert_eq!(clock(50_607.12), "14:03:27.120");
        assert_eq!(clock(86_400.0), "00:00:00.000");
    }
}
