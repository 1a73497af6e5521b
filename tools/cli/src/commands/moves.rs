//! `migrate` and `adopt`: what one process is told to do.

use crate::output;
use anyhow::Result;
use client::Client;
use wire::control::{Destination, Migration, Reply, Request};

use super::unexpected;

pub fn migrate(client: &mut Client, pid: i32, to: Destination, json: bool) -> Result<()> {
    let migration = match client.request(&Request::Migrate { pid, to })? {
        Reply::Migrated(migration) => migration,
        other => return Err(unexpected(&other)),
    };
    if json {
        output::print_json(&migration)?;
    } else {
        output::print_line(&sentence(&migration))?;
    }
    Ok(())
}

pub fn adopt(client: &mut Client, pid: i32) -> Result<()> {
    match client.request(&Request::Adopt { pid })? {
        Reply::Done | Reply::Managed { .. } => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// `4711 moved from node 1 to node 3 (turn) in 12.3 ms, frozen for 4.0 ms, 1.5M sent`
pub fn sentence(migration: &Migration) -> String {
    let cause = match migration.cause.as_str() {
        "user" => String::new(),
        cause => format!(" ({})", output::printable(cause)),
    };
    format!(
        "{} moved from node {} to node {}{cause} in {:.1} ms, frozen for {:.1} ms, {} bytes sent",
        migration.pid,
        migration.from,
        migration.to,
        migration.total_ms,
        migration.freeze_ms,
        output::bytes(migration.bytes_sent)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ids::NodeId;

    #[test]
    fn a_move_is_told_in_one_line() {
        let migration = Migration {
            pid: 4711,
            from: NodeId(1),
            to: NodeId(3),
            cause: "user".into(),
            phases_ms: vec![],
            freeze_ms: 4.04,
            total_ms: 12.25,
            bytes_sent: 1536,
        };
        assert_eq!(
            sentence(&migration),
            "4711 moved from node 1 to node 3 in 12.2 ms, frozen for 4.0 ms, 1.5K bytes sent"
        );
        let turn = sentence(&Migration { cause: "turn".into(), ..migration });
        assert!(turn.starts_with("4711 moved from node 1 to node 3 (turn) in "), "{turn}");
    }
}
