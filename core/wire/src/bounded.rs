//! Decoding with bounds: lists that end where they are too long, before memory is taken for more,
//! and texts of others that are shown to people.
//!
//! One byte of a message may stand for many in memory (an empty string in a list is one byte, and
//! twenty-four where it is kept), so that the size of a message alone bounds too little.

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// What a line for people may have of characters.
pub const LINE_CHARS_MAX: usize = 500;
/// A stable word of a reason.
pub const WORD_CHARS_MAX: usize = 64;

/// A list of at most `MAX` elements.
pub fn list<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(List::<T, MAX>(PhantomData))
}

struct List<T, const MAX: usize>(PhantomData<T>);

/// Elements for which room is made before any has come.
const ROOM_FIRST: usize = 64;

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
        let announced = elements.size_hint().unwrap_or(0);
        if announced > MAX {
            return Err(de::Error::invalid_length(announced, &self));
        }
        let mut list = Vec::with_capacity(announced.min(ROOM_FIRST));
        while let Some(element) = elements.next_element()? {
            if list.len() == MAX {
                return Err(de::Error::invalid_length(MAX + 1, &self));
            }
            list.push(element);
        }
        Ok(list)
    }
}

/// Text that somebody else wrote and that people will read: one line, cut to `MAX` characters,
/// without what a terminal would obey.
pub fn line<'de, D, const MAX: usize>(deserializer: D) -> Result<String, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(plain(&String::deserialize(deserializer)?, MAX))
}

/// The same, where it may be missing.
pub fn optional_line<'de, D, const MAX: usize>(deserializer: D) -> Result<Option<String>, D::Error>
where
    D: Deserializer<'de>,
{
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map(|text| plain(&text, MAX)))
}

fn plain(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use serde::Serialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Told {
        #[serde(deserialize_with = "list::<_, _, 3>")]
        list: Vec<u8>,
        #[serde(deserialize_with = "line::<_, 5>")]
        text: String,
    }

    fn told(list: Vec<u8>, text: &str) -> Result<Told, postcard::Error> {
        let text = text.to_owned();
        postcard::from_bytes(&postcard::to_stdvec(&Told { list, text }).unwrap())
    }

    #[test]
    fn a_list_ends_where_it_is_too_long() {
        assert_eq!(told(vec![1, 2, 3], "").unwrap().list, [1, 2, 3]);
        assert!(told(vec![1; 4], "").is_err());
        let json = |text: &str| serde_json::from_str::<Told>(text);
        assert!(json(r#"{"list":[1,2,3],"text":""}"#).is_ok());
        assert!(json(r#"{"list":[1,2,3,4],"text":""}"#).is_err(), "its length is not announced");
    }

    #[test]
    fn a_text_is_short_and_does_nothing_to_a_terminal() {
        assert_eq!(told(vec![], "\u{1b}[2Jübrig").unwrap().text, "?[2Jü");
        assert_eq!(told(vec![], "a\nb\u{9b}").unwrap().text, "a?b?");
    }
}
