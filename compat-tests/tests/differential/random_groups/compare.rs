//! A script said to both brokers in step, and what counts as a difference.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use crate::random_groups::Planted;
use crate::random_groups::known::{self, begins, nothings, put_off, shown, states, targets, tells};
use crate::random_groups::play::{Play, Rest, Said};
use crate::random_groups::script::{Beat, Brings, Id, Join, Meta, Step, What};
use crate::side::line_difference;
use anyhow::{Context, Result};

/// What became of a script.
pub enum Outcome {
    Same,
    Differs(Difference),
    /// Chance made the two go different ways, and why that may be.
    Parted(&'static str),
}

pub struct Difference {
    /// Which step it was.
    pub at: usize,
    pub kind: String,
    pub told: String,
}

/// How long the two may take to come to the same. It is waited for only where they differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    Long,
    Short,
}

/// Groups that a script is about.
const GROUPS: u8 = 2;
/// How often it is looked at least before chance is found to have parted the two, where it may be that one is only slower.
const LOOKS_MIN: u32 = 40;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

struct Pair<'a> {
    theirs: &'a mut Play,
    ours: &'a mut Play,
    /// Each side's groups, by the state they were in.
    before: [BTreeMap<String, String>; 2],
    /// Who led last, by group.
    leaders: BTreeMap<String, String>,
    /// Groups whose assignment Kafka has put off.
    put_off: BTreeSet<String>,
    /// Classic groups with members, and consumer groups.
    classics: BTreeSet<String>,
    consumers: BTreeSet<String>,
    /// What static members said last, by group and name, and why the step at hand may be one that ours does otherwise on purpose.
    said: BTreeMap<(u8, u8), Vec<Meta>>,
    /// Groups of which members said that they own something, and whose leader did not assign all.
    owners: BTreeSet<u8>,
    unread: BTreeSet<u8>,
    on_purpose: Option<&'static str>,
    /// Groups of which something is stored, and those without that one side tells of and the other doesn't.
    stored: BTreeSet<String>,
    /// Groups for which all of a commit was refused.
    refused: BTreeSet<String>,
    nothings: BTreeSet<String>,
    looks_max: u32,
}

pub fn run(script: &[Step], planted: Option<Planted>, patience: Patience, theirs: &mut Play, ours: &mut Play) -> Result<Outcome> {
    let looks_max = if patience == Patience::Long { 2_000 } else { 200 };
    let mut pair = Pair {
        theirs,
        ours,
        before: Default::default(),
        leaders: BTreeMap::new(),
        put_off: BTreeSet::new(),
        classics: BTreeSet::new(),
        consumers: BTreeSet::new(),
        said: BTreeMap::new(),
        owners: BTreeSet::new(),
        unread: BTreeSet::new(),
        on_purpose: None,
        stored: BTreeSet::new(),
        refused: BTreeSet::new(),
        nothings: BTreeSet::new(),
        looks_max,
    };
    let trace = std::env::var("SIM_TRACE").is_ok();
    for (at, step) in script.iter().enumerate() {
        let mut other = step.clone();
        planted.iter().for_each(|plant| plant(&mut other));
        let outcome = pair.step(at, step, &other, trace).with_context(|| format!("{at}: {step:?}"))?;
        if !matches!(outcome, Outcome::Same) {
            return Ok(outcome);
        }
    }
    Ok(Outcome::Same)
}

/// Whether a step only looks: groups are as they were.
fn looks(what: &What) -> bool {
    matches!(
        what,
        What::Fetch { .. } | What::Describe { .. } | What::ConsumerDescribe { .. } | What::List { .. } | What::Find { .. } | What::Forget
    )
}

/// A step, and which of its script.
struct Turn<'a> {
    at: usize,
    step: &'a Step,
}

impl Turn<'_> {
    fn differs(&self, what: &str, theirs: &str, ours: &str) -> Difference {
        let kind = format!("{:?} {}", std::mem::discriminant(&self.step.what), what.split(' ').next().unwrap_or_default());
        Difference { at: self.at, kind, told: format!("=== {what}\n{}", line_difference(theirs, ours)) }
    }
}

/// Answers to requests that waited, by member.
type Answers = Vec<(u8, Said)>;

fn members(answers: &Answers) -> Vec<u8> {
    answers.iter().map(|(member, _)| *member).collect()
}

/// Both sides' groups at one time.
struct Look {
    theirs: Rest,
    ours: Rest,
    put_off: BTreeSet<String>,
    nothings: BTreeSet<String>,
    shown: [String; 2],
    /// Something comes by itself.
    under_way: bool,
}

impl Pair<'_> {
    fn step(&mut self, at: usize, step: &Step, other: &Step, trace: bool) -> Result<Outcome> {
        let turn = Turn { at, step };
        self.on_purpose = self.purpose(step);
        let (theirs, ours) = (self.theirs.say(step)?, self.ours.say(other)?);
        if trace {
            eprintln!("{at}: {step:?}\n- {}", theirs.as_ref().map_or("…", |said| &said.whole));
        }
        if let (Some(theirs), Some(ours)) = (&theirs, &ours)
            && theirs.whole != ours.whole
            && (!tells(&step.what) || self.put_off.is_empty())
        {
            return self.answered_otherwise(&turn, theirs, ours, trace);
        }
        if looks(&step.what) {
            return Ok(Outcome::Same);
        }
        if known::is_refused_upgrade(step, theirs.as_ref(), self.before[0].get(&self.theirs.group(step.group))) {
            return Ok(Outcome::Parted("a refused upgrade"));
        }
        // A group without members of which the last offset is deleted is gone at once; Kafka's is when old offsets are looked for.
        if matches!(step.what, What::OffsetDelete { .. }) {
            self.stored.remove(&self.theirs.group(step.group));
        }
        self.settle(&turn, theirs.as_ref(), trace)
    }

    fn answered_otherwise(&mut self, turn: &Turn<'_>, theirs: &Said, ours: &Said, trace: bool) -> Result<Outcome> {
        let what = &turn.step.what;
        if let Some(why) = known::answer(turn.step, theirs).or_else(|| known::assigned_already(theirs, ours, &self.put_off)) {
            return Ok(Outcome::Parted(why));
        }
        if !self.nothings.is_empty() && (tells(what) || matches!(what, What::Delete { .. } | What::OffsetDelete { .. })) {
            return Ok(Outcome::Parted("a group that is nothing"));
        }
        if trace {
            for play in [&mut *self.theirs, &mut *self.ours] {
                let rest = play.come_to_rest(GROUPS)?;
                eprintln!("{}", shown(play, &rest, &BTreeSet::new(), &BTreeSet::new()));
            }
        }
        self.unless_by_chance(turn.differs(&format!("answer: {}", theirs.label), &theirs.whole, &ours.whole))
    }

    /// Looks until all is the same, or for long enough.
    fn settle(&mut self, turn: &Turn<'_>, said: Option<&Said>, trace: bool) -> Result<Outcome> {
        let (mut theirs, mut ours) = (Answers::new(), Answers::new());
        for looks in 1.. {
            let look = self.look(&mut theirs, &mut ours)?;
            // Nothing that is answered differently becomes the same.
            if let Some(outcome) = self.answers(turn, &theirs, &ours)? {
                return Ok(outcome);
            }
            let same = !look.under_way && look.shown[0] == look.shown[1] && members(&theirs) == members(&ours);
            if same || looks > self.looks_max {
                return self.conclude(turn, said, look, &theirs, &ours, trace);
            }
            if looks > LOOKS_MIN
                && let Some(why) = self.chance(&look.theirs, &look.ours)
            {
                return Ok(Outcome::Parted(why));
            }
            thread::sleep(BETWEEN_LOOKS);
        }
        Ok(Outcome::Same)
    }

    fn look(&mut self, their_answers: &mut Answers, our_answers: &mut Answers) -> Result<Look> {
        let (theirs, ours) = (self.theirs.come_to_rest(GROUPS)?, self.ours.come_to_rest(GROUPS)?);
        their_answers.extend(self.theirs.collect()?);
        our_answers.extend(self.ours.collect()?);
        their_answers.sort_by_key(|(member, _)| *member);
        our_answers.sort_by_key(|(member, _)| *member);
        self.forget_the_removed(their_answers, our_answers);
        let put_off = put_off(&theirs, &ours);
        let nothings = nothings(&self.stored, &self.refused, &theirs, &ours);
        let shown = [shown(self.theirs, &theirs, &put_off, &nothings), shown(self.ours, &ours, &put_off, &nothings)];
        let under_way = begins(&self.before[0], &theirs) || begins(&self.before[1], &ours);
        Ok(Look { theirs, ours, put_off, nothings, shown, under_way })
    }

    /// What came of a step in the end.
    fn conclude(
        &mut self,
        turn: &Turn<'_>,
        said: Option<&Said>,
        look: Look,
        theirs: &Answers,
        ours: &Answers,
        trace: bool,
    ) -> Result<Outcome> {
        if members(theirs) != members(ours) {
            let waits = |play: &Play, answers: &Answers| {
                let answers: Vec<_> = answers.iter().map(|(_, said)| format!("{}: {}", said.label, said.whole)).collect();
                format!("waiting: {:?}\n{}", play.waiting(), answers.join("\n"))
            };
            return self.unless_by_chance(turn.differs("who-waits", &waits(self.theirs, theirs), &waits(self.ours, ours)));
        }
        if look.shown[0] != look.shown[1] {
            return self.unless_by_chance(turn.differs("groups as they are told", &look.shown[0], &look.shown[1]));
        }
        if look.under_way {
            return Ok(Outcome::Differs(turn.differs("a rebalance that doesn't end", &look.shown[0], "")));
        }
        if trace {
            theirs.iter().for_each(|(_, said)| eprintln!("- {}: {}", said.label, said.whole));
            eprintln!("{}", look.shown[0]);
        }
        let before = &self.before[0];
        if known::after_a_downgrade(before, &look.theirs) != known::after_a_downgrade(before, &look.ours) {
            return Ok(Outcome::Parted("what a downgrade gives"));
        }
        self.remember(turn.step, said, look, theirs);
        Ok(Outcome::Same)
    }

    fn remember(&mut self, step: &Step, said: Option<&Said>, look: Look, answers: &Answers) {
        for (_, said) in answers {
            if let Some((_, leader)) = said.led.as_ref().filter(|(_, leader)| !leader.is_empty()) {
                self.leaders.insert(group_of(&said.label), leader.clone());
            }
        }
        let with_members = look.theirs.classic.groups.iter().filter(|group| !group.members.is_empty());
        self.classics = with_members.map(|group| group.group_id.to_string()).collect();
        let consumers = look.theirs.consumer.groups.iter().filter(|group| group.error_code == 0);
        self.consumers = consumers.map(|group| group.group_id.to_string()).collect();
        self.before = [states(&look.theirs), states(&look.ours)];
        (self.put_off, self.nothings) = (look.put_off, look.nothings);
        for (group, state) in &self.before[0] {
            match &**state {
                "Dead" => drop(self.stored.remove(group)),
                "Empty" => {}
                _ => drop(self.stored.insert(group.clone())),
            }
        }
        if matches!(step.what, What::Commit { .. }) {
            let committed = said.is_some_and(|said| said.whole.contains("error_code: 0"));
            if committed { &mut self.stored } else { &mut self.refused }.insert(self.theirs.group(step.group));
        }
    }

    /// A SyncGroup that waits when its member is taken out is never answered by Kafka. Ours says that nobody knows the member.
    fn forget_the_removed(&mut self, theirs: &Answers, ours: &mut Answers) {
        let waiting = self.theirs.waiting();
        ours.retain(|(member, said)| {
            let forgotten = known::is_of_one_removed(said) && waiting.contains(member) && !members(theirs).contains(member);
            if forgotten {
                self.theirs.give_up(*member);
            }
            !forgotten
        });
    }

    /// What is answered differently to requests that waited.
    fn answers(&mut self, turn: &Turn<'_>, theirs: &Answers, ours: &Answers) -> Result<Option<Outcome>> {
        for (member, expected) in theirs {
            let Some((_, said)) = ours.iter().find(|(other, _)| other == member) else { continue };
            if expected.whole == said.whole {
                continue;
            }
            let why = known::fails(expected).or_else(|| known::was_taken_out(turn.step, expected, said));
            let why = why.or_else(|| known::assigned_already(expected, said, &self.put_off));
            if let Some(why) = why.or_else(|| self.another_leads(expected, said)) {
                return Ok(Some(Outcome::Parted(why)));
            }
            let found = turn.differs(&format!("answer: {}", expected.label), &expected.whole, &said.whole);
            return self.unless_by_chance(found).map(Some);
        }
        Ok(None)
    }

    /// Where the one that led is gone, Kafka takes another by the order of a hash table of random ids.
    fn another_leads(&self, theirs: &Said, ours: &Said) -> Option<&'static str> {
        let ((their_answer, their_leader), (our_answer, our_leader)) = (theirs.led.as_ref()?, ours.led.as_ref()?);
        let last = self.leaders.get(&group_of(&theirs.label));
        let gone = last.is_none_or(|last| last != their_leader && last != our_leader);
        (their_answer == our_answer && their_leader != our_leader && gone).then_some("another leads")
    }

    fn unless_by_chance(&mut self, found: Difference) -> Result<Outcome> {
        let (theirs, ours) = (self.theirs.come_to_rest(GROUPS)?, self.ours.come_to_rest(GROUPS)?);
        Ok(self.chance(&theirs, &ours).map_or(Outcome::Differs(found), Outcome::Parted))
    }

    /// What ours does otherwise on purpose: Kafka leaves members without what they are to read where they change their group's protocol while
    /// they are in it, come back as static ones with other topics, or lead and come back while partitions are read by nobody; and when a
    /// classic group becomes a consumer group it forgets what members said they own.
    fn purpose(&mut self, step: &Step) -> Option<&'static str> {
        let group = self.theirs.group(step.group);
        match &step.what {
            What::Beat(Beat { instance, id, .. }) if self.classics.contains(&group) => {
                let own = instance.is_some() || *id == Id::Other;
                let own = own.then_some("a member's own upgrade");
                own.or_else(|| self.owners.contains(&step.group).then_some("what members said they own"))
            }
            What::Join(Join { instance, protocols, .. }) => {
                let metas: Vec<Meta> = protocols.iter().map(|(_, meta)| *meta).collect();
                if metas.iter().any(|meta| matches!(meta, Meta::Topics { owned: true, .. })) {
                    self.owners.insert(step.group);
                }
                let all_read = metas.iter().all(|meta| matches!(meta, Meta::Topics { mask: 1, .. })) && !self.unread.contains(&step.group);
                let before = self.said.insert((step.group, (*instance)?), metas.clone());
                if self.consumers.contains(&group) {
                    Some("a static member's downgrade")
                } else if before.is_some_and(|before| before != metas) {
                    Some("a static member with other topics")
                } else {
                    (!all_read).then_some("a static leader and partitions that nobody reads")
                }
            }
            What::Sync(sync) if sync.brings != Brings::All => {
                self.unread.insert(step.group);
                None
            }
            _ => None,
        }
    }

    /// Why the two may have given partitions to others, if they have: from then on they have little in common.
    fn chance(&self, theirs: &Rest, ours: &Rest) -> Option<&'static str> {
        if self.on_purpose.is_some() {
            return self.on_purpose;
        }
        let (their_groups, our_groups) = (&theirs.consumer, &ours.consumer);
        if targets(self.theirs, their_groups) == targets(self.ours, our_groups) || !known::as_good(their_groups, our_groups) {
            None
        } else if known::is_made(their_groups) && known::is_made(our_groups) {
            Some("other ids")
        } else if known::is_of_several_topics(their_groups) {
            Some("several topics")
        } else if !known::is_in_order(their_groups) {
            Some("ids in another order")
        } else {
            (!self.put_off.is_empty()).then_some("assigned in between")
        }
    }
}

fn group_of(label: &str) -> String {
    label.rsplit(' ').next().unwrap_or_default().to_owned()
}
