------------------------------- MODULE document -------------------------------
(* Exclusive locks in one document of a store that compares and sets: who holds, *)
(* who waits, and what may be in flight. Times are ticks of one clock.           *)
(*                                                                               *)
(* Kept: writes that arrive late, after their sender has given up; lost replies; *)
(* clients that stop for any time; documents that are stale; a store whose clock *)
(* is known to Uncertain ticks.                                                  *)
(* Left out, because the model does at once, or earlier, what would only be      *)
(* later: the way of a read and of a reply, drift and margin of clocks (a        *)
(* watcher waits longer than a holder counts). A write that is decided on an old *)
(* document is refused by the store: here it is a Look.                          *)
(*                                                                               *)
(* View compares states by ages and ranks instead of times and numbers of        *)
(* writes, so that runs of any length are explored.                              *)
(*                                                                               *)
(* Choices are what a request of the code may do and the model's does not have   *)
(* to: take a hold for over later than it is (a clock that drifts, a margin),    *)
(* show that a waiter is alive, write although nothing has changed, drop waiters *)
(* that were silent for long. Runs of the code need them (trace_document.tla).   *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Clients, Lease, Offer, RollCall, Clock, Uncertain, LateReplies, MaxLate, Flaw

VARIABLES now,    \* the time
          store,  \* the document in the store
          puts,   \* writes that have been sent and have not arrived
          cl      \* what each client knows and does
vars == <<now, store, puts, cl>>

NoHold == [id |-> <<"nobody", 0>>, beat |-> 0, lasts |-> 0, offered |-> FALSE, stamp |-> 0]
Empty  == [n |-> 0, hold |-> NoHold, queue |-> <<>>, lapsed_offer |-> 0]

(* k: number of the claim, negative when it is finished. clear: nothing of it is there, but what is in flight.  *)
(* n, hold: the document that the client knows; the hold was seen first at first; current: no other write since; fresh: *)
(* seen since the last answer. valid: until when the client believes that it holds, 0 if it does not.        *)
Idle == [k |-> 0, wait |-> FALSE, clear |-> FALSE, writes |-> FALSE, n |-> 0, hold |-> NoHold, first |-> 0, current |-> FALSE,
         fresh |-> FALSE, valid |-> 0]
Choices == {[late |-> 0, alive |-> FALSE, fence |-> FALSE, gone |-> {}]}

Init == now = 1 /\ store = Empty /\ puts = {} /\ cl = [c \in Clients |-> Idle]

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

----------------------------------------------------------------------------
(* The rules: r is a client's record, c its name, d the document that it decides on, w its choice. *)

Me(c, r) == <<c, r.k>>
Over(r, d, w) == d.hold # NoHold /\ now >= r.first + d.hold.lasts + w.late

Expire(r, d, w) ==
  IF ~Over(r, d, w) THEN d
  ELSE [d EXCEPT !.hold = NoHold,
                 !.lapsed_offer = IF d.hold.offered /\ Flaw # "lapse_not_recorded" THEN Max(d.lapsed_offer, d.hold.beat) ELSE d.lapsed_offer]

(* Own waiters have asked since the offer that lapsed. *)
Touch(c, d, n) ==
  IF d.lapsed_offer = 0 THEN d
  ELSE LET q == [i \in DOMAIN d.queue |->
                   IF d.queue[i].id[1] = c /\ d.queue[i].beat < d.lapsed_offer
                   THEN [d.queue[i] EXCEPT !.beat = n] ELSE d.queue[i]]
       IN [d EXCEPT !.queue = q, !.lapsed_offer = IF \A i \in DOMAIN q : q[i].beat >= d.lapsed_offer THEN 0 ELSE d.lapsed_offer]

Eligible(d) == {i \in DOMAIN d.queue : d.queue[i].beat >= d.lapsed_offer}
Least(S) == CHOOSE i \in S : \A j \in S : i <= j
Without(q, id) == SelectSeq(q, LAMBDA e : e.id # id)
Queued(d, id) == \E i \in DOMAIN d.queue : d.queue[i].id = id

Give(d, id, n, lasts, offered, stamp) ==
  [d EXCEPT !.hold = [id |-> id, beat |-> n, lasts |-> lasts, offered |-> offered, stamp |-> stamp],
            !.queue = Without(d.queue, id)]

Promote(d, n, stamp) ==
  IF d.hold # NoHold \/ Eligible(d) = {} THEN d
  ELSE Give(d, d.queue[Least(Eligible(d))].id, n, Offer, TRUE, stamp)

Confirm(d, n, stamp) ==
  [d EXCEPT !.hold = [d.hold EXCEPT !.lasts = Lease, !.offered = FALSE, !.stamp = stamp,
                      !.beat = IF Flaw = "kept_beat" THEN d.hold.beat ELSE n]]

(* A waiter behind an offer that is not confirmed for a tick shows that it is alive. *)
Called(c, r, d) == /\ d.hold.offered /\ d.hold = r.hold /\ now >= r.first + RollCall
                   /\ \E i \in DOMAIN d.queue : d.queue[i].id = Me(c, r) /\ d.queue[i].beat < d.hold.beat

Join(c, r, d, n, w) ==
  IF ~Queued(d, Me(c, r)) THEN [d EXCEPT !.queue = Append(d.queue, [id |-> Me(c, r), beat |-> n])]
  ELSE IF Called(c, r, d) \/ w.alive
  THEN [d EXCEPT !.queue = [i \in DOMAIN d.queue |->
           IF d.queue[i].id = Me(c, r) THEN [d.queue[i] EXCEPT !.beat = n] ELSE d.queue[i]]]
  ELSE d

Acquire(c, r, d, n, stamp, w) ==
  LET e == IF d.hold = NoHold /\ d.queue = <<>> THEN d ELSE Promote(Touch(c, Expire(r, d, w), n), n, stamp)
  IN CASE e.hold.id = Me(c, r) -> [doc |-> Confirm(e, n, stamp), answer |-> "held"]
       [] e.hold = NoHold -> [doc |-> Give(e, Me(c, r), n, Lease, FALSE, stamp), answer |-> "held"]
       [] OTHER -> [doc |-> IF r.wait THEN Join(c, r, e, n, w) ELSE e, answer |-> "busy"]

Renew(c, r, d, n, stamp, w) ==
  IF d.hold.id = Me(c, r) /\ ~Over(r, d, w) THEN [doc |-> Confirm(d, n, stamp), answer |-> "held"]
                                         ELSE [doc |-> d, answer |-> "lost"]

Release(c, r, d, n, stamp, w) ==
  [doc |-> Promote(IF d.hold.id = Me(c, r) THEN [d EXCEPT !.hold = NoHold]
                   ELSE Expire(r, [d EXCEPT !.queue = Without(d.queue, Me(c, r))], w), n, stamp),
   answer |-> "released"]

----------------------------------------------------------------------------
(* What a client knows, and what it makes of an answer.                                       *)

(* The hold was there at time at, in write n; the store dates it, if it has a clock. *)
Learn(r, n, hold, at, said) ==
  [r EXCEPT !.n = n, !.hold = hold, !.current = TRUE,
            !.first = IF hold = NoHold THEN 0
                      ELSE IF r.hold.id = hold.id /\ r.hold.beat = hold.beat THEN r.first
                      ELSE IF said < 0 THEN at ELSE at - Max(0, said - hold.stamp)]

(* What the store says of the time, and the latest that it may be there by a writer's knowledge. *)
Said   == IF Clock THEN {now - Uncertain, now} \ {-1} ELSE {-1}
Stamps == IF ~Clock THEN {0} ELSE IF Flaw = "exact_time" THEN {now - Uncertain, now} ELSE {now, now + Uncertain}

Valid(r, until) ==
  [r EXCEPT !.fresh = FALSE, !.writes = FALSE, !.clear = FALSE, !.valid = IF until > now THEN until ELSE 0]

(* start: when the request was sent. *)
Answered(r, answer, start) ==
  CASE answer = "held" -> Valid(r, (IF Flaw = "from_reply" THEN now ELSE start) + Lease)
    [] answer = "busy" -> [r EXCEPT !.fresh = FALSE, !.writes = FALSE, !.clear = ~r.wait]
    [] answer = "lost" -> [r EXCEPT !.fresh = FALSE, !.writes = FALSE, !.valid = 0]
    [] answer = "released" -> [r EXCEPT !.fresh = FALSE, !.writes = FALSE, !.wait = FALSE, !.valid = 0, !.k = -r.k]

----------------------------------------------------------------------------
(* One request decides on what is known, or reads first; it is answered, or writes.           *)

Request(c, op, begun) ==
  \E read \in BOOLEAN :
  /\ read \/ begun.current
  /\ \E said \in IF read THEN Said ELSE {-1}, stamp \in Stamps, w \in Choices :
     LET r == IF read THEN [Learn(begun, store.n, store.hold, now, said) EXCEPT !.fresh = TRUE] ELSE begun
         d == [store EXCEPT !.queue = SelectSeq(@, LAMBDA e : e.id \notin w.gone)]
         done == CASE op = "acquire" -> Acquire(c, r, d, store.n + 1, stamp, w)
                   [] op = "renew"   -> Renew(c, r, d, store.n + 1, stamp, w)
                   [] op = "release" -> Release(c, r, d, store.n + 1, stamp, w)
         unsure == \E p \in puts : p.c = c  \* a write may be in flight: the release makes it fail
     IN IF done.doc = store /\ ~w.fence /\ (op # "release" \/ ~unsure \/ Flaw = "release_not_written")
        THEN r.fresh /\ UNCHANGED puts /\ cl' = [cl EXCEPT ![c] = Answered(r, done.answer, now)]
        ELSE /\ puts' = puts \cup {[c |-> c, live |-> TRUE, good |-> TRUE, done |-> FALSE, doc |-> [done.doc EXCEPT !.n = store.n + 1],
                                    answer |-> done.answer, start |-> now, stamp |-> stamp]}
             /\ cl' = [cl EXCEPT ![c] = [r EXCEPT !.writes = TRUE]]
  /\ UNCHANGED <<now, store>>

Begin(c, wait) ==
  /\ ~cl[c].writes /\ cl[c].k <= 0
  /\ cl' = [cl EXCEPT ![c].k = 1 - cl[c].k, ![c].wait = wait, ![c].clear = TRUE]
  /\ UNCHANGED <<now, store, puts>>

StartAcquire(c) ==
  /\ ~cl[c].writes /\ cl[c].k > 0 /\ cl[c].valid <= now
  /\ Request(c, "acquire", [cl[c] EXCEPT !.valid = 0])

(* One that comes too late for its holder, or beside its release, is a renewal all the same, if the document *)
(* still has the hold.                                                                                    *)
StartRenew(c) == ~cl[c].writes /\ cl[c].k > 0 /\ Request(c, "renew", cl[c])

StartRelease(c) == ~cl[c].writes /\ cl[c].k > 0 /\ Request(c, "release", [cl[c] EXCEPT !.valid = 0])

(* A release that is repeated after it was answered; runs of the code have it. It changes no more than any other *)
(* request does, so it is no part of Next.                                                                     *)
ReleaseAgain(c) == ~cl[c].writes /\ cl[c].k < 0 /\ Request(c, "release", [cl[c] EXCEPT !.k = -@])

(* A claim that left nothing there ends without a release, if none of its writes is in flight: a try that was *)
(* refused, or one whose writes were all refused.                                                             *)
Finish(c) ==
  /\ cl[c].k > 0 /\ cl[c].clear /\ ~cl[c].writes /\ \A p \in puts : p.c # c
  /\ cl' = [cl EXCEPT ![c].k = -cl[c].k, ![c].clear = FALSE, ![c].wait = FALSE]
  /\ UNCHANGED <<now, store, puts>>

(* A watch, or a poll, shows the present document. *)
See(c) ==
  /\ \E said \in Said : cl' = [cl EXCEPT ![c] = [Learn(@, store.n, store.hold, now, said) EXCEPT !.fresh = TRUE]]
  /\ UNCHANGED <<now, store, puts>>
(* What is seen between two claims can be seen by a try that is refused; what is seen beside a write, by its refusal. *)
Look(c) == cl[c].k > 0 /\ ~cl[c].writes /\ ~cl[c].current /\ See(c)

Written(p) == \* the writes that are still under way after p has succeeded: all others will be refused
  {IF q.done THEN q ELSE [q EXCEPT !.good = FALSE, !.doc = IF Flaw = "no_compare" THEN q.doc ELSE Empty, !.start = 0, !.stamp = 0] :
     q \in {q \in puts \ {p} : q.live \/ Flaw = "no_compare"}}

(* A write arrives, and may succeed; its sender, if it still waits, hears of it at once, later or never. *)
Success(p, known, here) ==
  LET r == IF known.n > p.doc.n THEN known ELSE [Learn(known, p.doc.n, p.doc.hold, p.start, -1) EXCEPT !.current = here, !.first = Min(@, p.start)]
  IN Answered(r, p.answer, p.start)
Unanswered(r) == [r EXCEPT !.writes = FALSE, !.fresh = FALSE]
Others == [c \in Clients |-> [cl[c] EXCEPT !.current = FALSE]]

Lands(p) == (p.good \/ Flaw = "no_compare") /\ ~p.done /\ store' = p.doc /\ UNCHANGED now
(* The reply is under way. *)
Store(p) == Lands(p) /\ p.live /\ puts' = Written(p) \cup {[p EXCEPT !.good = FALSE, !.done = TRUE]} /\ cl' = Others
Arrive(p) ==
  \/ Lands(p) /\ p.live /\ puts' = Written(p) /\ cl' = [Others EXCEPT ![p.c] = Success(p, @, TRUE)]
  \/ LateReplies /\ Store(p)
  \/ Lands(p) /\ puts' = Written(p) /\ cl' = IF p.live THEN [Others EXCEPT ![p.c] = [Unanswered(@) EXCEPT !.clear = FALSE]] ELSE Others

Heard(p) ==
  /\ p.done /\ puts' = puts \ {p}
  /\ cl' = [cl EXCEPT ![p.c] = Success(p, @, store.n = p.doc.n)]
  /\ UNCHANGED <<now, store>>

(* A write is refused: the store, or the next read, shows what there is. *)
Refused(p) ==
  /\ p.live /\ ~p.good /\ ~p.done /\ puts' = puts \ {p}
  /\ \E said \in Said : cl' = [cl EXCEPT ![p.c] = [Learn(@, store.n, store.hold, now, said) EXCEPT !.fresh = TRUE, !.writes = FALSE]]
  /\ UNCHANGED <<now, store>>

(* The reply, or the refusal, never comes. *)
Unheard(p) ==
  /\ p.live /\ (p.done \/ ~p.good) /\ puts' = puts \ {p}
  /\ cl' = [cl EXCEPT ![p.c] = [Unanswered(@) EXCEPT !.clear = @ /\ ~p.done]]
  /\ UNCHANGED <<now, store>>

(* The outcome stays unknown, and the write may arrive later. *)
GiveUp(p) ==
  /\ p.live /\ p.good
  /\ cl' = [cl EXCEPT ![p.c].writes = FALSE, ![p.c].fresh = FALSE, ![p.c].clear = FALSE]
  /\ puts' = (puts \ {p}) \cup {[p EXCEPT !.live = FALSE, !.start = 0, !.stamp = 0, !.answer = ""]}
  /\ UNCHANGED <<now, store>>

Tick == now' = now + 1 /\ UNCHANGED <<store, puts, cl>>

Next == \/ Tick
        \/ \E c \in Clients :
             \/ \E wait \in BOOLEAN : Begin(c, wait)
             \/ StartAcquire(c) \/ StartRenew(c) \/ StartRelease(c) \/ Finish(c) \/ Look(c)
        \/ \E p \in puts : Arrive(p) \/ Heard(p) \/ Refused(p) \/ Unheard(p) \/ GiveUp(p)

Spec == Init /\ [][Next]_vars
Bounded == Cardinality({p \in puts : ~p.live}) <= MaxLate
Symmetric == Permutations(Clients)

----------------------------------------------------------------------------
(* What is the same from here on.                                                              *)

Beats(d) == {d.hold.beat, d.lapsed_offer} \cup {d.queue[i].beat : i \in DOMAIN d.queue}
Used == {0, store.n} \cup Beats(store) \cup {cl[c].hold.beat : c \in Clients} \cup UNION {Beats(p.doc) : p \in puts}
Rank(b) == Cardinality({x \in Used : x < b})
Age(t) == Min(now - t, Lease + Uncertain)
Id(id) == IF id[1] \in Clients THEN <<id[1], IF cl[id[1]].k = id[2] THEN 1 ELSE 0>> ELSE id
HoldView(h) == IF h = NoHold THEN <<>> ELSE <<Id(h.id), Rank(h.beat), h.lasts, h.offered, IF Clock THEN Age(h.stamp) ELSE 0>>
DocView(d) == <<HoldView(d.hold), [i \in DOMAIN d.queue |-> <<Id(d.queue[i].id), Rank(d.queue[i].beat)>>], Rank(d.lapsed_offer)>>
View == <<DocView(store),
          {<<p.c, p.live, p.good, p.done, p.doc.n = store.n, DocView(p.doc), p.answer, IF p.start = 0 THEN -1 ELSE Min(now - p.start, Lease), IF Clock /\ p.stamp # 0 THEN Age(p.stamp) ELSE 0>> : p \in puts},
          [c \in Clients |-> <<cl[c].k > 0, cl[c].wait, cl[c].clear, cl[c].writes, HoldView(cl[c].hold),
                               IF cl[c].hold = NoHold THEN 0 ELSE Min(now - cl[c].first, Lease), cl[c].current, cl[c].fresh,
                               Max(cl[c].valid - now, 0)>>]>>

Holds(c) == cl[c].valid > now
(* A claim that has been released, for certain, neither holds nor waits. *)
Known(id) == cl[id[1]].k = id[2]
Ghosts == /\ store.hold = NoHold \/ Known(store.hold.id)
          /\ \A i \in DOMAIN store.queue : Known(store.queue[i].id)
Exclusion == \A c, d \in Clients : Holds(c) /\ Holds(d) => c = d
=============================================================================
