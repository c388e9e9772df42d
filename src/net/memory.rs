//! The budget for the bytes of requests in flight (`queued.max.request.bytes`).
//!
//! A frame takes its length from it before its bytes are read, and gives it back when its answer has left. Without room a
//! connection stops reading: its client slows down, the broker doesn't grow.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits are handed out in units of this many bytes, so that 32 bits of them are enough.
const UNIT_BYTES: usize = 1024;

/// Shared by all connections.
#[derive(Debug, Clone)]
pub struct Memory {
    units: Arc<Semaphore>,
    units_max: u32,
}

/// A part of the budget; comes back when dropped.
pub type Reserved = OwnedSemaphorePermit;

impl Memory {
    /// A budget of `bytes`; at least one unit.
    pub fn new(bytes: usize) -> Self {
        let units_max = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX >> 3).clamp(1, u32::MAX >> 3);
        Self { units: Arc::new(Semaphore::new(units_max as usize)), units_max }
    }

    /// A request larger than the whole budget takes all of it, so that it passes alone instead of never.
    fn units(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).min(self.units_max)
    }

    pub fn try_reserve(&self, bytes: usize) -> Option<Reserved> {
        self.units.clone().try_acquire_many_owned(self.units(bytes)).ok()
    }

    /// Waits for room, first come first served. `None` never happens: the semaphore is not closed.
    pub async fn reserve(&self, bytes: usize) -> Option<Reserved> {
        self.units.clone().acquire_many_owned(self.units(bytes)).await.ok()
    }

    /// What is taken, for metrics.
    pub fn used_bytes(&self) -> usize {
        (self.units_max as usize).saturating_sub(self.units.available_permits()).saturating_mul(UNIT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back() {
        let memory = Memory::new(10 * 1024);
        let eight = memory.try_reserve(8 * 1024).unwrap();
        assert!(memory.try_reserve(4 * 1024).is_none());
        assert_eq!(memory.used_bytes(), 8 * 1024);
        drop(eight);
        assert!(memory.try_reserve(1 << 30).is_some(), "a giant passes alone");
    }
}
