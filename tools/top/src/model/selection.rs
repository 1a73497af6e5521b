//! What is selected of a list, and which part of the list is on the screen.

/// Something is selected by what it is, so that it stays selected when the list is sorted anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection<K> {
    key: Option<K>,
    at: usize,
    /// The first row on the screen.
    top: usize,
    /// The user has chosen it: until then it is whatever comes first.
    is_chosen: bool,
}

impl<K> Default for Selection<K> {
    fn default() -> Selection<K> {
        Selection { key: None, at: 0, top: 0, is_chosen: false }
    }
}

impl<K: Copy + PartialEq> Selection<K> {
    /// After the list has changed, or the user has chosen: finds what was selected, or else takes
    /// what stands there now, and has it be on the screen.
    pub fn settle(&mut self, count: usize, height: usize, key_at: impl Fn(usize) -> K) {
        let is_still = |at: usize, key: K| at < count && key_at(at) == key;
        match self.key.filter(|_| self.is_chosen) {
            Some(key) if is_still(self.at, key) => {}
            Some(key) => self.at = (0..count).find(|at| is_still(*at, key)).unwrap_or(self.at),
            None => {}
        }
        self.at = self.at.min(count.saturating_sub(1));
        self.key = (self.at < count).then(|| key_at(self.at));
        self.top = self.top.min(count.saturating_sub(height)).min(self.at);
        if height > 0 && self.at >= self.top + height {
            self.top = self.at + 1 - height;
        }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn top(&self) -> usize {
        self.top
    }

    /// The row `at`, as far as there is one; [`Selection::settle`] says what that is.
    pub fn choose(&mut self, at: usize) {
        (self.at, self.key, self.is_chosen) = (at, None, true);
    }

    /// What is selected now has been chosen.
    pub fn keep(&mut self) {
        self.is_chosen = true;
    }

    pub fn step(&mut self, rows: isize) {
        self.choose(self.at.saturating_add_signed(rows));
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_chosen_stays_selected_wherever_it_goes() {
        let mut selection = Selection::default();
        let settle = |selection: &mut Selection<i32>, list: &[i32]| {
            selection.settle(list.len(), 2, |at| list[at]);
            (selection.at(), selection.top())
        };
        assert_eq!(settle(&mut selection, &[1, 2, 3]), (0, 0));
        assert_eq!(settle(&mut selection, &[3, 2, 1]), (0, 0), "nobody has chosen 1");
        selection.step(1);
        assert_eq!(settle(&mut selection, &[3, 2, 1]), (1, 0));
        assert_eq!(settle(&mut selection, &[3, 1, 4, 2]), (3, 2), "2 is chosen, and shown");
        assert_eq!(settle(&mut selection, &[3, 1, 4]), (2, 1), "it is gone: what is near");
        assert_eq!(settle(&mut selection, &[]), (0, 0));
        selection.step(isize::MAX);
        assert_eq!(settle(&mut selection, &[5, 6, 7]), (2, 1));
    }
}
