//! How long work in the background pauses to stay below so many bytes a second: the cleaner below `log.cleaner.io.max.bytes.per.second`
//! (`Throttler`), moves below `replica.alter.log.dirs.io.max.bytes.per.second`. Pure: the time is an argument.

use crate::types::Millis;

/// So much is let through at once before anything is measured.
const WINDOW_MS: i64 = 300;
/// No pause is longer; what is due beyond it is asked for with the next bytes.
const PAUSE_MS_MAX: f64 = 86_400_000.0;

/// Counts the bytes of all threads together.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    bytes_per_second: f64,
    /// The window that is counted: since when, and how much.
    since: Option<Millis>,
    bytes: u64,
}

impl Throttle {
    pub fn new(bytes_per_second: f64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1.0), since: None, bytes: 0 }
    }

    /// So many bytes were read or written, until `now`: how many milliseconds to do nothing.
    pub fn pause_ms(&mut self, bytes: u64, now: Millis) -> u64 {
        let since = *self.since.get_or_insert(now);
        self.bytes = self.bytes.saturating_add(bytes);
        let passed = now.0.saturating_sub(since.0);
        let due_ms = self.bytes as f64 / self.bytes_per_second * 1_000.0;
        let pause = due_ms - passed as f64;
        if passed < WINDOW_MS && pause < WINDOW_MS as f64 {
            return 0;
        }
        // Idle time earns nothing for later.
        (self.since, self.bytes) = (None, 0);
        if pause <= 0.0 {
            return 0;
        }
        let pause = pause.min(PAUSE_MS_MAX) as u64;
        // Who is woken early still owes the rest.
        self.since = Some(now.plus(i64::try_from(pause).unwrap_or(0)));
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_rate_holds_over_any_run(chunks in prop::collection::vec((1u64..200_000, 0i64..50), 50..300), rate in 100_000.0f64..50_000_000.0) {
            let mut throttle = Throttle::new(rate);
            let (mut now, mut bytes) = (1_000i64, 0);
            for (chunk, took) in chunks {
                now += took;
                bytes += chunk;
                now += throttle.pause_ms(chunk, Millis(now)) as i64;
            }
            let allowed = rate * (now - 1_000 + 2 * WINDOW_MS) as f64 / 1_000.0 + 200_000.0;
            prop_assert!(bytes as f64 <= allowed, "{bytes} bytes in {} ms at {rate}", now - 1_000);
        }
    }

    #[test]
    fn without_a_limit_it_never_pauses() {
        let mut throttle = Throttle::new(f64::MAX);
        assert!((0..1_000).all(|i| throttle.pause_ms(1 << 30, Millis(i)) == 0));
    }

    #[test]
    fn a_pause_that_is_cut_short_is_owed() {
        let mut throttle = Throttle::new(1_000.0);
        assert_eq!(throttle.pause_ms(60_000, Millis(0)), 60_000);
        assert_eq!(throttle.pause_ms(1_000, Millis(20_000)), 41_000);
    }

    #[test]
    fn it_pauses_for_what_is_too_much() {
        let mut throttle = Throttle::new(1_000.0);
        assert_eq!(throttle.pause_ms(100, Millis(0)), 0);
        assert_eq!(throttle.pause_ms(900, Millis(100)), 900, "1,000 bytes take a second");
        assert_eq!(throttle.pause_ms(500, Millis(1_000)), 500);
        assert_eq!(throttle.pause_ms(1, Millis(60_000)), 0);
    }
}
