//! What ranks have written, on the launcher's own streams or in a log: a thread of its own writes,
//! because a terminal may take its time, and says how much there is room for again.
//!
//! Lines of several ranks are not mixed: what is not a line yet is kept until it is one, up to
//! [`LINE_BYTES_MAX`].

use crate::launching::Event;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use wire::jobs::Stream;

/// A longer line is broken.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A piece of a stream; an empty one is its end.
pub struct Piece {
    /// The place of its node.
    pub place: usize,
    pub rank: u32,
    pub stream: Stream,
    pub bytes: Vec<u8>,
}

pub struct Output {
    /// None: nothing comes any more.
    pieces: Option<Sender<Piece>>,
}

impl Output {
    /// `log`: kept there, labelled in any case.
    ///
    /// # Errors
    /// There is no thread to be had, or no stream.
    pub fn start(
        log: Option<File>,
        size: u32,
        labels: bool,
        events: SyncSender<Event>,
    ) -> io::Result<Output> {
        let ends = match log {
            Some(log) => [log.try_clone()?, log],
            None => [
                File::from(io::stdout().as_fd().try_clone_to_owned()?),
                File::from(io::stderr().as_fd().try_clone_to_owned()?),
            ],
        };
        let (pieces, heard) = channel();
        let lines = Lines::new(size, labels);
        std::thread::Builder::new()
            .name("output".into())
            .spawn(move || write_all(&heard, lines, ends, &events))?;
        Ok(Output { pieces: Some(pieces) })
    }

    pub fn write(&self, piece: Piece) {
        if let Some(pieces) = &self.pieces {
            // Where nobody writes any more that was said already.
            let _ = pieces.send(piece);
        }
    }

    /// Nothing comes any more; [`Event::AllWritten`] says when all of it is written.
    pub fn close(&mut self) {
        self.pieces = None;
    }
}

fn write_all(
    pieces: &Receiver<Piece>,
    mut lines: Lines,
    mut ends: [File; 2],
    events: &SyncSender<Event>,
) {
    for Piece { place, rank, stream, bytes } in pieces {
        let end = match stream {
            Stream::Output => &mut ends[0],
            Stream::Error => &mut ends[1],
        };
        let text = lines.take((rank, stream), &bytes);
        if let Err(error) = end.write_all(&text) {
            let _ = events.send(Event::CannotWrite(error));
            return;
        }
        let written = Event::Written { place, rank, stream, bytes: bytes.len() as u32 };
        if !bytes.is_empty() && events.send(written).is_err() {
            return;
        }
    }
    // Whoever is to hear it may have waited long enough.
    let _ = events.send(Event::AllWritten);
}

/// Makes lines of pieces.
struct Lines {
    /// Columns of a rank's number; none: no labels.
    digits: Option<usize>,
    /// There is one rank: what it writes is shown as it is.
    is_alone: bool,
    begun: HashMap<(u32, Stream), Vec<u8>>,
}

impl Lines {
    fn new(size: u32, labels: bool) -> Lines {
        let digits = labels.then(|| size.saturating_sub(1).to_string().len());
        Lines { digits, is_alone: size == 1 && !labels, begun: HashMap::new() }
    }

    /// What is to be written now that so much has come; nothing is the end of the stream.
    fn take(&mut self, of: (u32, Stream), bytes: &[u8]) -> Vec<u8> {
        if self.is_alone {
            return bytes.to_vec();
        }
        let mut begun = self.begun.remove(&of).unwrap_or_default();
        begun.extend(bytes);
        let mut text = Vec::with_capacity(begun.len() + 16);
        let mut rest = begun.as_slice();
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            self.line(&mut text, of.0, &rest[..=at]);
            rest = &rest[at + 1..];
        }
        if bytes.is_empty() || rest.len() > LINE_BYTES_MAX {
            if !rest.is_empty() {
                self.line(&mut text, of.0, rest);
                if self.digits.is_some() {
                    text.push(b'\n');
                }
            }
        } else if !rest.is_empty() {
            self.begun.insert(of, rest.to_vec());
        }
        text
    }

    fn line(&self, text: &mut Vec<u8>, rank: u32, line: &[u8]) {
        if let Some(digits) = self.digits {
            text.extend(format!("[{rank:>digits$}] ").as_bytes());
        }
        text.extend(line);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const OUT: Stream = Stream::Output;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_are_labelled_and_not_mixed() {
        let mut lines = Lines::new(11, true);
        assert_eq!(text(lines.take((3, OUT), b"one\ntw")), "[ 3] one\n");
        assert_eq!(text(lines.take((10, OUT), b"ten\n")), "[10] ten\n");
        assert_eq!(text(lines.take((3, Stream::Error), b"bad\n")), "[ 3] bad\n");
        assert_eq!(text(lines.take((3, OUT), b"o\n\nx")), "[ 3] two\n[ 3] \n");
        assert_eq!(text(lines.take((3, OUT), b"")), "[ 3] x\n", "the end ends a line");
        assert_eq!(text(lines.take((3, OUT), b"")), "");
    }

    #[test]
    fn without_labels_nothing_is_added() {
        let mut lines = Lines::new(2, false);
        assert_eq!(text(lines.take((0, OUT), b"a")), "");
        assert_eq!(text(lines.take((1, OUT), b"b\n")), "b\n");
        assert_eq!(text(lines.take((0, OUT), b"")), "a");
        let mut alone = Lines::new(1, false);
        assert_eq!(text(alone.take((0, OUT), b"? ")), "? ", "a prompt is seen");
    }

    #[test]
    fn a_line_without_end_does_not_grow_without_end() {
        let mut lines = Lines::new(2, true);
        let mut written = 0;
        for _ in 0..100 {
            written += lines.take((1, OUT), &[b'x'; 10_000]).len();
            assert!(lines.begun.values().all(|begun| begun.len() <= LINE_BYTES_MAX));
        }
        assert!(written > 900_000);
    }
}
