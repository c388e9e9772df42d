//! Mistakes that tests plant, to see that the simulation finds them. Outside of tests there are none.

/// A mistake that would be easy to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::group) enum Mistake {
    /// A partition is granted while another member has it.
    GrantsWhatOthersHave,
    /// A member that says nothing of what it owns is taken to have let go.
    TakesSilenceForRelease,
    /// Nobody's session ends.
    WaitsForEver,
    /// A group that migrates forgets what its members have that are in a rebalance.
    ForgetsOnUpgrade,
    /// Whoever commits is believed.
    BelievesCommits,
    /// A classic member whose heartbeat is held back doesn't hear that its group rebalances.
    HoldsOn,
}

#[cfg(test)]
impl Mistake {
    pub const ALL: [Self; 6] = [
        Self::GrantsWhatOthersHave,
        Self::TakesSilenceForRelease,
        Self::WaitsForEver,
        Self::ForgetsOnUpgrade,
        Self::BelievesCommits,
        Self::HoldsOn,
    ];
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread makes it.
#[cfg(test)]
pub(in crate::group) fn plant(mistake: Option<Mistake>) {
    PLANTED.set(mistake);
}

#[cfg(test)]
pub(in crate::group) fn is(mistake: Mistake) -> bool {
    PLANTED.get() == Some(mistake)
}

#[cfg(not(test))]
pub(in crate::group) const fn is(_: Mistake) -> bool {
    false
}
