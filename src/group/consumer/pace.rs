//! How soon a member is told to come again, and for how long its heartbeat may be held back.
//!
//! While a member's heartbeat is here it hears of news at once; between its heartbeats it doesn't. So heartbeats are held back for nearly the
//! whole interval, but not for longer: librdkafka gives up on an answer that takes as long as the interval which it was told before. And the
//! interval is short only while it makes a difference, since every member of every group keeps to it.

use super::{Consumer, ConsumerMember, MemberState, Timers, draft::Surroundings};

/// What is left of the interval when an answer leaves at the latest, for the way to the client.
const MARGIN_MS_MIN: i64 = 200;
/// The interval of members that were answered, in a group that changes: at the usual one they would not be here when it changes again.
const LIVELY_INTERVAL_MS: i32 = 1_000;
/// A group changes as long as its last change is not longer ago.
const LIVELY_MS: i64 = 60_000;
/// How long a joining member's answer waits for the partitions that others let go for it.
pub(super) const JOIN_HOLD_MS: i64 = 2_000;

/// Why a member is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// There is news for it, or its answer can't be held back.
    News,
    /// Another request waits behind it.
    Interrupted,
    /// It was held back for as long as may be.
    TimeUp,
}

/// For how long a heartbeat may be held back whose sender was told to come every `told_ms`; 0 is not at all.
pub(super) fn hold_ms(told_ms: i32, asked_ms: i64) -> i64 {
    let told_ms = i64::from(told_ms);
    let margin_ms = (told_ms / 10).max(MARGIN_MS_MIN);
    told_ms.saturating_sub(margin_ms).min(asked_ms).max(0)
}

impl Consumer {
    /// It was not told of the newest epoch yet, as its heartbeat was held back.
    pub(super) fn is_behind(&self, member: &ConsumerMember) -> bool {
        member.state != MemberState::UnrevokedPartitions && member.classic().is_none() && member.epoch < self.target.assignment_epoch
    }

    /// The interval that a member is told.
    pub(super) fn interval_ms(&self, around: &Surroundings<'_>, member: &ConsumerMember, why: Why) -> i32 {
        let usual = around.heartbeat_interval_ms();
        let (told, holds) = self.memory.timers.get(&member.id).map_or((0, false), |timers: &Timers| (timers.told_ms, timers.holds));
        let settled = self.epoch == self.target.assignment_epoch && member.is_reconciled_to(self.epoch);
        let since_ms = around.now.wall.0.saturating_sub(self.target.assignment_timestamp.0);
        let lively = (0..LIVELY_MS).contains(&since_ms);
        let interval = match why {
            Why::News | Why::TimeUp if !settled && lively => around.settings.group_consumer_rebalance_heartbeat_interval_ms,
            Why::News | Why::Interrupted if lively && holds => LIVELY_INTERVAL_MS,
            Why::TimeUp if lively => told.max(LIVELY_INTERVAL_MS),
            _ => usual,
        };
        interval.min(usual)
    }
}

#[cfg(test)]
mod tests {
    use super::hold_ms;

    #[test]
    fn an_answer_leaves_before_its_member_gives_up() {
        assert_eq!(hold_ms(5_000, i64::MAX), 4_500);
        assert_eq!(hold_ms(1_000, i64::MAX), 800);
        assert_eq!(hold_ms(1_000, 300), 300);
        assert_eq!(hold_ms(500, i64::MAX), 300);
        assert_eq!((hold_ms(100, i64::MAX), hold_ms(0, i64::MAX), hold_ms(5_000, -1)), (0, 0, 0));
    }
}
