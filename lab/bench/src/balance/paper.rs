//! Table 1 of the paper of 1996 (PVM with the MOSIX preemptive process migration): sixteen equal
//! nodes, processes of 300 seconds.

pub struct Row {
    pub processes: usize,
    pub optimal_s: f64,
    pub mosix_s: f64,
    pub pvm_s: f64,
    pub pvm_on_mosix_s: f64,
}

const fn row(
    processes: usize,
    optimal_s: f64,
    mosix_s: f64,
    pvm_s: f64,
    pvm_on_mosix_s: f64,
) -> Row {
    Row { processes, optimal_s, mosix_s, pvm_s, pvm_on_mosix_s }
}

pub const TABLE_1: [Row; 19] = [
    row(1, 300.0, 301.91, 301.83, 304.54),
    row(2, 300.0, 302.92, 303.78, 304.70),
    row(4, 300.0, 304.57, 305.60, 306.59),
    row(8, 300.0, 305.73, 308.57, 301.88),
    row(16, 300.0, 310.83, 317.12, 303.40),
    row(17, 450.0, 456.91, 604.36, 452.84),
    row(20, 450.0, 462.07, 602.40, 454.07),
    row(24, 450.0, 471.87, 603.25, 454.67),
    row(25, 525.0, 533.15, 603.83, 530.15),
    row(27, 525.0, 549.07, 603.86, 559.81),
    row(31, 563.0, 574.03, 604.63, 595.17),
    row(32, 600.0, 603.17, 603.14, 604.64),
    row(33, 700.0, 705.93, 906.31, 707.39),
    row(36, 700.0, 715.35, 905.27, 708.41),
    row(38, 750.0, 759.90, 905.34, 755.53),
    row(40, 750.0, 767.67, 905.39, 771.71),
    row(43, 833.0, 833.33, 908.96, 839.61),
    row(47, 883.0, 901.81, 907.79, 893.65),
    row(48, 900.0, 916.11, 908.51, 907.71),
];

/// What each of its processes computes, s.
pub const JOB_S: f64 = 300.0;

/// Of so many processes.
pub fn row_of(processes: usize) -> Option<&'static Row> {
    TABLE_1.iter().find(|row| row.processes == processes)
}

impl Row {
    /// What it measured, s, by what is compared there.
    pub fn published(&self) -> [(&'static str, f64); 3] {
        [
            ("MOSIX 1996", self.mosix_s),
            ("PVM 1996", self.pvm_s),
            ("PVM on MOSIX 1996", self.pvm_on_mosix_s),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::TABLE_1;

    /// The paper's own sentence about its table.
    #[test]
    fn mosix_is_on_average_1_95_percent_above_the_optimum() {
        let over = TABLE_1.iter().map(|row| row.mosix_s / row.optimal_s - 1.0);
        let mean = over.sum::<f64>() / TABLE_1.len() as f64;
        assert!((mean * 100.0 - 1.95).abs() < 0.1, "{:.2} %", mean * 100.0);
    }
}
