-------------------------------- MODULE lease --------------------------------
(* Locks with a queue on a store that has a clock and carries out each request   *)
(* as one step: memory, SQLite, SQL `lease`, the Redis scripts. The decisions of  *)
(* the store are in rules.tla.                                                    *)
(*                                                                              *)
(* Requests arrive late, after their sender has given up or has repeated them.   *)
(* Replies are late or lost. Clients stop for any time. A claim whose release    *)
(* failed is released later, beside the next claim of its client. A hold is      *)
(* converted to another mode.                                                    *)
(*                                                                              *)
(* Left out, and why that is safe:                                               *)
(* - Notifications. They only make a client ask sooner, and a client asks at any *)
(*   time here. Liveness is the subject of the simulator.                        *)
(* - Tokens. They are drawn in the step that grants.                             *)
(* - The death of a client. On stores that see it, it ends a hold at once, and   *)
(*   the dead client does not use it; elsewhere it is a client that stops.       *)
(* - Clock drift. It only shortens what a holder counts; Margin stands for it.   *)
(* - Which of its own claims a client serves first.                              *)
(* Left out, and not safe to conclude about: min_hold, break, resize, semaphores *)
(* of unknown size, numbered permits, data loss, clocks that go back.            *)
EXTENDS rules, TLC

CONSTANTS
  Clients,
  Leases,      \* the lengths of leases that a claim may ask for
  Offer,       \* for how long a grant to a waiter lasts before it is confirmed
  Margin,      \* how much earlier than the store a holder counts its lease as over
  Modes,       \* of "exclusive", "shared", "update" and "permits"
  Permits,     \* how many permits a claim of the mode "permits" may ask for
  Conversions, \* how many conversions of a hold there are
  MaxLate,     \* how many requests are under way whose sender does not wait for them
  Renewals,    \* how many renewals of a client are under way at once
  Forget,      \* a claim that has not asked for so long may be dropped from the queue; 0: never
  Punctual,    \* a client that is not stopped reports a loss before time passes on
  Drops,       \* a lost hold may be dropped by its owner without a release
  Distinct     \* requests are told apart by when they were sent; for traces

VARIABLES now, holds, queue, lapsed_offer, tombs, net, cl, dropped, overtaken
vars == <<now, holds, queue, lapsed_offer, tombs, net, cl, dropped, overtaken>>
store == <<holds, queue, lapsed_offer, tombs, overtaken>>

(* phase: idle, asking, held, lost (its loss was reported). busy: an ask, a conversion or a *)
(* release is under way. unsure: an ask of this claim was not answered. over: nothing of    *)
(* the claim is left to release. valid: until when the client counts on its hold, in mode.  *)
(* step, to: number and mode of its last conversion; pending: it was not answered.          *)
Idle == [k |-> 0, wait |-> FALSE, mode |-> "exclusive", permits |-> 1, lease |-> 0, phase |-> "idle", busy |-> FALSE,
         unsure |-> FALSE, over |-> TRUE, valid |-> 0, awake |-> TRUE, step |-> 0, to |-> "", pending |-> FALSE]
Init == /\ now = 1 /\ holds = {} /\ queue = <<>> /\ lapsed_offer = 0 /\ tombs = {} /\ net = {} /\ dropped = {} /\ overtaken = FALSE
        /\ cl = [c \in Clients |-> Idle]

----------------------------------------------------------------------------
(* The store.                                                                 *)

S == [holds |-> holds, queue |-> queue, lapsed_offer |-> lapsed_offer]
Ended(h) == h.ends <= now + (IF Flaw = "expires_early" THEN 1 ELSE 0)
Begun(h) == h.ends - Offer
Grant(e, lasts, offered) ==
  [id |-> e.id, mode |-> e.mode, permits |-> e.permits, step |-> 0, ends |-> now + lasts, offered |-> offered]
Offered(e) == Grant(e, Min(e.lease, Offer), TRUE)
Put(h) == h
Confirm(h, lease) == [h EXCEPT !.ends = Max(@, now + lease), !.offered = FALSE]
Settled(s) == Promote(Expire(s, Ended, Begun), Offered, Put)

(* A request may drop claims that have not asked for long. It drops those that it looks at. *)
Stale == IF Forget = 0 THEN {} ELSE {queue[i].id : i \in {j \in DOMAIN queue : queue[j].last_seen + Forget <= now}}
Dropping(stale) == [S EXCEPT !.queue = Without(@, stale)]

Acquire(m, stale) ==
  IF m.id \in tombs /\ Flaw # "no_tombstone" THEN [s |-> S, answer |-> "refused"]
  ELSE LET s == Promote(Touch(Expire(Dropping(stale), Ended, Begun), m.c, now), Offered, Put)
           e == [id |-> m.id, mode |-> m.mode, permits |-> m.permits, lease |-> m.lease, last_seen |-> now]
       IN Asked(s, e, m.wait, LAMBDA h : Confirm(h, m.lease), LAMBDA x : Grant(x, m.lease, FALSE), LAMBDA t : Join(t, e))
Convert(m, stale) ==
  LET s == Settled(Converted(Dropping(stale), m.id, m.step, m.mode, Ended, Put)) IN [s |-> s, answer |-> ModeOf(s, m.id)]
Done(m, stale) ==
  CASE m.op = "ask" -> Acquire(m, stale)
    [] m.op = "renew" -> Renewed(S, m.id, Ended, LAMBDA h : Confirm(h, m.lease))
    [] m.op = "release" -> [s |-> Settled(Removed(Dropping(stale), m.id, LAMBDA h : {})), answer |-> "released"]
    [] m.op = "convert" -> Convert(m, stale)

----------------------------------------------------------------------------
(* A client.                                                                  *)

Message(c, k, op, r) ==
  [c |-> c, id |-> <<c, k>>, op |-> op, wait |-> r.wait, mode |-> r.mode, permits |-> r.permits, lease |-> r.lease, step |-> 0, tomb |-> FALSE,
   start |-> IF op \in {"ask", "renew"} \/ Distinct THEN now ELSE 0, live |-> TRUE, sticky |-> FALSE, answer |-> ""]
Send(m, r) == net' = net \cup {m} /\ cl' = [cl EXCEPT ![m.c] = r] /\ UNCHANGED <<now, store, dropped>>
Only(c, r) == cl' = [cl EXCEPT ![c] = r] /\ UNCHANGED <<now, store, net, dropped>>
Ready(c) == cl[c].awake /\ ~cl[c].busy
Valid(c) == cl[c].phase = "held" /\ cl[c].valid > now

NewClaim(c, wait, mode, permits, lease) ==
  /\ Ready(c) /\ cl[c].over
  /\ LET r == [Idle EXCEPT !.k = cl[c].k + 1, !.wait = wait, !.mode = mode, !.permits = permits, !.lease = lease, !.phase = "asking",
                           !.over = FALSE, !.busy = TRUE]
     IN Send(Message(c, r.k, "ask", r), r)
AskAgain(c) == Ready(c) /\ cl[c].phase = "asking" /\ Send(Message(c, cl[c].k, "ask", cl[c]), [cl[c] EXCEPT !.busy = TRUE])
RenewFor(c, lease) ==
  /\ cl[c].awake /\ Valid(c)
  /\ Cardinality({m \in net : m.c = c /\ m.op = "renew" /\ m.live}) < Renewals
  /\ Send(Message(c, cl[c].k, "renew", [cl[c] EXCEPT !.lease = lease]), cl[c])
(* At the end of the body, at a timeout, when it is cancelled, or when it is lost. A claim of which a request *)
(* was not answered leaves a tombstone; another one may.                                                    *)
Released(r) == [Idle EXCEPT !.k = r.k, !.awake = r.awake, !.unsure = r.unsure, !.over = FALSE]
ReleaseWith(c, tomb) ==
  /\ Ready(c) /\ ~cl[c].over /\ (cl[c].unsure => tomb)
  /\ Send([Message(c, cl[c].k, "release", Idle) EXCEPT !.tomb = tomb], [Released(cl[c]) EXCEPT !.busy = TRUE])
(* The same in the background: the client repeats it until it is answered, beside its next claim. *)
ReleaseLater(c) ==
  /\ Ready(c) /\ ~cl[c].over
  /\ Send([Message(c, cl[c].k, "release", Idle) EXCEPT !.tomb = TRUE, !.live = FALSE, !.sticky = TRUE], [Released(cl[c]) EXCEPT !.over = TRUE])
(* The owner of a lost hold drops it. It is not released, even if a request of it is under way. *)
Drop(c) ==
  /\ Drops /\ Ready(c) /\ cl[c].phase \in {"held", "lost"} /\ cl[c].valid <= now
  /\ cl' = [cl EXCEPT ![c] = [@ EXCEPT !.phase = "idle", !.valid = 0, !.over = TRUE]]
  /\ dropped' = dropped \cup {<<c, cl[c].k>>}
  /\ UNCHANGED <<now, store, net>>
Lost(r) == r.phase = "held" /\ r.valid <= now
Notice(c) == Punctual /\ cl[c].awake /\ Lost(cl[c]) /\ Only(c, [cl[c] EXCEPT !.phase = "lost", !.valid = 0])
(* A client that was stopped counts as stopped until it has reported its loss. *)
Sleep(c) == Punctual /\ Only(c, IF ~cl[c].awake /\ Lost(cl[c]) THEN [cl[c] EXCEPT !.awake = TRUE, !.phase = "lost", !.valid = 0]
                                ELSE [cl[c] EXCEPT !.awake = ~@])

(* Conversions. A client that asks for a weaker mode counts on no more from then on. *)
ConvertTo(c, to, mode) ==
  LET r == [cl[c] EXCEPT !.step = @ + 1, !.to = to, !.mode = mode, !.pending = TRUE, !.busy = TRUE]
  IN Ready(c) /\ Valid(c) /\ cl[c].step < Conversions /\ Send([Message(c, r.k, "convert", r) EXCEPT !.step = r.step, !.mode = to], r)
Upgrade(c) == cl[c].mode = "update" /\ ~(cl[c].pending /\ cl[c].to = "exclusive") /\ ConvertTo(c, "exclusive", "update")
Weaken(c, to) ==
  /\ cl[c].mode \in {"exclusive", "update"} /\ (Strength(to) < Strength(cl[c].mode) \/ (to = cl[c].mode /\ cl[c].to = "exclusive" /\ cl[c].pending))
  /\ ConvertTo(c, to, to)
ConvertAgain(c) ==
  /\ Ready(c) /\ Valid(c) /\ cl[c].pending
  /\ Send([Message(c, cl[c].k, "convert", cl[c]) EXCEPT !.step = cl[c].step, !.mode = cl[c].to], [cl[c] EXCEPT !.busy = TRUE])

Until(m) == (IF Flaw = "from_reply" THEN now ELSE m.start) + m.lease - Margin
Held(r, m) == IF Until(m) <= now THEN r ELSE [r EXCEPT !.phase = "held", !.valid = Until(m)]
Take(r, m) ==
  CASE m.op = "ask" /\ m.answer = "held" -> Held([r EXCEPT !.busy = FALSE], m)
    [] m.op = "ask" /\ m.answer # "held" ->
         \* a try that was refused has left nothing there, if all of its requests were answered
         IF ~r.wait /\ (~r.unsure \/ Flaw = "try_not_withdrawn") THEN [r EXCEPT !.busy = FALSE, !.phase = "idle", !.over = TRUE]
         ELSE [r EXCEPT !.busy = FALSE]
    [] m.op = "renew" ->
         \* a hold whose loss was not read yet is valid again, for the store says that it never ended
         IF r.phase # "held" \/ m.id[2] # r.k THEN r
         ELSE IF m.answer = "held" THEN [r EXCEPT !.valid = Max(@, Until(m))] ELSE [r EXCEPT !.valid = 0]
    [] m.op = "release" -> [r EXCEPT !.busy = FALSE, !.phase = "idle", !.over = TRUE, !.valid = 0]
    [] m.op = "convert" ->
         IF r.valid <= now THEN [r EXCEPT !.busy = FALSE]
         ELSE IF m.answer = "lost" THEN [r EXCEPT !.busy = FALSE, !.valid = 0, !.pending = FALSE]
         ELSE IF m.answer = "upgrading" THEN [r EXCEPT !.busy = FALSE]
         ELSE [r EXCEPT !.busy = FALSE, !.mode = m.answer, !.pending = FALSE]
Unsure(r, m) ==
  IF m.op = "renew" THEN r
  ELSE [r EXCEPT !.busy = FALSE, !.unsure = @ \/ (m.op = "ask" /\ Flaw # "not_unsure")]

Arrive(m) ==
  /\ m.answer = ""
  /\ \E stale \in SUBSET Stale :
       LET done == Done(m, stale)
           told == [m EXCEPT !.answer = done.answer]
       IN /\ holds' = done.s.holds /\ queue' = done.s.queue /\ lapsed_offer' = done.s.lapsed_offer
          /\ tombs' = IF m.tomb THEN tombs \cup {m.id} ELSE tombs
          /\ overtaken' = (overtaken \/ Overtakes(Dropping(stale), done.s))
          /\ \/ ~m.sticky /\ m.live /\ net' = (net \ {m}) \cup {told}   \* the reply is under way
             \/ ~m.live /\ net' = net \ {m}                            \* no reply is expected
             \/ m.sticky /\ net' = net                                 \* its reply is lost, and it is repeated
  /\ UNCHANGED <<now, cl, dropped>>
Reply(m) ==
  /\ m.answer # "" /\ cl[m.c].awake
  /\ net' = net \ {m} /\ cl' = [cl EXCEPT ![m.c] = Take(@, m)]
  /\ UNCHANGED <<now, store, dropped>>
(* The request may still arrive, or be lost. *)
GiveUp(m) ==
  /\ m.live /\ cl[m.c].awake
  /\ \/ net' = net \ {m}
     \/ m.answer = "" /\ net' = (net \ {m}) \cup {[m EXCEPT !.live = FALSE, !.start = IF Distinct THEN @ ELSE 0]}
  /\ cl' = [cl EXCEPT ![m.c] = Unsure(@, m)]
  /\ UNCHANGED <<now, store, dropped>>
Prompt == Punctual => \A c \in Clients : ~(cl[c].awake /\ Lost(cl[c]))
Tick == Prompt /\ now' = now + 1 /\ UNCHANGED <<store, net, cl, dropped>>

Next == \/ Tick
        \/ \E c \in Clients :
             \/ \E wait \in BOOLEAN, mode \in Modes, lease \in Leases :
                  \E permits \in IF mode = "permits" THEN Permits ELSE {1} : NewClaim(c, wait, mode, permits, lease)
             \/ AskAgain(c) \/ ReleaseLater(c) \/ Drop(c) \/ Notice(c) \/ Sleep(c)
             \/ \E lease \in Leases : RenewFor(c, lease)
             \/ ReleaseWith(c, cl[c].unsure)
             \/ Upgrade(c) \/ ConvertAgain(c) \/ \E to \in {"shared", "update"} : Weaken(c, to)
        \/ \E m \in net : Arrive(m) \/ Reply(m) \/ GiveUp(m)
Spec == Init /\ [][Next]_vars
Bounded == Cardinality({m \in net : ~m.live}) <= MaxLate

----------------------------------------------------------------------------
(* Two states are the same if they differ only in what no later step can see,    *)
(* or in the names of the clients.                                               *)
(* Times count as what is left of them. last_seen is compared with lapsed_offer, *)
(* with the begin of an offer that may still lapse, and with that of later ones, *)
(* which is no earlier than now + Least(Leases) - Offer. An age that is cut off  *)
(* loses the second comparison, so the view has the result of it.                *)
(* TLC's SYMMETRY does not do for the names: beside a view, the number of states *)
(* depends on the order of visits.                                               *)
Known == {m.id : m \in net} \cup {<<c, cl[c].k>> : c \in Clients} \cup {h.id : h \in holds} \cup {queue[i].id : i \in DOMAIN queue}
Pending == {m.id : m \in net} \cup {<<c, cl[c].k>> : c \in Clients}
Left(t) == Max(t - now, 0)
(* The view with the names r[c]. *)
Renamed(r) ==
  LET known == Known
      id(x) == <<r[x[1]], Cardinality({y \in known : y[1] = x[1] /\ y[2] > x[2]})>>
  IN <<{<<id(h.id), h.mode, h.permits, h.step, Left(h.ends), h.offered,
          IF h.offered THEN {i \in DOMAIN queue : queue[i].last_seen >= h.ends - Offer} ELSE {}>> : h \in holds},
       [i \in DOMAIN queue |-> <<id(queue[i].id), queue[i].mode, queue[i].permits, queue[i].lease,
                                 Min(now - queue[i].last_seen, Max(Offer, Forget)), queue[i].last_seen >= lapsed_offer>>],
       {id(x) : x \in tombs \cap Pending},
       {id(x) : x \in dropped \cap known},
       {[m EXCEPT !.c = r[m.c], !.id = id(m.id), !.start = IF @ = 0 THEN -1 ELSE Left(@ + m.lease)] : m \in net},
       {<<r[c], IF cl[c].over THEN [Idle EXCEPT !.awake = cl[c].awake]
                ELSE [cl[c] EXCEPT !.k = 0, !.valid = Left(@)]>> : c \in Clients},
       overtaken>>
Names == Permutations(Clients)
View == {Renamed(r) : r \in Names}

Holds(c) == cl[c].valid > now
(* No two clients count at the same time on modes that conflict, or on more permits than there are. *)
Exclusion == /\ \A c, d \in Clients : Holds(c) /\ Holds(d) /\ c # d => ~Conflict(cl[c].mode, cl[d].mode)
             /\ Total({[id |-> c, permits |-> cl[c].permits] : c \in {d \in Clients : Holds(d) /\ cl[d].mode = "permits"}}) <= Limit
StoreExclusion == Sound({h \in holds : ~Ended(h)})
(* A client that counts on a hold has it in the store, for no shorter a time, in no weaker a mode. *)
Agreed == \A c \in Clients : Holds(c) => \E h \in holds :
  h.id = <<c, cl[c].k>> /\ h.ends >= cl[c].valid /\ Strength(h.mode) >= Strength(cl[c].mode) /\ h.permits = cl[c].permits
(* What was released for certain neither holds nor waits. *)
Alive(id) == \/ cl[id[1]].k = id[2] /\ ~cl[id[1]].over
             \/ \E m \in net : m.sticky /\ m.id = id
             \/ id \in dropped
Ghosts == (\A h \in holds : Alive(h.id)) /\ \A i \in DOMAIN queue : Alive(queue[i].id)
(* A dropped hold ends within a lease. *)
DroppedEnds == \A h \in holds : h.id \in dropped => h.ends <= now + Largest(Leases)
(* A client that runs has reported a loss before the store grants the lock to another. *)
NoticeFirst == \A c \in Clients, h \in holds :
  Punctual /\ cl[c].awake /\ cl[c].phase = "held" /\ h.id[1] # c /\ Conflict(h.mode, cl[c].mode) => \E g \in holds : g.id = <<c, cl[c].k>>
(* First come, first served: see Overtakes. *)
InOrder == ~overtaken
NoTwice == \A i, j \in DOMAIN queue : i # j => queue[i].id # queue[j].id
=============================================================================
