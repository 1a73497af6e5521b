//! What a supervisor that has lost its daemon and the next one say to each other first: the same in
//! all versions of Osmos.

const GREETING_MAGIC: &[u8; 6] = b"OSMOS\x02";
/// Length of an encoded [`Greeting`], bytes.
pub const GREETING_BYTES: usize = 8;

/// The first packet of a supervisor that has lost its daemon. Who it is the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    pub version: u16,
}

impl Greeting {
    pub fn encode(self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..6].copy_from_slice(GREETING_MAGIC);
        bytes[6..].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// None if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Greeting> {
        let version = bytes.strip_prefix(GREETING_MAGIC)?.try_into().ok()?;
        Some(Greeting { version: u16::from_le_bytes(version) })
    }
}

/// What a daemon answers to a [`Greeting`], in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// It is known, and of the same version: all goes on as before.
    Stay,
    /// It is not: it brings, or sends, its process home, and ends.
    GoHome,
}

impl Welcome {
    pub fn encode(self) -> [u8; 1] {
        match self {
            Welcome::Stay => *b"S",
            Welcome::GoHome => *b"H",
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Welcome> {
        match bytes {
            b"S" => Some(Welcome::Stay),
            b"H" => Some(Welcome::GoHome),
            _ => None,
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// They meet those of all other versions: neither may ever change.
    #[test]
    fn greetings_are_the_same_in_all_versions() {
        let greeting = Greeting { version: 0x0102 };
        assert_eq!(greeting.encode(), *b"OSMOS\x02\x02\x01");
        assert_eq!(Greeting::decode(&greeting.encode()), Some(greeting));
        for wrong in [&b""[..], b"OSMOS\x02", b"OSMOS\x01\x02\x01", b"OSMOS\x02\x02\x01\0"] {
            assert_eq!(Greeting::decode(wrong), None);
        }
        assert_eq!((Welcome::Stay.encode(), Welcome::GoHome.encode()), (*b"S", *b"H"));
        for welcome in [Welcome::Stay, Welcome::GoHome] {
            assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
        }
        assert_eq!(Welcome::decode(b""), None);
    }
}
