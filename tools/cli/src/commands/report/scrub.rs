//! Takes out what looks like a key. Pure.
//!
//! Nothing that is put into a report should have one, so this is a second look. Keys and tokens of
//! Osmos are 32 random bytes and more, written in base64 or hexadecimal; words of people and
//! programs that are as long have no such mixture.

/// 32 bytes in base64 have 43.
const BASE64_CHARS_MIN: usize = 40;
/// Half of 32 bytes: also what a key was cut to.
const HEX_CHARS_MIN: usize = 32;

/// The text without them, and how many there were.
pub fn scrub(text: &str) -> (String, usize) {
    let mut clean = String::with_capacity(text.len());
    let mut removed = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_of_key(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        if looks_like_key(word) {
            clean += &format!("[{} characters removed]", word.len());
            removed += 1;
        } else {
            clean += word;
        }
        let other = behind.find(is_of_key).unwrap_or(behind.len());
        clean += &behind[..other];
        rest = &behind[other..];
    }
    (clean, removed)
}

/// Of base64 in both alphabets, but for the slash: it is in every path.
fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '_' | '-')
}

fn looks_like_key(word: &str) -> bool {
    let has = |is: fn(&u8) -> bool| word.bytes().any(|byte| is(&byte));
    let (upper, lower) = (has(u8::is_ascii_uppercase), has(u8::is_ascii_lowercase));
    let digit = has(u8::is_ascii_digit);
    let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_base64 = word.len() >= BASE64_CHARS_MIN && upper && lower && digit;
    is_base64 || (is_hex && word.len() >= HEX_CHARS_MIN && digit && (upper || lower))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn keys_go_and_all_else_stays() {
        let token = "AQIDx_".repeat(8) + "9";
        let hex = "0123456789abcdef".repeat(2);
        let text = format!("join \"{token}\" größe {hex}\n");
        let (clean, removed) = scrub(&text);
        assert_eq!(clean, "join \"[49 characters removed]\" größe [32 characters removed]\n");
        assert_eq!(removed, 2);
        for text in [
            "",
            "/usr/lib/x86_64-linux-gnu/a-directory-with-a-long-Name/of_2_and_more_words",
            "{\"move_bandwidth_bits_per_s\":1234567890123456789012345678901234567890}",
            "the_name_of_a_test_that_is_longer_than_most_words_of_people",
            "2026-11-28T21:13:37.123456Z  INFO node::daemon: node 2 joined from 10.0.0.2:7780",
        ] {
            assert_eq!(scrub(text), (text.to_owned(), 0));
        }
    }
}
