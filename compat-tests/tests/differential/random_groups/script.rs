//! What a script for groups is made of: what some members ask, one request after the other.
//!
//! A script names nothing that a broker chooses. A member is a number; its id, generation, epoch and partitions are what that side last
//! told it, so each request can be said to either broker, and a script with some of its requests left out is a script.

/// What the requests of one script are about: one or two groups, up to four members, three topics.
pub const MEMBERS_MAX: u8 = 4;
/// Topics by number; all others aren't there.
pub const TOPICS: usize = 3;
/// Partitions of each topic.
pub const PARTITIONS: i32 = 4;
/// A group that nobody is ever in.
pub const NOBODYS: u8 = 8;
/// The group without a name.
pub const NAMELESS: u8 = 9;

/// Whose member id a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    /// The member's own, in the protocol of the request; none if it has none yet.
    Mine,
    /// The one before.
    Old,
    /// The one that it has in the other protocol.
    Other,
    Empty,
    Stranger,
    /// Another member's.
    Of(u8),
}

/// A generation or member epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// What the member was told last, and so much more.
    Mine(i32),
    Exactly(i32),
}

/// What a classic member says with a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meta {
    /// A subscription (`ConsumerProtocolSubscription`) to the topics of a bit mask.
    Topics {
        version: i16,
        mask: u8,
        owned: bool,
    },
    Garbage(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// As the member was told.
    Told,
    Wrong,
    None,
}

/// What the leader brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brings {
    /// Partitions for everybody, and for a stranger.
    All,
    /// Nothing for the first member.
    NotAll,
    Nothing,
    /// Bytes that are no assignment of consumers.
    Garbage,
}

/// What a member says that it owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owns {
    Silent,
    /// What it was given last.
    Given,
    /// What it had before that: it has not let go yet.
    Before,
    Nothing,
    /// What nobody has.
    Lie,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    pub version: i16,
    pub id: Id,
    pub instance: Option<u8>,
    pub kind: &'static str,
    pub protocols: Vec<(&'static str, Meta)>,
    pub session_ms: i32,
    pub rebalance_ms: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    pub version: i16,
    pub id: Id,
    pub at: At,
    pub instance: Option<u8>,
    pub kind: Named,
    pub protocol: Named,
    pub brings: Brings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    pub version: i16,
    pub id: Id,
    pub at: At,
    pub instance: Option<u8>,
    pub names: Option<u8>,
    pub assignor: Option<&'static str>,
    pub owns: Owns,
    pub rebalance_ms: i32,
    pub rack: Option<&'static str>,
}

/// Topic, partition, offset, bytes of metadata.
pub type Offset = (u8, i32, i64, Option<usize>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Join(Join),
    Sync(Sync),
    Heartbeat {
        version: i16,
        id: Id,
        at: At,
        instance: Option<u8>,
    },
    Leave {
        version: i16,
        who: Vec<(Id, Option<u8>)>,
    },
    Commit {
        version: i16,
        consumer: bool,
        id: Id,
        at: At,
        instance: Option<u8>,
        offsets: Vec<Offset>,
    },
    Fetch {
        version: i16,
        groups: Vec<u8>,
        topics: Option<Vec<(u8, Vec<i32>)>>,
        stable: bool,
        consumer: bool,
        member: Option<(Id, At)>,
    },
    OffsetDelete {
        topics: Vec<(u8, Vec<i32>)>,
    },
    Describe {
        version: i16,
        groups: Vec<u8>,
    },
    ConsumerDescribe {
        version: i16,
        groups: Vec<u8>,
    },
    List {
        version: i16,
        states: Vec<&'static str>,
        types: Vec<&'static str>,
    },
    Delete {
        version: i16,
        groups: Vec<u8>,
    },
    Find {
        version: i16,
        kind: i8,
        groups: Vec<u8>,
    },
    Beat(Beat),
    /// The member begins anew, as one that was restarted.
    Forget,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub member: u8,
    pub group: u8,
    pub what: What,
}
