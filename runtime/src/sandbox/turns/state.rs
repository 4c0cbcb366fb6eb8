//! The turns that are held, kept or given away, and who is next: the rules alone.
//!
//! Pure: no threads, no wakers, and no clock but the moments that are passed in. What is free and who waits is a
//! [`Line`], in which nothing can be free while somebody waits; here is what a turn's holder may do with it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_gpu::line::{Line, Ticket};
use weft_gpu::share::Member;

use super::{Keeps, Share, ShareId};

#[cfg(test)]
mod tests;

/// What a turn is assumed to cost until it has been measured: about one epoch.
const ADVANCE: Duration = Duration::from_millis(1);

/// How long a turn may take before another guest is let in beside it.
pub(super) const OVERDUE: Duration = Duration::from_millis(10);

/// How long a guest may be inside a kernel before its turn goes to the next.
pub(super) const ASIDE: Duration = Duration::from_millis(2);

/// How long a share keeps its turn while others wait.
pub(super) const KEPT: Duration = Duration::from_millis(2);

/// How long it does while only workers of the same job wait: they wait for each other in any case.
pub(super) const KEPT_FROM_PEERS: Duration = Duration::from_millis(16);

/// By how much a share of ordinary weight must be owed more than the next in line to have its turn kept while it waits for
/// others. Less would leave cores idle between shares of the same weight.
pub(super) const OWED: Duration = Duration::from_millis(1);

/// How long a kept turn may be idle before it goes to the next.
pub(super) const IDLE: Duration = Duration::from_millis(1);

/// Names a turn. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId(pub(super) u64);

#[derive(Clone, Debug)]
pub(super) struct State {
    line: Line,
    members: BTreeMap<ShareId, Member>,
    keeps: BTreeMap<Member, Keeps>,
    /// By how much each must be owed more to be waited for: the same of everybody's share, whatever it weighs.
    owed: BTreeMap<Member, Duration>,
    turns: BTreeMap<TurnId, Turn>,
    /// How many more overdue turns may be relieved.
    reserves: usize,
    begun: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Turn {
    member: Member,
    since: Instant,
    /// When the call that it is used for began.
    pub call: Instant,
    pub standing: Standing,
}

/// What has become of a turn since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its guest computes.
    Held,
    /// Its share has it between two calls, since then.
    Kept(Instant),
    /// Its guest is inside a kernel, and the turn is another's by now. The guest asks for a new one when it comes back.
    Left,
    /// Its guest computes and cannot be interrupted; another was let in beside it.
    Relieved,
}

/// What comes of asking for a turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Turn(TurnId),
    Waits(Ticket),
}

impl State {
    pub fn new(cores: usize) -> Self {
        Self {
            line: Line::new(cores),
            members: BTreeMap::new(),
            keeps: BTreeMap::new(),
            owed: BTreeMap::new(),
            turns: BTreeMap::new(),
            reserves: cores,
            begun: 0,
        }
    }

    /// A share that has not been here before joins.
    pub fn join(&mut self, share: &Share) -> bool {
        let is_new = !self.members.contains_key(&share.id);
        if is_new {
            let member = self.line.join(&share.owner, share.weight);
            self.members.insert(share.id, member);
            self.keeps.insert(member, share.keeps);
            self.owed.insert(member, OWED * share.weight.get() / Share::ORDINARY.get());
        }
        is_new
    }

    /// The share is gone: it neither waits nor has a turn.
    pub fn leave(&mut self, share: ShareId) {
        if let Some(member) = self.members.remove(&share) {
            if let Some(kept) = self.kept_by(member) {
                self.over(kept);
            }
            self.keeps.remove(&member);
            self.owed.remove(&member);
            self.line.leave(member);
        }
    }

    /// A guest of the share wants to compute.
    pub fn ask(&mut self, share: ShareId, now: Instant) -> Option<Asked> {
        let member = *self.members.get(&share)?;
        if let Some(kept) = self.kept_by(member)
            && let Some(turn) = self.turns.get_mut(&kept)
        {
            (turn.standing, turn.call) = (Standing::Held, now);
            self.line.charge(member, ADVANCE);
            return Some(Asked::Turn(kept));
        }
        if self.line.take(member, 1) {
            return Some(Asked::Turn(self.begin(member, now)));
        }
        Some(Asked::Waits(self.line.ask(member, 1)))
    }

    /// The turn that the ticket was given, if it was.
    pub fn claim(&mut self, ticket: Ticket, now: Instant) -> Option<TurnId> {
        self.line.claim(ticket).then(|| self.begin(ticket.member, now))
    }

    /// Nobody waits with this ticket any more.
    pub fn withdraw(&mut self, ticket: Ticket) {
        self.line.withdraw(ticket);
    }

    /// The guest has used its turn, and wants another at once.
    pub fn yields(&mut self, turn: TurnId, used: Duration) -> Option<Ticket> {
        let member = self.turns.get(&turn)?.member;
        self.line.settle(member, ADVANCE, used);
        // In line first: if it is the one that is owed most, it goes on.
        let ticket = self.line.ask(member, 1);
        self.over(turn);
        Some(ticket)
    }

    /// The guest has used its turn. Its share keeps it, if it keeps turns and others would have it.
    pub fn ends(&mut self, turn: TurnId, used: Duration, now: Instant) {
        let is_contended = self.line.waiting() > 0;
        let Some(held) = self.turns.get_mut(&turn) else { return };
        let member = held.member;
        let keeps = self.keeps.get(&member).is_some_and(|keeps| *keeps != Keeps::Never);
        if keeps && is_contended && held.standing == Standing::Held {
            held.standing = Standing::Kept(now);
            self.line.settle(member, ADVANCE, used);
            return;
        }
        self.line.settle(member, ADVANCE, used);
        self.over(turn);
    }

    /// The share's next call is not to come at once: a turn that it keeps goes to the next, unless the share is owed much
    /// more. Whoever waits for others after every step would else lose its turn each time, whatever it weighs.
    pub fn gives_up(&mut self, share: ShareId) {
        let Some(&member) = self.members.get(&share) else { return };
        if let Some(kept) = self.kept_by(member)
            && !self.is_owed_more(member)
        {
            self.over(kept);
        }
    }

    /// The share has not used the turn that it keeps for too long.
    pub fn expires(&mut self, turn: TurnId) {
        if matches!(self.turns.get(&turn), Some(Turn { standing: Standing::Kept(_), .. })) {
            self.over(turn);
        }
    }

    /// The turn's guest is inside a kernel: somebody who waits has the turn now. Says whether somebody has. One that was
    /// relieved before has given its turn away already; whoever cannot be interrupted next needs its reserve.
    pub fn goes_aside(&mut self, turn: TurnId) -> bool {
        if let Some(relieved) = self.turns.get_mut(&turn).filter(|turn| turn.standing == Standing::Relieved) {
            relieved.standing = Standing::Left;
            self.reserves += 1;
            return true;
        }
        self.gives_away(turn, Standing::Left)
    }

    /// The turn's guest cannot be interrupted: lets somebody in beside it, if somebody waits.
    pub fn is_relieved(&mut self, turn: TurnId) -> bool {
        let relieved = self.reserves > 0 && self.gives_away(turn, Standing::Relieved);
        if relieved {
            self.reserves -= 1;
        }
        relieved
    }

    /// Whether the share has kept its turn for long enough.
    pub fn is_due(&self, share: ShareId, now: Instant) -> bool {
        let Some(&member) = self.members.get(&share) else { return false };
        let Some(turn) = self.kept_by(member).and_then(|kept| self.turns.get(&kept)) else { return false };
        let age = now.saturating_duration_since(turn.since);
        let keeps = self.keeps.get(&member);
        let kept_from_others = || self.line.those_waiting().any(|other| self.keeps.get(&other) != keeps);
        age >= KEPT_FROM_PEERS || age >= KEPT && kept_from_others()
    }

    /// The turns that there are now.
    pub fn turns(&self) -> impl Iterator<Item = (TurnId, &Turn)> {
        self.turns.iter().map(|(&id, turn)| (id, turn))
    }

    /// Who was given a turn since this was last asked.
    pub fn take_granted(&mut self) -> Vec<Ticket> {
        self.line.take_granted()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.line.waiting()
    }

    /// How many turns nobody has.
    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.line.free()
    }

    fn begin(&mut self, member: Member, now: Instant) -> TurnId {
        self.begun += 1;
        let id = TurnId(self.begun);
        self.turns.insert(id, Turn { member, since: now, call: now, standing: Standing::Held });
        self.line.charge(member, ADVANCE);
        id
    }

    /// The turn is over, and what it still has of the line goes back.
    fn over(&mut self, turn: TurnId) {
        let Some(turn) = self.turns.remove(&turn) else { return };
        match turn.standing {
            Standing::Held | Standing::Kept(_) => self.line.release(turn.member, 1),
            Standing::Left => {}
            Standing::Relieved => self.reserves += 1,
        }
    }

    fn gives_away(&mut self, turn: TurnId, standing: Standing) -> bool {
        let is_contended = self.line.waiting() > 0;
        match self.turns.get_mut(&turn) {
            Some(held) if is_contended && held.standing == Standing::Held => {
                held.standing = standing;
                self.line.release(held.member, 1);
                true
            }
            _ => false,
        }
    }

    fn kept_by(&self, member: Member) -> Option<TurnId> {
        if self.keeps.get(&member) == Some(&Keeps::Never) {
            return None;
        }
        let is_kept = |turn: &Turn| turn.member == member && matches!(turn.standing, Standing::Kept(_));
        self.turns.iter().find(|(_, turn)| is_kept(turn)).map(|(&id, _)| id)
    }

    /// Whether the member is owed so much more than the next in line, of another team, that it is worth waiting for.
    fn is_owed_more(&self, member: Member) -> bool {
        let Some(next) = self.line.next() else { return false };
        let by = self.owed.get(&member).copied().unwrap_or(OWED);
        self.keeps.get(&next) != self.keeps.get(&member) && self.line.is_owed_more(member, next, by)
    }
}
