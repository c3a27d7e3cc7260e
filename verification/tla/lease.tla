-------------------------------- MODULE lease --------------------------------
(* Locks with a queue on a store that has a clock and carries out each request   *)
(* as one step: memory, SQLite, SQL `lease`, the Redis scripts.                  *)
(*                                                                              *)
(* Requests arrive late, after their sender has given up or has repeated them.   *)
(* Replies are late or lost. Clients stop for any time. A claim whose release    *)
(* failed is released later, beside the next claim of its client.                *)
(*                                                                              *)
(* Left out, and why that is safe:                                               *)
(* - Notifications. They only make a client ask sooner, and a client asks at any *)
(*   time here. Liveness is the subject of the simulator.                        *)
(* - Tokens. They are drawn in the step that grants.                             *)
(* - The death of a client. On stores that see it, it ends a hold at once and    *)
(*   no client believes in that hold any more; elsewhere the client only stops.  *)
(* - Clock drift. It only shortens what a holder counts; Margin stands for it.   *)
(* Left out, and not safe to conclude about: update, upgrading, permits, min_hold, *)
(* break, resize, local hand-off, cached leases, data loss, clocks that go back. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Clients,
  Leases,     \* the lengths of leases that a claim may ask for
  Offer,      \* for how long a grant to a waiter lasts before it is confirmed
  Margin,     \* how much earlier than the store a holder counts its lease as over
  Modes,      \* of "exclusive" and "shared"
  MaxLate,    \* how many requests are under way whose sender does not wait for them
  Renewals,   \* how many renewals of a client are under way at once
  Forget,     \* a claim that has not last_seen for too long may be dropped from the queue
  Punctual,   \* a client that is not stopped reports a loss before time passes on
  Drops,      \* a lost hold may be dropped by its owner without a release
  Distinct,   \* requests are told apart by when they were sent; for traces
  Flaw        \* the planted flaw, or "none"

VARIABLES now, holds, queue, lapsed_offer, tombs, net, cl, dropped
vars == <<now, holds, queue, lapsed_offer, tombs, net, cl, dropped>>

(* phase: idle, asking, held, lost (its loss was reported). busy: an ask or a release is *)
(* under way. unsure: an ask of this claim was not answered. over: nothing of the claim  *)
(* is left to release. valid: until when the client believes to hold.                    *)
Idle == [k |-> 0, wait |-> FALSE, mode |-> "exclusive", lease |-> 0, phase |-> "idle", busy |-> FALSE,
         unsure |-> FALSE, over |-> TRUE, valid |-> 0, awake |-> TRUE]
Init == /\ now = 1 /\ holds = {} /\ queue = <<>> /\ lapsed_offer = 0 /\ tombs = {} /\ net = {} /\ dropped = {}
        /\ cl = [c \in Clients |-> Idle]

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Largest(X) == CHOOSE x \in X : \A y \in X : y <= x
Least(X) == CHOOSE x \in X : \A y \in X : x <= y
Conflict(a, b) == ~(a = "shared" /\ b = "shared")

----------------------------------------------------------------------------
(* The rules of src/leaselock/_core/rules.py. s is the lock, as a record.       *)

S == [holds |-> holds, queue |-> queue, lapsed_offer |-> lapsed_offer]
Ended(h) == h.ends <= now + (IF Flaw = "expires_early" THEN 1 ELSE 0)
Expire(s) ==
  LET gone == {h \in s.holds : Ended(h)}
      lapsed == {h.ends - Offer : h \in {x \in gone : x.offered}}
  IN [s EXCEPT !.holds = @ \ gone, !.lapsed_offer = Largest({@} \cup lapsed)]
Touch(s, c) ==
  IF s.lapsed_offer = 0 THEN s
  ELSE LET q == [i \in DOMAIN s.queue |-> IF s.queue[i].id[1] = c THEN [s.queue[i] EXCEPT !.last_seen = now] ELSE s.queue[i]]
       IN [s EXCEPT !.queue = q, !.lapsed_offer = IF \A i \in DOMAIN q : q[i].last_seen >= s.lapsed_offer THEN 0 ELSE s.lapsed_offer]
Eligible(s) == {i \in DOMAIN s.queue : s.queue[i].last_seen >= s.lapsed_offer}
Without(q, ids) == SelectSeq(q, LAMBDA e : e.id \notin ids)
Grant(e, lasts, offered) == [id |-> e.id, mode |-> e.mode, ends |-> now + lasts, offered |-> offered]
(* Readers up to the first writer; a writer at the head, if nothing is held. *)
Promote(s) ==
  LET able == Eligible(s)
      writers == {i \in able : s.queue[i].mode = "exclusive"}
      readers == {i \in able : writers = {} \/ i < Least(writers)}
      next == IF \E h \in s.holds : h.mode = "exclusive" THEN (IF Flaw = "promotes_beside" THEN readers ELSE {})
              ELSE IF readers # {} THEN readers
              ELSE IF writers # {} /\ (s.holds = {} \/ Flaw = "writer_beside_readers") THEN {Least(writers)} ELSE {}
      ids == {s.queue[i].id : i \in next}
  IN [s EXCEPT !.holds = @ \cup {Grant(s.queue[i], Min(s.queue[i].lease, Offer), TRUE) : i \in next},
               !.queue = Without(@, ids)]
Join(s, e) ==
  IF \E i \in DOMAIN s.queue : s.queue[i].id = e.id
  THEN [s EXCEPT !.queue = [i \in DOMAIN @ |-> IF @[i].id = e.id THEN e ELSE @[i]]]
  ELSE [s EXCEPT !.queue = Append(@, e)]
Ahead(s, id) ==  \* the eligible claims ahead; all, if it is not queued
  LET at == {i \in DOMAIN s.queue : s.queue[i].id = id}
  IN {i \in Eligible(s) : at = {} \/ i < Least(at)}
(* A request may drop claims that have not last_seen for long. It drops those that it looks at. *)
Stale == {queue[i].id : i \in {j \in DOMAIN queue : queue[j].last_seen + Forget <= now}}
Dropping(s, ids) == [s EXCEPT !.queue = Without(@, ids)]

Acquire(m, stale) ==
  IF m.id \in tombs /\ Flaw # "no_tombstone" THEN [s |-> S, answer |-> "refused"]
  ELSE LET s == Promote(Touch(Expire(Dropping(S, stale)), m.id[1]))
           own == {h \in s.holds : h.id = m.id}
           e == [id |-> m.id, mode |-> m.mode, lease |-> m.lease, last_seen |-> now]
       IN IF own # {}
          THEN [s |-> [s EXCEPT !.holds = {IF h.id = m.id THEN [h EXCEPT !.ends = Max(@, now + m.lease), !.offered = FALSE] ELSE h : h \in @}],
                answer |-> "held"]
          ELSE IF /\ \A h \in s.holds : ~Conflict(h.mode, m.mode)
                  /\ \A i \in Ahead(s, m.id) : ~Conflict(s.queue[i].mode, m.mode) \/ Flaw = "overtakes"
          THEN [s |-> [s EXCEPT !.holds = @ \cup {Grant(e, m.lease, FALSE)}, !.queue = Without(@, {m.id})], answer |-> "held"]
          ELSE [s |-> IF m.wait THEN Join(s, e) ELSE s, answer |-> "busy"]
Renew(m, stale) ==
  LET own == {h \in holds : h.id = m.id /\ ~Ended(h)}
  IN IF own # {}
     THEN [s |-> [S EXCEPT !.holds = {IF h.id = m.id THEN [h EXCEPT !.ends = Max(@, now + m.lease), !.offered = FALSE] ELSE h : h \in @}],
           answer |-> "held"]
     ELSE [s |-> S, answer |-> "lost"]
Release(m, stale) ==
  LET s == Dropping(S, stale)
      left == [s EXCEPT !.holds = IF Flaw = "release_unchecked" THEN {} ELSE {h \in @ : h.id # m.id}, !.queue = Without(@, {m.id})]
  IN [s |-> Promote(Expire(left)), answer |-> "released"]
Done(m, stale) == CASE m.op = "ask" -> Acquire(m, stale) [] m.op = "renew" -> Renew(m, stale) [] m.op = "release" -> Release(m, stale)

----------------------------------------------------------------------------
(* A client.                                                                  *)

Message(c, k, op, r) ==
  [c |-> c, id |-> <<c, k>>, op |-> op, wait |-> r.wait, mode |-> r.mode, lease |-> r.lease, tomb |-> FALSE,
   start |-> IF op = "release" /\ ~Distinct THEN 0 ELSE now, live |-> TRUE, sticky |-> FALSE, answer |-> ""]
Send(m, r) == /\ net' = net \cup {m} /\ cl' = [cl EXCEPT ![m.c] = r]
              /\ UNCHANGED <<now, holds, queue, lapsed_offer, tombs, dropped>>
Ready(c) == cl[c].awake /\ ~cl[c].busy

NewClaim(c, wait, mode, lease) ==
  /\ Ready(c) /\ cl[c].over
  /\ LET r == [Idle EXCEPT !.k = cl[c].k + 1, !.wait = wait, !.mode = mode, !.lease = lease, !.phase = "asking", !.over = FALSE, !.busy = TRUE]
     IN Send(Message(c, r.k, "ask", r), r)
AskAgain(c) == Ready(c) /\ cl[c].phase = "asking" /\ Send(Message(c, cl[c].k, "ask", cl[c]), [cl[c] EXCEPT !.busy = TRUE])
RenewFor(c, lease) ==
  /\ cl[c].awake /\ cl[c].phase = "held" /\ cl[c].valid > now
  /\ Cardinality({m \in net : m.c = c /\ m.op = "renew" /\ m.live}) < Renewals
  /\ Send(Message(c, cl[c].k, "renew", [cl[c] EXCEPT !.lease = lease]), cl[c])
(* At the end of the body, at a timeout, when it is cancelled, or when it is lost. A claim *)
(* that is unsure leaves a tombstone; another one may.                                     *)
ReleaseWith(c, tomb) ==
  /\ Ready(c) /\ ~cl[c].over /\ (cl[c].unsure => tomb)
  /\ Send([Message(c, cl[c].k, "release", cl[c]) EXCEPT !.tomb = tomb], [cl[c] EXCEPT !.phase = "idle", !.valid = 0, !.busy = TRUE])
(* The same in the background: the client repeats it until it is answered, beside its next claim. *)
ReleaseLater(c) ==
  /\ Ready(c) /\ ~cl[c].over
  /\ Send([Message(c, cl[c].k, "release", cl[c]) EXCEPT !.tomb = TRUE, !.live = FALSE, !.sticky = TRUE],
          [cl[c] EXCEPT !.phase = "idle", !.valid = 0, !.over = TRUE])
(* The owner of a lost hold drops it, and never releases it. *)
Drop(c) ==
  /\ Drops /\ Ready(c) /\ cl[c].phase \in {"held", "lost"} /\ cl[c].valid <= now
  /\ cl' = [cl EXCEPT ![c] = [@ EXCEPT !.phase = "idle", !.valid = 0, !.over = TRUE]]
  /\ dropped' = dropped \cup {<<c, cl[c].k>>}
  /\ UNCHANGED <<now, holds, queue, lapsed_offer, tombs, net>>
Notice(c) ==
  /\ Punctual /\ cl[c].awake /\ cl[c].phase = "held" /\ cl[c].valid <= now
  /\ cl' = [cl EXCEPT ![c].phase = "lost", ![c].valid = 0]
  /\ UNCHANGED <<now, holds, queue, lapsed_offer, tombs, net, dropped>>
Sleep(c) == Punctual /\ cl' = [cl EXCEPT ![c].awake = ~@] /\ UNCHANGED <<now, holds, queue, lapsed_offer, tombs, net, dropped>>

Until(m) == (IF Flaw = "from_reply" THEN now ELSE m.start) + m.lease - Margin
Take(r, m) ==
  CASE m.op = "ask" /\ m.answer = "held" ->
         IF Until(m) > now THEN [r EXCEPT !.busy = FALSE, !.phase = "held", !.valid = Until(m)] ELSE [r EXCEPT !.busy = FALSE]
    [] m.op = "ask" /\ m.answer # "held" ->
         \* a try that was refused has left nothing there, if all of its requests were answered
         IF ~r.wait /\ (~r.unsure \/ Flaw = "try_not_withdrawn") THEN [r EXCEPT !.busy = FALSE, !.phase = "idle", !.over = TRUE]
         ELSE [r EXCEPT !.busy = FALSE]
    [] m.op = "renew" ->
         \* a hold whose loss was not read yet is valid again, for the store says that it never ended
         IF r.phase # "held" \/ m.id[2] # r.k THEN r
         ELSE IF m.answer = "held" THEN [r EXCEPT !.valid = Max(@, Until(m))] ELSE [r EXCEPT !.valid = 0]
    [] m.op = "release" -> [r EXCEPT !.busy = FALSE, !.phase = "idle", !.over = TRUE, !.valid = 0]
Unsure(r, m) == IF m.op = "renew" THEN r ELSE [r EXCEPT !.busy = FALSE, !.unsure = @ \/ (m.op = "ask" /\ Flaw # "not_unsure")]

Arrive(m) ==
  /\ m.answer = ""
  /\ \E stale \in SUBSET Stale :
       LET done == Done(m, stale)
           told == [m EXCEPT !.answer = done.answer]
       IN /\ holds' = done.s.holds /\ queue' = done.s.queue /\ lapsed_offer' = done.s.lapsed_offer
          /\ tombs' = IF m.tomb THEN tombs \cup {m.id} ELSE tombs
          /\ \/ ~m.sticky /\ m.live /\ net' = (net \ {m}) \cup {told}   \* the reply is under way
             \/ ~m.live /\ net' = net \ {m}                            \* no one waits for it
             \/ m.sticky /\ net' = net                                 \* its reply is lost, and it is repeated
  /\ UNCHANGED <<now, cl, dropped>>
Reply(m) ==
  /\ m.answer # "" /\ cl[m.c].awake /\ net' = net \ {m}
  /\ cl' = [cl EXCEPT ![m.c] = Take(@, m)]
  /\ UNCHANGED <<now, holds, queue, lapsed_offer, tombs, dropped>>
(* The request may still arrive, or be lost. *)
GiveUp(m) ==
  /\ m.live /\ cl[m.c].awake
  /\ \/ net' = net \ {m}
     \/ m.answer = "" /\ net' = (net \ {m}) \cup {[m EXCEPT !.live = FALSE, !.start = IF Distinct THEN @ ELSE 0]}
  /\ cl' = [cl EXCEPT ![m.c] = Unsure(@, m)]
  /\ UNCHANGED <<now, holds, queue, lapsed_offer, tombs, dropped>>
Prompt == Punctual => \A c \in Clients : ~(cl[c].awake /\ cl[c].phase = "held" /\ cl[c].valid <= now)
Tick == Prompt /\ now' = now + 1 /\ UNCHANGED <<holds, queue, lapsed_offer, tombs, net, cl, dropped>>

Next == \/ Tick
        \/ \E c \in Clients :
             \/ \E wait \in BOOLEAN, mode \in Modes, lease \in Leases : NewClaim(c, wait, mode, lease)
             \/ AskAgain(c) \/ ReleaseLater(c) \/ Drop(c) \/ Notice(c) \/ Sleep(c)
             \/ \E lease \in Leases : RenewFor(c, lease)
             \/ ReleaseWith(c, cl[c].unsure)
        \/ \E m \in net : Arrive(m) \/ Reply(m) \/ GiveUp(m)
Spec == Init /\ [][Next]_vars
Bounded == Cardinality({m \in net : ~m.live}) <= MaxLate
Symmetric == Permutations(Clients)

----------------------------------------------------------------------------
(* Two states are the same if they differ only in what no later step can see.   *)
(* Times count as what is left of them. `last_seen` is compared with           *)
(* `lapsed_offer`, with                                                         *)
(* the begin of an offer that may still lapse, and with the begin of later ones, *)
(* which is no earlier than now + Least(Leases) - Offer. An age that is cut off  *)
(* loses the second comparison: this made the view of the prototype inexact.     *)
Known == {m.id : m \in net} \cup {<<c, cl[c].k>> : c \in Clients} \cup {h.id : h \in holds} \cup {queue[i].id : i \in DOMAIN queue}
Rank(id) == Cardinality({x \in Known : x[1] = id[1] /\ x[2] > id[2]})
Pending == {m.id : m \in net} \cup {<<c, cl[c].k>> : c \in Clients}
View == <<{<<h.id[1], Rank(h.id), h.mode, Max(h.ends - now, 0), h.offered,
             IF h.offered THEN {i \in DOMAIN queue : queue[i].last_seen >= h.ends - Offer} ELSE {}>> : h \in holds},
          [i \in DOMAIN queue |-> <<queue[i].id[1], Rank(queue[i].id), queue[i].mode, queue[i].lease, Min(now - queue[i].last_seen, Offer), queue[i].last_seen >= lapsed_offer>>],
          {<<id[1], Rank(id)>> : id \in tombs \cap Pending},
          {<<id[1], Rank(id)>> : id \in dropped \cap Known},
          {<<m.c, Rank(m.id), m.op, m.wait, m.mode, m.lease, m.tomb, IF m.start = 0 THEN -1 ELSE Max(m.start + m.lease - now, 0), m.live, m.sticky, m.answer>> : m \in net},
          [c \in Clients |-> IF cl[c].over THEN <<cl[c].awake>>
             ELSE <<cl[c].awake, cl[c].wait, cl[c].mode, cl[c].lease, cl[c].phase, cl[c].busy, cl[c].unsure, Max(cl[c].valid - now, 0)>>]>>

Holds(c) == cl[c].valid > now
(* No two clients believe to hold in conflicting modes. *)
Exclusion == \A c, d \in Clients : Holds(c) /\ Holds(d) /\ c # d => ~Conflict(cl[c].mode, cl[d].mode)
StoreExclusion == \A g, h \in holds : g # h /\ ~Ended(g) /\ ~Ended(h) => ~Conflict(g.mode, h.mode)
(* A client that believes to hold, holds in the store, for no shorter a time. *)
Agreed == \A c \in Clients : Holds(c) => \E h \in holds : h.id = <<c, cl[c].k>> /\ h.ends >= cl[c].valid
(* What was released for certain neither holds nor waits. *)
Alive(id) == \/ cl[id[1]].k = id[2] /\ ~cl[id[1]].over
             \/ \E m \in net : m.sticky /\ m.id = id
             \/ id \in dropped
Ghosts == (\A h \in holds : Alive(h.id)) /\ \A i \in DOMAIN queue : Alive(queue[i].id)
(* A hold that is not released ends by itself. *)
DroppedEnds == \A h \in holds : h.id \in dropped => h.ends <= now + Largest(Leases)
(* A client that runs has reported a loss before the store grants the lock to another. *)
NoticeFirst == \A c \in Clients, h \in holds :
  Punctual /\ cl[c].awake /\ cl[c].phase = "held" /\ h.id[1] # c /\ Conflict(h.mode, cl[c].mode) => \E g \in holds : g.id = <<c, cl[c].k>>
(* A waiter is not overtaken: a conflicting claim that joined later, or that tried, does not hold beside it. *)
NoTwice == \A i, j \in DOMAIN queue : i # j => queue[i].id # queue[j].id
=============================================================================
