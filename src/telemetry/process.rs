//! The process' own numbers, from `/proc/self` at scrape time under the names that every Prometheus client library uses. What
//! cannot be read is left out.

use super::{
    exposition::Exposition,
    names::{self, Metric},
};
use std::fs;

/// Linux reports times in `/proc` in this many ticks a second on every architecture (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// What could be read of the process.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Process {
    pub cpu_seconds: Option<f64>,
    pub threads: Option<u64>,
    pub virtual_bytes: Option<u64>,
    pub resident_bytes: Option<u64>,
    /// Since 1970.
    pub started_seconds: Option<f64>,
    pub open_files: Option<u64>,
    pub max_files: Option<u64>,
}

impl Process {
    pub fn read() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").ok().and_then(|text| Stat::parse(&text));
        let boot = fs::read_to_string("/proc/stat").ok().and_then(|text| field(&text, "btime"));
        let started = |stat: &Stat| Some(boot? as f64 + stat.start_ticks / TICKS_PER_SECOND);
        let kib = fs::read_to_string("/proc/self/status").ok().and_then(|text| field(&text, "VmRSS:"));
        Self {
            cpu_seconds: stat.as_ref().map(|stat| stat.cpu_ticks / TICKS_PER_SECOND),
            threads: stat.as_ref().map(|stat| stat.threads),
            virtual_bytes: stat.as_ref().map(|stat| stat.virtual_bytes),
            resident_bytes: kib.map(|kib| kib.saturating_mul(1024)),
            started_seconds: stat.as_ref().and_then(started),
            open_files: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64),
            max_files: fs::read_to_string("/proc/self/limits").ok().and_then(|text| field(&text, "Max open files")),
        }
    }
}

/// Writes `process_*` and the build's version.
pub fn render(out: &mut Exposition) {
    out.single(&names::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1u64);
    let process = Process::read();
    let mut number = |metric: &Metric, value: Option<u64>| value.into_iter().for_each(|value| out.single(metric, &[], value));
    number(&names::PROCESS_THREADS, process.threads);
    number(&names::PROCESS_VIRTUAL, process.virtual_bytes);
    number(&names::PROCESS_RESIDENT, process.resident_bytes);
    number(&names::PROCESS_OPEN_FDS, process.open_files);
    number(&names::PROCESS_MAX_FDS, process.max_files);
    let mut seconds = |metric: &Metric, value: Option<f64>| value.into_iter().for_each(|value| out.single(metric, &[], value));
    seconds(&names::PROCESS_CPU, process.cpu_seconds);
    seconds(&names::PROCESS_START_TIME, process.started_seconds);
}

/// The number that follows `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[derive(PartialEq, Debug)]
struct Stat {
    cpu_ticks: f64,
    threads: u64,
    start_ticks: f64,
    virtual_bytes: u64,
}

impl Stat {
    /// From proc(5)'s `stat`: the fields are counted after the command's name, which may hold spaces and brackets itself.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |nth: usize| fields.get(nth.checked_sub(3)?)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: number(14)? as f64 + number(15)? as f64,
            threads: number(20)?,
            start_ticks: number(22)? as f64,
            virtual_bytes: number(23)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_stat_line_with_an_odd_command() {
        let text = "4242 (a) b (c)) S 1 4242 4242 0 -1 4194560 900 0 3 0 150 50 0 0 20 0 7 0 5000 104857600 2000 18446744073709551615 1";
        assert_eq!(Stat::parse(text), Some(Stat { cpu_ticks: 200.0, threads: 7, start_ticks: 5000.0, virtual_bytes: 104_857_600 }));
        assert_eq!(Stat::parse("4242 (short) S 1 2"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn reads_fields_of_text_files() {
        assert_eq!(field("VmPeak:\t 10 kB\nVmRSS:\t  5120 kB\n", "VmRSS:"), Some(5120));
        assert_eq!(field("Max open files            1024                 4096                 files\n", "Max open files"), Some(1024));
        assert_eq!(field("Max open files            unlimited            unlimited            files\n", "Max open files"), None);
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut out = Exposition::default();
        render(&mut out);
        let text = out.finish();
        let expected = ["process_start_time_seconds ", "process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds "];
        for name in expected {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name} in\n{text}");
        }
        assert!(text.contains(concat!("highwater_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1\n")), "{text}");
    }
}
