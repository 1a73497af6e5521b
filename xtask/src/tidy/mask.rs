//! Source text with everything blanked that is not code, so that rules do not stumble over a brace
//! in a string or a word in a comment. Lines and columns stay where they are.

/// The code of a Rust source, and its comments, each with the other blanked.
#[derive(Debug)]
pub struct Masked {
    pub code: String,
    pub comments: String,
}

pub fn mask(source: &str) -> Masked {
    let chars: Vec<char> = source.chars().collect();
    let mut masked = Masked { code: String::new(), comments: String::new() };
    let mut at = 0;
    while at < chars.len() {
        let end = match piece(&chars, at) {
            Piece::Comment(end) => {
                masked.put(&chars[at..end], false);
                end
            }
            Piece::Literal(end) => {
                // The quotes stay, so that it is still seen where something was.
                masked.put(&['"'], true);
                masked.blank(&chars[at + 1..end]);
                end
            }
            Piece::Code => {
                masked.put(&chars[at..=at], true);
                at + 1
            }
        };
        at = end;
    }
    masked
}

impl Masked {
    fn put(&mut self, chars: &[char], is_code: bool) {
        for char in chars {
            let blank = if char.is_whitespace() { *char } else { ' ' };
            self.code.push(if is_code { *char } else { blank });
            self.comments.push(if is_code { blank } else { *char });
        }
    }

    fn blank(&mut self, chars: &[char]) {
        for char in chars {
            let blank = if char.is_whitespace() { *char } else { ' ' };
            self.code.push(blank);
            self.comments.push(blank);
        }
    }
}

/// What begins at a place, and where it ends if it is not code.
enum Piece {
    Comment(usize),
    Literal(usize),
    Code,
}

fn piece(chars: &[char], at: usize) -> Piece {
    let next = |offset: usize| chars.get(at + offset).copied().unwrap_or('\0');
    match (chars[at], next(1)) {
        ('/', '/') => Piece::Comment(line_end(chars, at)),
        ('/', '*') => Piece::Comment(block_end(chars, at)),
        ('"', _) => Piece::Literal(string_end(chars, at)),
        ('r', '"' | '#') if !follows_word(chars, at) => match raw_string_end(chars, at) {
            Some(end) => Piece::Literal(end),
            None => Piece::Code,
        },
        ('\'', '\\') => Piece::Literal(char_end(chars, at)),
        // Otherwise a lifetime.
        ('\'', _) if next(2) == '\'' => Piece::Literal(at + 3),
        _ => Piece::Code,
    }
}

/// `br"..."` is a raw string; `for r#type` and `var"` are not.
fn follows_word(chars: &[char], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| chars[before]);
    before.is_some_and(|char| (char.is_alphanumeric() || char == '_') && char != 'b')
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|char| *char == '\n').map_or(chars.len(), |length| at + length)
}

fn block_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut here = at;
    while here < chars.len() {
        match (chars[here], chars.get(here + 1)) {
            ('/', Some('*')) => depth += 1,
            ('*', Some('/')) => depth -= 1,
            _ => {
                here += 1;
                continue;
            }
        }
        here += 2;
        if depth == 0 {
            break;
        }
    }
    here.min(chars.len())
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut here = at + 1;
    while here < chars.len() && chars[here] != '"' {
        here += if chars[here] == '\\' { 2 } else { 1 };
    }
    (here + 1).min(chars.len())
}

fn char_end(chars: &[char], at: usize) -> usize {
    let close = chars.iter().skip(at + 3).position(|char| *char == '\'');
    close.map_or(chars.len(), |length| at + 3 + length + 1)
}

fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|char| **char == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return None;
    }
    let mut here = at + 2 + hashes;
    while here < chars.len() {
        let closes = chars[here] == '"'
            && chars[here + 1..].iter().take(hashes).filter(|char| **char == '#').count() == hashes;
        here += 1;
        if closes {
            return Some(here + hashes);
        }
    }
    Some(chars.len())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn strings_and_comments_are_blanked_in_place() {
        let source = "let a = \"{ fn }\"; // } it\nb('{', '\\'', 'x); /* { /* } */ */ c";
        let masked = mask(source);
        assert_eq!(masked.code.len(), source.len());
        assert_eq!(masked.code.matches(['{', '}']).count(), 0, "{}", masked.code);
        assert!(masked.code.contains("'x);"), "a lifetime is code: {}", masked.code);
        assert!(masked.code.ends_with(" c"), "{}", masked.code);
        assert!(masked.comments.contains("} it\n"), "{}", masked.comments);
        assert!(!masked.comments.contains("fn"), "{}", masked.comments);
    }

    #[test]
    fn raw_strings_end_where_their_hashes_say() {
        let code = mask("r#\"a\" { \"#; r\"\\\"; br\"{\"; bar\"{\"; r#type { }").code;
        assert_eq!(code.matches('{').count(), 1, "{code}");
        assert!(code.contains("r#type { }"), "{code}");
    }

    #[test]
    fn lines_stay_where_they_are() {
        let code = mask("\"one\ntwo\"\n/* three\nfour */\nlast").code;
        assert_eq!(code.lines().nth(4), Some("last"));
    }
}
