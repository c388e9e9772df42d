//! Rates from counts that are looked at now and then.

use crate::types::Millis;

/// Older change counts for less: after this long for a third.
const DECAY_MS: f64 = 60_000.0;
/// Looks closer together than this are taken with the next one: a rate over a few milliseconds says nothing.
const INTERVAL_MS_MIN: i64 = 500;

/// How fast a count rises, in units per second: over the last minute or so, the latest counting most.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rate {
    last: Option<(Millis, i64)>,
    per_second: f64,
    /// How much of a minute's past has been seen, from 0 to 1: the first looks are not averaged with a past that isn't known.
    weight: f64,
}

impl Rate {
    /// The count is `count` at `now`. A count that fell begins anew from there, as does everything if the clock was set back.
    pub fn note(&mut self, now: Millis, count: i64) {
        let Some((at, before)) = self.last else {
            self.last = Some((now, count));
            return;
        };
        let passed = now.0.saturating_sub(at.0);
        if passed < 0 || count < before {
            self.last = Some((now, count));
            return;
        }
        if passed < INTERVAL_MS_MIN {
            return;
        }
        self.last = Some((now, count));
        let grown = count.saturating_sub(before);
        let per_second = grown as f64 * 1_000.0 / passed as f64;
        let kept = (-(passed as f64) / DECAY_MS).exp();
        let weight = self.weight * kept + (1.0 - kept);
        self.per_second = (self.per_second * self.weight * kept + per_second * (1.0 - kept)) / weight;
        self.weight = weight;
    }

    /// `None` until it was looked at twice.
    pub fn per_second(&self) -> Option<f64> {
        (self.weight > 0.0).then_some(self.per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noted(all: &[(i64, i64)]) -> Option<f64> {
        let mut rate = Rate::default();
        all.iter().for_each(|(now, count)| rate.note(Millis(*now), *count));
        rate.per_second()
    }

    fn is_about(rate: Option<f64>, wanted: f64) -> bool {
        rate.is_some_and(|rate| (rate - wanted).abs() < 1e-9)
    }

    #[test]
    fn a_steady_rise_is_its_rate_from_the_second_look_on() {
        assert_eq!(noted(&[]), None);
        assert_eq!(noted(&[(0, 5)]), None);
        assert!(is_about(noted(&[(0, 5), (1_000, 15)]), 10.0));
        assert!(is_about(noted(&[(0, 0), (100, 10), (1_000, 10)]), 10.0), "a look too close counts with the next");
        let steady: Vec<_> = (0..100).map(|i| (i * 1_000, i * 7)).collect();
        assert!(is_about(noted(&steady), 7.0));
    }

    #[test]
    fn commits_that_come_in_bursts_are_smoothed() {
        // 100 records every five seconds.
        let bursts: Vec<_> = (0..300).map(|i| (i * 1_000, i / 5 * 100)).collect();
        assert!((18.0..22.0).contains(&noted(&bursts).unwrap()), "{:?}", noted(&bursts));
    }

    #[test]
    fn what_stops_fades() {
        let mut all: Vec<_> = (0..120).map(|i| (i * 1_000, i * 100)).collect();
        all.extend((120..720).map(|i| (i * 1_000, 12_000)));
        assert!(noted(&all).unwrap() < 0.1, "{:?}", noted(&all));
    }

    #[test]
    fn a_count_or_a_clock_that_falls_is_no_negative_rate() {
        assert!(is_about(noted(&[(0, 100), (1_000, 200), (2_000, 0), (3_000, 100)]), 100.0));
        assert!(is_about(noted(&[(100_000, 0), (0, 50), (1_000, 60)]), 10.0));
    }

    proptest! {
        #[test]
        fn it_is_always_a_number_that_is_not_negative(all: Vec<(i64, i64)>) {
            if let Some(rate) = noted(&all) {
                prop_assert!(rate.is_finite() && rate >= 0.0, "{}", rate);
            }
        }
    }
}
