//! Processes that share memory and come home together ([decision 0034](../../../docs/decisions/)),
//! as the supervisor of one of them sees it: that of the bodies, which has all, says when.

use crate::homecoming::{Sending, is_final};
use crate::service::Service;
use link::{LOSS_TIMEOUT, LinkError, LinkReader};
use migrate::{MigrateError, Result};
use wire::forward::{ToAway, ToHome};

/// Says how far home is with a process, and waits until all that come with it are as far.
///
/// # Errors
/// They do not come; or the link is lost. It is kept alive by the kernel: others may take their
/// time, in which nothing is said.
pub fn await_word(
    service: &Service<'_>,
    reader: &mut LinkReader,
    (said, wanted): (&ToAway, &ToHome),
    sending: &mut Sending,
) -> Result<()> {
    service.shared.send(said);
    reader.set_timeout(None)?;
    let heard = reader.receive::<ToHome>();
    reader.set_timeout(Some(LOSS_TIMEOUT))?;
    match heard {
        Ok(ToHome::Stayed(reason)) => {
            *sending = Sending::GivenUp;
            Err(MigrateError::Refused(reason))
        }
        Ok(word) if word == *wanted => Ok(()),
        // Whether the others run here is not known: so this one runs nowhere.
        Ok(_) | Err(LinkError::Decode(_)) => Err(LinkError::Silent.into()),
        Err(error) => Err(error.into()),
    }
}

/// What went wrong when all of them, if there are others, run here already: that a trace of us is
/// left is no reason to have one of them run elsewhere.
///
/// # Errors
/// The process has ended; or, of one that is alone, any.
pub fn accept(outcome: Result<()>, are_several: bool) -> Result<()> {
    match outcome {
        Err(error) if are_several && !is_final(&error) => {
            ::tracing::warn!("after all have come home: {error}");
            Ok(())
        }
        outcome => outcome,
    }
}
