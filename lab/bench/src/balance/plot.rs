//! Plots as SVG, written by hand: lines of makespans, and bars of what is lost.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 50.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 150.0;
const COLOURS: [&str; 7] =
    ["#888888", "#c0392b", "#e08e0b", "#1b6ec2", "#27813c", "#111111", "#8e44ad"];

/// One line or one kind of bars.
pub struct Series {
    pub name: String,
    /// For lines: (x, y). For bars: (number of the group, y).
    pub points: Vec<(f64, f64)>,
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A round number of steps for an axis up to `max`.
fn step(max: f64) -> f64 {
    let raw = max.max(1e-9) / 6.0;
    let power = 10f64.powf(raw.log10().floor());
    let scaled = raw / power;
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|nice| scaled <= *nice);
    nice.unwrap_or(10.0) * power
}

struct Sheet {
    text: String,
    x: (f64, f64),
    y: (f64, f64),
}

impl Sheet {
    fn new(title: &str, x_title: &str, y_title: &str, x: (f64, f64), y: (f64, f64)) -> Sheet {
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        let mut label = |x: f64, y: f64, text_is: &str, more: &str| {
            let text_is = escape(text_is);
            let _ = writeln!(
                text,
                "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" {more}>{text_is}</text>"
            );
        };
        label(middle, 22.0, title, "font-size=\"15\"");
        label(middle, HEIGHT - 12.0, x_title, "");
        let across = format!("transform=\"rotate(-90 16 {})\"", HEIGHT / 2.0);
        label(16.0, HEIGHT / 2.0, y_title, &across);
        Sheet { text, x, y }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let wide = (x - self.x.0) / (self.x.1 - self.x.0).max(1e-9);
        let high = (y - self.y.0) / (self.y.1 - self.y.0).max(1e-9);
        let across = LEFT + wide * (WIDTH - LEFT - RIGHT);
        (across, HEIGHT - BOTTOM - high * (HEIGHT - BOTTOM - TOP))
    }

    fn grid(&mut self) {
        let step = step(self.y.1 - self.y.0);
        let mut value = (self.y.0 / step).ceil() * step;
        // At most seven lines by the choice of the step; the bound is for numbers that are none.
        for _ in 0..20 {
            if value > self.y.1 + step * 0.01 {
                break;
            }
            let ((left, y), (right, _)) = (self.at(self.x.0, value), self.at(self.x.1, value));
            let shown = (value * 100.0).round() / 100.0;
            let _ = writeln!(
                self.text,
                "<line x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" \
                 stroke=\"#dddddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{shown}</text>",
                left - 6.0,
                y + 4.0
            );
            value += step;
        }
    }

    fn x_label(&mut self, x: f64, label: &str) {
        let (x, y) = self.at(x, self.y.0);
        let label = escape(label);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            y + 16.0
        );
    }

    fn legend(&mut self, nth: usize, name: &str) {
        let (x, y) = (WIDTH - RIGHT + 14.0, TOP + 18.0 * nth as f64);
        let (colour, name) = (COLOURS[nth % COLOURS.len()], escape(name));
        let _ = writeln!(
            self.text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{}\">{name}</text>",
            x + 18.0,
            y + 10.0
        );
    }

    fn done(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

pub fn lines(title: &str, x_title: &str, y_title: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| series.points.iter());
    let low = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MAX, f64::min);
    let high = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MIN, f64::max);
    let x = (low(&mut all().map(|p| p.0)), high(&mut all().map(|p| p.0)));
    let y = (0.0, high(&mut all().map(|p| p.1)) * 1.05);
    let mut sheet = Sheet::new(title, x_title, y_title, x, y);
    sheet.grid();
    let step = step(x.1 - x.0);
    for nth in 0..20 {
        let value = (x.0 / step).ceil() * step + f64::from(nth) * step;
        if value <= x.1 {
            sheet.x_label(value, &format!("{value}"));
        }
    }
    for (nth, series) in series.iter().enumerate() {
        let mut path = String::new();
        for (x, y) in &series.points {
            let (x, y) = sheet.at(*x, *y);
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        let colour = COLOURS[nth % COLOURS.len()];
        let _ = writeln!(
            sheet.text,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
        sheet.legend(nth, &series.name);
    }
    sheet.done()
}

pub fn bars(title: &str, groups: &[String], y_title: &str, series: &[Series]) -> String {
    let values = || series.iter().flat_map(|series| series.points.iter().map(|p| p.1));
    let y = (values().fold(0.0, f64::min) * 1.1, values().fold(1.0, f64::max) * 1.1);
    let mut sheet = Sheet::new(title, "", y_title, (0.0, groups.len() as f64), y);
    sheet.grid();
    for (nth, group) in groups.iter().enumerate() {
        sheet.x_label(nth as f64 + 0.5, group);
    }
    let wide = 0.8 / series.len().max(1) as f64;
    for (nth, series) in series.iter().enumerate() {
        for (group, value) in &series.points {
            let from = group + 0.1 + wide * nth as f64;
            let (left, top) = sheet.at(from, value.max(0.0));
            let (right, bottom) = sheet.at(from + wide * 0.9, value.min(0.0));
            let _ = writeln!(
                sheet.text,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 fill=\"{}\"/>",
                right - left,
                (bottom - top).max(0.5),
                COLOURS[nth % COLOURS.len()]
            );
        }
        sheet.legend(nth, &series.name);
    }
    sheet.done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_round_steps() {
        for (max, expected) in [(900.0, 200.0), (10.0, 2.0), (1.0, 0.2), (46.0, 10.0)] {
            assert!((step(max) - expected).abs() < 1e-9, "{max}: {}", step(max));
        }
    }

    #[test]
    fn a_plot_is_one_element_with_all_its_series_and_nothing_unescaped() {
        let series =
            |name: &str| Series { name: name.into(), points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let all = [series("a<b"), series("c")];
        for svg in [lines("t", "x", "y", &all), bars("t", &["g".into()], "y", &all)] {
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
            assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
        }
        assert_eq!(lines("t", "x", "y", &all).matches("<polyline").count(), 2);
    }
}
