//! The memory of a frozen body that goes home: looked at while home looks for what it has of it,
//! and compared then.

use crate::group::Membership;
use crate::homing::Homeward;
use crate::tracing_loop::Tracing;
use kernel::tracking::Tracking;
use migrate::Result;
use migrate::ahead::Ahead;
use migrate::copying::Copying;
use migrate::held;
use migrate::kept::Origin;
use migrate::packing::HomePacker;
use migrate::sight::Sight;
use wire::image::{Image, Span};

/// What there is of the memory of a frozen body.
pub(crate) struct Seen {
    copying: Copying,
    /// If nothing went ahead, and home has kept what the body came with.
    origin: Option<Origin>,
    sight: Sight,
}

impl Tracing<'_> {
    /// What there is of the memory, and what is known of it and of home. Some of it others bring,
    /// who leave with this one.
    pub(crate) fn see_memory(
        &self,
        image: &Image,
        homeward: Homeward,
        membership: Option<&Membership>,
    ) -> Result<Seen> {
        let (mut copying, origin) = match homeward {
            Homeward { ahead: Some(Ahead { draft, mut copying, .. }), .. } => {
                copying.remap(&draft.mappings, &image.mappings);
                (copying, None)
            }
            Homeward { origin: origin @ Some(_), .. } => {
                (Copying::of(self.shared.pid, self.tracking.as_ref().map(Tracking::claim))?, origin)
            }
            _ => (Copying::of(self.shared.pid, None)?, None),
        };
        copying.know_memory(self.shared.own_files.fixed.library().memory_files());
        let sight = copying.see(&self.shared.memory, &image.mappings)?;
        if let Some(membership) = membership {
            copying.leave_to_others(membership.brought_by_others(&self.shared)?);
        }
        Ok(Seen { copying, origin, sight })
    }

    /// Sends home what it lacks of the memory, of which it has something at the places `held`.
    pub(crate) fn send_memory(&self, image: &Image, seen: Seen, held: &[Span]) -> Result<u64> {
        let Seen { mut copying, origin, sight } = seen;
        match origin {
            Some(origin) => copying.assume_held(held, &origin.among(&held::runs(held))),
            None => copying.learn(held),
        }
        copying.leave_files();
        let whole = (&image.mappings[..], &image.guards[..]);
        let mut packer = HomePacker::default();
        copying.finish(&self.shared.memory, whole, sight, &mut |part| {
            packer.send(part, |message, _| self.shared.send(message));
            Ok(())
        })
    }
}
