//! What stands where on a screen of some size: for drawing, and for what a mouse clicks on.

use ratatui::layout::Rect;

/// Smaller than this nothing can be shown that helps.
pub const WIDTH_MIN: u16 = 30;
pub const HEIGHT_MIN: u16 = 7;
/// What is not a list: title, two heads, detail and the lowest line.
const FIXED: u16 = 5;

/// The parts of the screen, from top to bottom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Areas {
    pub title: Rect,
    pub node_head: Rect,
    pub nodes: Rect,
    pub process_head: Rect,
    pub processes: Rect,
    pub events: Rect,
    /// About what is selected.
    pub detail: Rect,
    /// What is typed, what was answered, or which keys there are.
    pub bottom: Rect,
    /// Where texts lie over the lists.
    pub panel: Rect,
}

/// None if the screen is too small. Whichever list is in use has most of the room.
pub fn areas(screen: Rect, nodes: usize, are_nodes_in_use: bool) -> Option<Areas> {
    if screen.width < WIDTH_MIN || screen.height < HEIGHT_MIN {
        return None;
    }
    let events = match screen.height {
        0..12 => 0,
        height => (height / 8).min(8),
    };
    let lists = screen.height - FIXED - events;
    let most = if are_nodes_in_use { lists.div_ceil(2) } else { lists.div_ceil(3) };
    let shown = u16::try_from(nodes).unwrap_or(u16::MAX).clamp(1, most);
    let mut y = screen.y;
    let mut next = |height: u16| {
        let area = Rect { x: screen.x, y, width: screen.width, height };
        y += height;
        area
    };
    let (title, node_head, nodes) = (next(1), next(1), next(shown));
    let (process_head, processes) = (next(1), next(lists - shown));
    let (events, detail, bottom) = (next(events), next(1), next(1));
    let panel = Rect { y: node_head.y, height: bottom.y - node_head.y, ..screen };
    let lists = Areas { title, node_head, nodes, process_head, processes, ..Areas::default() };
    Some(Areas { events, detail, bottom, panel, ..lists })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_parts_fill_the_screen_and_no_list_is_without_room() {
        for height in 0..120 {
            for (nodes, in_use) in [(0, false), (1, true), (3, false), (1000, true), (1000, false)]
            {
                let Some(areas) = areas(Rect::new(0, 0, 80, height), nodes, in_use) else {
                    assert!(height < HEIGHT_MIN);
                    continue;
                };
                let Areas { title, node_head, nodes, process_head, processes, .. } = areas;
                let parts = [title, node_head, nodes, process_head, processes];
                let parts = parts.into_iter().chain([areas.events, areas.detail, areas.bottom]);
                let end = parts.fold(0, |y, part| {
                    assert_eq!(part.y, y);
                    y + part.height
                });
                assert_eq!(end, height);
                assert!(nodes.height > 0 && processes.height > 0, "{height}");
            }
        }
    }

    #[test]
    fn a_usual_screen_shows_all_lists() {
        let areas = areas(Rect::new(0, 0, 80, 24), 16, false).unwrap();
        assert_eq!([areas.nodes.height, areas.processes.height, areas.events.height], [6, 10, 3]);
    }
}
