//! The dialogue by which a source offers a process to a berth, before anything is frozen.

use crate::backing::{self, Library};
use crate::{MigrateError, Result};
use link::{LinkReader, LinkWriter};
use std::time::Duration;
use wire::forward::{ToAway, ToHome};
use wire::image::{Draft, Prospect};

/// A node that does not answer an offer for so long will not.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Who offers a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offerer {
    /// Its home, which can tell the time.
    Home,
    /// The node that its body moves on from.
    Away,
}

/// What a target has said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// It has pages of earlier guests.
    pub remembers: bool,
    /// Pages can come behind their process.
    pub serves_faults: bool,
}

/// Offers, and sends the mapped files that the target lacks. When this returns the target has its
/// sandbox ready and waits for the [`draft`]. What it can. `welcome` is called when it takes the
/// process, and those who come along with it may call.
pub fn offer(
    (reader, writer): &mut (LinkReader, LinkWriter),
    offerer: Offerer,
    prospect: Prospect,
    library: &Library,
    welcome: impl FnOnce(),
) -> Result<Abilities> {
    reader.set_timeout(Some(ANSWER_TIMEOUT))?;
    writer.send(&ToAway::Prospect(Box::new(prospect)))?;
    let (missing, abilities) = loop {
        match reader.receive()? {
            ToHome::AskTime if offerer == Offerer::Home => {
                writer.send(&ToAway::Time(crate::time::now()))?;
            }
            ToHome::Welcome { missing, remembers, serves_faults } => {
                break (missing, Abilities { remembers, serves_faults });
            }
            ToHome::Refused(reason) => return Err(MigrateError::Refused(reason)),
            _ => return Err(MigrateError::Protocol("no answer to the offer".into())),
        }
    };
    welcome();
    for index in missing {
        let file = library
            .file(index)
            .ok_or_else(|| MigrateError::Protocol(format!("it asked for mapped file {index}")))?;
        backing::parts(file, |offset, content| {
            Ok(writer.send(&ToAway::BackingPart { backing: index, offset, content })?)
        })?;
    }
    writer.send(&ToAway::BackingsSent)?;
    match reader.receive()? {
        ToHome::Stored => Ok(abilities),
        ToHome::Refused(reason) => Err(MigrateError::Refused(reason)),
        _ => Err(MigrateError::Protocol("the mapped files were not acknowledged".into())),
    }
}

/// Has the target make the address space, after [`offer`] and before the freeze.
pub fn draft((reader, writer): &mut (LinkReader, LinkWriter), draft: Draft) -> Result<()> {
    writer.send(&ToAway::Draft(Box::new(draft)))?;
    match reader.receive()? {
        ToHome::Drafted => Ok(()),
        ToHome::Refused(reason) => Err(MigrateError::Refused(reason)),
        _ => Err(MigrateError::Protocol("no answer to the draft".into())),
    }
}
