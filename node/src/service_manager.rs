//! A daemon that is a service: what its service manager is told, and how it logs to the journal.
//!
//! By the environment, as sd_notify(3) and systemd.exec(5) say, so that any manager will do that
//! keeps to it, and none has to be there.

use sd_notify::NotifyState;
use std::fmt;
use std::os::fd::AsFd;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Whether one watches this process.
pub fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// The node is up.
pub fn tell_ready() {
    tell(&[NotifyState::Ready]);
}

/// It goes down, which may take a while: guests go home.
pub fn tell_stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    // Without a manager nothing is sent, and that is no error.
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("the service manager is not told: {error}");
    }
}

/// Whether standard error is a stream of the journal, which has times of its own.
pub fn logs_to_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM");
    let here = nix::sys::stat::fstat(std::io::stderr().as_fd());
    match (named, here) {
        (Ok(named), Ok(here)) => is_stream(&named, here.st_dev, here.st_ino),
        _ => false,
    }
}

/// Device and inode, as they are written there.
fn is_stream(named: &str, device: u64, inode: u64) -> bool {
    named.split_once(':') == Some((device.to_string().as_str(), inode.to_string().as_str()))
}

/// A line as the journal takes it: priority (sd-daemon(3)), and no time.
pub struct JournalFormat(Format<Full, ()>);

impl Default for JournalFormat {
    fn default() -> JournalFormat {
        let plain = tracing_subscriber::fmt::format().without_time();
        JournalFormat(plain.with_level(false).with_ansi(false))
    }
}

impl<S, N> FormatEvent<S, N> for JournalFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

/// Of syslog(3).
fn priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_for_the_journal_has_its_priority_and_no_time() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(JournalFormat::default())
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(node = 3, "it is late");
            tracing::error!("it is gone");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let (module, mut lines) = (module_path!(), text.lines());
        assert_eq!(lines.next().unwrap(), format!("<4>{module}: it is late node=3"));
        assert_eq!(lines.next().unwrap(), format!("<3>{module}: it is gone"));
    }

    #[test]
    fn a_stream_of_the_journal_is_known_by_device_and_inode() {
        assert!(is_stream("8:1234", 8, 1234));
        for named in ["8:1235", "9:1234", "8", "", "8:1234:1"] {
            assert!(!is_stream(named, 8, 1234), "{named}");
        }
    }
}
