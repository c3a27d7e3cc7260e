------------------------------- MODULE document -------------------------------
(* Locks in one document of a store that compares and sets: who holds, who        *)
(* waits, and what may be in flight. Times are ticks of one clock. The decisions  *)
(* are in rules.tla.                                                              *)
(*                                                                               *)
(* Kept: writes that arrive late, after their sender has given up; lost replies; *)
(* clients that stop for any time; documents that are stale; a store whose clock *)
(* is known to Uncertain ticks; documents that are deleted when they are idle.   *)
(* Left out, because the model does at once, or earlier, what would only be      *)
(* later: the way of a read and of a reply, drift and margin of clocks (a        *)
(* watcher waits longer than a holder counts). A write that is decided on an old *)
(* document is refused by the store: here it is a Look.                          *)
(* Left out, and not safe to conclude about: break, resize, numbered permits,    *)
(* documents that others write, and the deletion of abandoned documents, which   *)
(* relies on a day of the clock (`ABANDONED`).                                   *)
(*                                                                               *)
(* Choices are what a request of the code may do and the model's does not have   *)
(* to: take a hold for over later than it is (a clock that drifts, a margin),    *)
(* show that a waiter is alive, write although nothing has changed, drop waiters *)
(* that were silent for long. Runs of the code need them (trace_document.tla).   *)
EXTENDS rules, TLC

CONSTANTS
  Clients,
  Lease,       \* the length of a lease
  Offer,       \* for how long a grant to a waiter lasts before it is confirmed
  RollCall,    \* after how long waiters behind an offer show that they are alive
  MinHold,     \* for how long a lock stays taken after its grant was confirmed; 0: no longer than it is held
  Modes, Permits, Conversions,  \* as in lease.tla
  Clock,       \* replies have the time of the store
  Uncertain,   \* how much that may be wrong
  LateReplies, \* replies are under way
  Collects,    \* idle documents are deleted
  MaxLate      \* how many writes are under way whose sender does not wait for them

VARIABLES now,       \* the time
          store,     \* the document in the store
          puts,      \* writes that have been sent and have not arrived
          cl,        \* what each client knows and does
          overtaken, \* a claim was granted before an earlier one
          last,      \* when the period of the latest hold began that its client has counted on
          early      \* a client counted on another one before MinHold had passed since that
vars == <<now, store, puts, cl, overtaken, last, early>>

Empty  == [n |-> 0, absent |-> TRUE, holds |-> {}, queue |-> <<>>, lapsed_offer |-> 0]
None   == -1  \* of a hold that does not keep the lock taken
Cooling == <<"released", 0>>  \* the id of a hold that was released while its lock stays taken

(* k: number of the claim, negative when it is finished. clear: no write of it has succeeded or may succeed yet.        *)
(* writes: a write is under way. n: number of the document that the client knows, seen: since when it has seen each     *)
(* hold; current: the store has no newer one; fresh: seen since the last answer. valid: until when the client counts on *)
(* its hold, in mode; ran: it did so before. step, to: its last conversion; pending: it was not answered.               *)
Idle == [k |-> 0, wait |-> FALSE, mode |-> "exclusive", permits |-> 1, step |-> 0, to |-> "", pending |-> FALSE, clear |-> FALSE,
         writes |-> FALSE, n |-> 0, seen |-> {}, current |-> FALSE, fresh |-> FALSE, valid |-> 0, ran |-> FALSE]
Choices == {[late |-> 0, alive |-> FALSE, fence |-> FALSE, gone |-> {}]}

Init == /\ now = 1 + MinHold /\ store = Empty /\ puts = {} /\ cl = [c \in Clients |-> Idle]
        /\ overtaken = FALSE /\ last = 0 /\ early = FALSE

----------------------------------------------------------------------------
(* The rules: r is a client's record, c its name, d the document that it decides on, w its choice, n the number and stamp *)
(* the time of its write.                                                                                                *)

Me(c, r) == <<c, r.k>>
Sight(r, h) == {x \in r.seen : x.id = h.id /\ x.beat = h.beat}
First(r, h) == IF Sight(r, h) = {} THEN now ELSE (CHOOSE x \in Sight(r, h) : TRUE).first
Over(r, h, w) == now >= First(r, h) + h.lasts + w.late

(* For how long the lock stays taken from now on. *)
FreeLeft(r, h) == IF h.free = None THEN None ELSE Max(0, First(r, h) + h.free - now)
Written(r, h, lasts, free, n, stamp) ==
  [h EXCEPT !.lasts = IF Flaw = "lease_ends_the_period" THEN lasts ELSE Max(lasts, free), !.free = free, !.stamp = stamp,
            !.beat = IF Flaw = "kept_beat" THEN @ ELSE n]
Extended(r, h, n, stamp) == [Written(r, h, Lease, FreeLeft(r, h), n, stamp) EXCEPT !.offered = FALSE]
(* The first time decides until when the lock stays taken. since is recorded for the invariants. *)
Confirmed(r, h, n, stamp) ==
  IF MinHold = 0 \/ h.free # None THEN Extended(r, h, n, stamp)
  ELSE [Written(r, h, Lease, MinHold, n, stamp) EXCEPT !.offered = FALSE, !.since = now]
Changed(r, h, n, stamp) == Written(r, h, Max(0, First(r, h) + h.lasts - now), FreeLeft(r, h), n, stamp)
Cooled(r, h, n, stamp) ==
  IF FreeLeft(r, h) <= 0 \/ Flaw = "release_ends_the_period" THEN {}
  ELSE {[Written(r, h, 0, FreeLeft(r, h), n, stamp) EXCEPT !.id = Cooling, !.offered = FALSE]}
Offered(e, n, stamp) ==
  [id |-> e.id, mode |-> e.mode, permits |-> e.permits, step |-> 0, offered |-> TRUE, beat |-> n, lasts |-> Offer, free |-> None, stamp |-> stamp, since |-> 0]
Settled(r, d, w, n, stamp) ==
  Promote(Expire(d, LAMBDA h : Over(r, h, w), LAMBDA h : h.beat), LAMBDA e : Offered(e, n, stamp), LAMBDA h : Changed(r, h, n, stamp))

(* A waiter behind an offer that is not confirmed for a tick shows that it is alive. *)
Called(c, r, d) ==
  \E h \in d.holds : /\ h.offered /\ now >= First(r, h) + RollCall
                     /\ \E i \in DOMAIN d.queue : d.queue[i].id = Me(c, r) /\ d.queue[i].last_seen < h.beat
Joined(c, r, d, n, w) ==
  IF ~Queued(d, Me(c, r)) THEN [d EXCEPT !.queue = Append(@, [id |-> Me(c, r), mode |-> r.mode, permits |-> r.permits, last_seen |-> n])]
  ELSE IF Called(c, r, d) \/ w.alive
  THEN [d EXCEPT !.queue = [i \in DOMAIN @ |-> IF @[i].id = Me(c, r) THEN [@[i] EXCEPT !.last_seen = n] ELSE @[i]]]
  ELSE d

Acquire(c, r, d, n, stamp, w) ==
  LET ended(h) == Over(r, h, w)
      s == IF d.holds = {} /\ d.queue = <<>> THEN d
           ELSE Promote(Touch(Expire(d, ended, LAMBDA h : h.beat), c, n), LAMBDA e : Offered(e, n, stamp), LAMBDA h : Changed(r, h, n, stamp))
      e == [id |-> Me(c, r), mode |-> r.mode, permits |-> r.permits, last_seen |-> n]
  IN Asked(s, e, r.wait, LAMBDA h : Confirmed(r, h, n, stamp), LAMBDA x : Confirmed(r, Offered(x, n, stamp), n, stamp),
           LAMBDA t : Joined(c, r, t, n, w))
Renew(c, r, d, n, stamp, w) == Renewed(d, Me(c, r), LAMBDA h : Over(r, h, w), LAMBDA h : Extended(r, h, n, stamp))
Release(c, r, d, n, stamp, w) ==
  [s |-> Settled(r, Removed(d, Me(c, r), LAMBDA h : Cooled(r, h, n, stamp)), w, n, stamp), answer |-> "released"]
Convert(c, r, d, n, stamp, w) ==
  LET s == Settled(r, Converted(d, Me(c, r), r.step, r.to, LAMBDA h : Over(r, h, w), LAMBDA h : Changed(r, h, n, stamp)), w, n, stamp)
  IN [s |-> s, answer |-> ModeOf(s, Me(c, r))]

----------------------------------------------------------------------------
(* What a client knows, and what it makes of an answer.                                       *)

(* The holds were there at time at, in write n; the store dates them, if it has a clock. *)
Learn(r, n, holds, at, said) ==
  LET first(h) == IF Sight(r, h) # {} THEN First(r, h) ELSE IF said < 0 THEN at ELSE at - Max(0, said - h.stamp)
  IN [r EXCEPT !.n = n, !.current = TRUE, !.seen = {[id |-> h.id, beat |-> h.beat, first |-> first(h)] : h \in holds}]

(* What the store says of the time, and the latest that it may be there by a writer's knowledge. *)
Said   == IF Clock THEN {now - Uncertain, now} \ {-1} ELSE {-1}
Stamps == IF ~Clock THEN {0} ELSE IF Flaw = "exact_time" THEN {now - Uncertain, now} ELSE {now, now + Uncertain}

Valid(r, start) ==
  LET until == (IF Flaw = "from_reply" THEN now ELSE start) + Lease
  IN [r EXCEPT !.fresh = FALSE, !.writes = FALSE, !.clear = FALSE, !.valid = IF until > now THEN until ELSE 0,
               !.ran = MinHold > 0 /\ (@ \/ until > now)]
(* start: when the request was sent. *)
Answered(r, answer, start) ==
  LET done == [r EXCEPT !.fresh = FALSE, !.writes = FALSE]
  IN CASE answer = "held" -> Valid(r, start)
       [] answer = "busy" -> [done EXCEPT !.clear = ~r.wait]
       [] answer = "lost" -> [done EXCEPT !.valid = 0, !.pending = FALSE]
       [] answer = "released" -> [Idle EXCEPT !.k = -r.k, !.n = r.n, !.seen = r.seen, !.current = r.current]
       [] answer = "upgrading" -> done
       [] OTHER -> IF r.valid > now THEN [done EXCEPT !.mode = answer, !.pending = FALSE] ELSE done

----------------------------------------------------------------------------
(* One request decides on what is known, or reads first; it is answered, or writes.           *)

Request(c, op, begun) ==
  \E read \in BOOLEAN :
  /\ read \/ begun.current
  /\ \E said \in IF read THEN Said ELSE {-1}, stamp \in Stamps, w \in Choices :
     LET r == IF read THEN [Learn(begun, store.n, store.holds, now, said) EXCEPT !.fresh = TRUE] ELSE begun
         d == [store EXCEPT !.queue = SelectSeq(@, LAMBDA e : e.id \notin w.gone)]
         n == store.n + 1
         done == CASE op = "acquire" -> Acquire(c, r, d, n, stamp, w)
                   [] op = "renew"   -> Renew(c, r, d, n, stamp, w)
                   [] op = "convert" -> Convert(c, r, d, n, stamp, w)
                   [] op = "release" -> Release(c, r, d, n, stamp, w)
         unsure == \E p \in puts : p.c = c  \* a write may be in flight: the release makes it fail
     IN IF done.s = store /\ ~w.fence /\ (op # "release" \/ ~unsure \/ Flaw = "release_not_written")
        THEN r.fresh /\ UNCHANGED puts /\ cl' = [cl EXCEPT ![c] = Answered(r, done.answer, now)]
        ELSE /\ puts' = puts \cup {[c |-> c, live |-> TRUE, good |-> TRUE, done |-> FALSE, create |-> Collects /\ store.absent,
                                    doc |-> [done.s EXCEPT !.n = n, !.absent = FALSE], answer |-> done.answer, start |-> now, stamp |-> stamp]}
             /\ cl' = [cl EXCEPT ![c] = [r EXCEPT !.writes = TRUE]]
  /\ UNCHANGED <<now, store>>

Begin(c, wait, mode, permits) ==
  /\ ~cl[c].writes /\ cl[c].k <= 0
  /\ cl' = [cl EXCEPT ![c].k = 1 - cl[c].k, ![c].wait = wait, ![c].mode = mode, ![c].permits = permits, ![c].clear = TRUE]
  /\ UNCHANGED <<now, store, puts>>

Started(c) == ~cl[c].writes /\ cl[c].k > 0
StartAcquire(c) == Started(c) /\ cl[c].valid <= now /\ Request(c, "acquire", [cl[c] EXCEPT !.valid = 0])

(* A client whose writes were refused until its time was over tells so its claim, which has no place in the queue, *)
(* and may ask again. What became of its earlier requests is as certain as before.                               *)
Outrun(c) ==
  /\ Started(c) /\ cl[c].valid <= now
  /\ cl' = [cl EXCEPT ![c].fresh = FALSE, ![c].clear = @ \/ Flaw = "outrun_is_clear"]
  /\ UNCHANGED <<now, store, puts>>

(* One that comes too late for its holder, or beside its release, is a renewal all the same, if the document *)
(* still has the hold.                                                                                    *)
StartRenew(c) == Started(c) /\ Request(c, "renew", cl[c])

(* A client that asks for a weaker mode counts on no more from then on. *)
ConvertTo(c, to, mode) ==
  /\ Started(c) /\ cl[c].valid > now /\ cl[c].step < Conversions
  /\ Request(c, "convert", [cl[c] EXCEPT !.step = @ + 1, !.to = to, !.mode = mode, !.pending = TRUE, !.fresh = FALSE])
Upgrade(c) == cl[c].mode = "update" /\ ~(cl[c].pending /\ cl[c].to = "exclusive") /\ ConvertTo(c, "exclusive", "update")
Weaken(c, to) ==
  /\ cl[c].mode \in {"exclusive", "update"} /\ (Strength(to) < Strength(cl[c].mode) \/ (to = cl[c].mode /\ cl[c].to = "exclusive" /\ cl[c].pending))
  /\ ConvertTo(c, to, to)
ConvertAgain(c) == Started(c) /\ cl[c].valid > now /\ cl[c].pending /\ Request(c, "convert", cl[c])

StartRelease(c) == Started(c) /\ Request(c, "release", [cl[c] EXCEPT !.valid = 0])

(* A release that is repeated after it was answered; runs of the code have it. It changes no more than any other *)
(* request does, so it is no part of Next.                                                                     *)
ReleaseAgain(c) == ~cl[c].writes /\ cl[c].k < 0 /\ Request(c, "release", [cl[c] EXCEPT !.k = -@])

(* A claim that left nothing there ends without a release, if none of its writes is in flight: a try that was *)
(* refused, or one whose writes were all refused.                                                             *)
Finish(c) ==
  /\ cl[c].k > 0 /\ cl[c].clear /\ ~cl[c].writes /\ \A p \in puts : p.c # c
  /\ cl' = [cl EXCEPT ![c] = [Idle EXCEPT !.k = -cl[c].k, !.n = cl[c].n, !.seen = cl[c].seen, !.current = cl[c].current, !.fresh = cl[c].fresh]]
  /\ UNCHANGED <<now, store, puts>>

(* A watch, or a poll, shows the present document. *)
See(c) ==
  /\ \E said \in Said : cl' = [cl EXCEPT ![c] = [Learn(@, store.n, store.holds, now, said) EXCEPT !.fresh = TRUE]]
  /\ UNCHANGED <<now, store, puts>>
(* What is seen between two claims can be seen by a try that is refused; what is seen beside a write, by its refusal. *)
Look(c) == cl[c].k > 0 /\ ~cl[c].writes /\ ~cl[c].current /\ See(c)

(* The writes that are still under way after another one has succeeded: the store refuses them. It would carry out one *)
(* that expects no document if the document were deleted meanwhile.                                                   *)
Passed(others) ==
  LET stays(q) == q.live \/ Flaw = "no_compare" \/ (q.create /\ Flaw = "collects_early")
      refused(q) == [q EXCEPT !.good = FALSE, !.doc = IF Flaw \in {"no_compare", "collects_early"} THEN @ ELSE Empty, !.start = 0, !.stamp = 0]
  IN {IF q.done THEN q ELSE refused(q) : q \in {q \in others : stays(q)}}

(* A write arrives, and may succeed; its sender, if it still waits, hears of it at once, later or never. *)
Success(p, known, here) ==
  LET new == Learn(known, p.doc.n, p.doc.holds, p.start, -1)
      r == IF known.n > p.doc.n THEN known
           ELSE [new EXCEPT !.current = here, !.seen = {IF x.beat = p.doc.n THEN [x EXCEPT !.first = Min(@, p.start)] ELSE x : x \in @}]
  IN Answered(r, p.answer, p.start)
Unanswered(r) == [r EXCEPT !.writes = FALSE, !.fresh = FALSE]
Others == [c \in Clients |-> [cl[c] EXCEPT !.current = FALSE]]

Lands(p) == (p.good \/ Flaw = "no_compare") /\ ~p.done /\ store' = p.doc /\ UNCHANGED now
(* The reply is under way. *)
Store(p) == Lands(p) /\ p.live /\ puts' = Passed(puts \ {p}) \cup {[p EXCEPT !.good = FALSE, !.done = TRUE]} /\ cl' = Others
Arrive(p) ==
  \/ Lands(p) /\ p.live /\ puts' = Passed(puts \ {p}) /\ cl' = [Others EXCEPT ![p.c] = Success(p, @, TRUE)]
  \/ LateReplies /\ Store(p)
  \/ Lands(p) /\ puts' = Passed(puts \ {p}) /\ cl' = IF p.live THEN [Others EXCEPT ![p.c] = [Unanswered(@) EXCEPT !.clear = FALSE]] ELSE Others

Heard(p) ==
  /\ p.done /\ puts' = puts \ {p}
  /\ cl' = [cl EXCEPT ![p.c] = Success(p, @, store.n = p.doc.n)]
  /\ UNCHANGED <<now, store>>

(* A write is refused: the store, or the next read, shows what there is. *)
Refused(p) ==
  /\ p.live /\ ~p.good /\ ~p.done /\ puts' = puts \ {p}
  /\ \E said \in Said : cl' = [cl EXCEPT ![p.c] = [Learn(@, store.n, store.holds, now, said) EXCEPT !.fresh = TRUE, !.writes = FALSE]]
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

(* An idle document is deleted, on the condition of its version. That is so long after its last write (`token_ttl`) that no *)
(* write which expects no document is in flight. The numbers go on rising.                                                *)
Collect ==
  /\ Collects /\ ~store.absent
  /\ (store.holds = {} /\ store.queue = <<>>) \/ Flaw = "collects_in_use"
  /\ (\A p \in puts : ~p.create) \/ Flaw = "collects_early"
  /\ store' = [Empty EXCEPT !.n = store.n + 1]
  /\ puts' = {IF Flaw = "collects_early" /\ q.create /\ ~q.live THEN [q EXCEPT !.good = TRUE, !.doc.n = store.n + 2] ELSE q : q \in Passed(puts)}
  /\ cl' = Others /\ UNCHANGED now

Tick == now' = now + 1 /\ UNCHANGED <<store, puts, cl>>

(* What is recorded for the invariants. A hold that cools down is no grant. *)
Recorded ==
  /\ overtaken' = (overtaken \/ (store' # store /\ Overtakes(store, [store' EXCEPT !.holds = {h \in @ : h.id # Cooling}])))
  /\ LET begun == {<<c, cl[c].k>> : c \in {d \in Clients : ~cl[d].ran /\ cl'[d].ran}}
     IN /\ last' = Largest({last} \cup {h.since : h \in {x \in store'.holds : x.id \in begun}})
        /\ early' = (early \/ (begun # {} /\ now < last + MinHold))
Step == \/ Tick \/ Collect
        \/ \E c \in Clients :
             \/ \E wait \in BOOLEAN, mode \in Modes : \E permits \in IF mode = "permits" THEN Permits ELSE {1} : Begin(c, wait, mode, permits)
             \/ StartAcquire(c) \/ StartRenew(c) \/ StartRelease(c) \/ Outrun(c) \/ Finish(c) \/ Look(c)
             \/ Upgrade(c) \/ ConvertAgain(c) \/ \E to \in {"shared", "update"} : Weaken(c, to)
        \/ \E p \in puts : Arrive(p) \/ Heard(p) \/ Refused(p) \/ Unheard(p) \/ GiveUp(p)
Next == Step /\ Recorded

Spec == Init /\ [][Next]_vars
Bounded == Cardinality({p \in puts : ~p.live}) <= MaxLate

----------------------------------------------------------------------------
(* Two states are the same if they differ only in the names of the clients, in times of which the same is left, and in   *)
(* numbers of writes of the same order. So runs of any length are covered.                                              *)

Beats(d) == {d.lapsed_offer} \cup {h.beat : h \in d.holds} \cup {d.queue[i].last_seen : i \in DOMAIN d.queue}
Used == {0, store.n} \cup Beats(store) \cup UNION {Beats(p.doc) : p \in puts}
Longest == Max(Lease, MinHold)
Renamed(r) ==
  LET used == Used
      rank(b) == Cardinality({x \in used : x < b})
      id(i) == IF i = Cooling THEN i ELSE <<r[i[1]], IF cl[i[1]].k = i[2] THEN 1 ELSE 0>>
      age(t) == Min(now - t, Longest + Uncertain)
      doc(d) == <<d.absent, {[h EXCEPT !.id = id(@), !.beat = rank(@), !.stamp = IF Clock THEN age(@) ELSE 0,
                                           !.since = IF MinHold = 0 THEN 0 ELSE Min(now - @, MinHold)] : h \in d.holds},
                  [i \in DOMAIN d.queue |-> [d.queue[i] EXCEPT !.id = id(@), !.last_seen = rank(@)]], rank(d.lapsed_offer)>>
      client(x) == [x EXCEPT !.k = IF @ > 0 THEN 1 ELSE 0, !.n = 0, !.valid = Max(@ - now, 0), 
                             !.seen = {[id |-> id(s.id), beat |-> rank(s.beat), first |-> Min(now - s.first, Longest)] : s \in {y \in @ : y.beat \in used}}]
  IN <<doc(store),
       {<<r[p.c], p.live, p.good, p.done, p.create, p.doc.n = store.n, doc(p.doc), p.answer, IF p.start = 0 THEN -1 ELSE Min(now - p.start, Lease),
          IF Clock /\ p.stamp # 0 THEN age(p.stamp) ELSE 0>> : p \in puts},
       {<<r[c], client(cl[c])>> : c \in Clients},
       overtaken, IF MinHold = 0 THEN 0 ELSE Max(last + MinHold - now, 0), early>>
Names == Permutations(Clients)
View == {Renamed(r) : r \in Names}

Holds(c) == cl[c].valid > now
(* A claim that was released for certain neither holds nor waits. *)
Known(id) == id = Cooling \/ cl[id[1]].k = id[2]
Ghosts == /\ \A h \in store.holds : Known(h.id)
          /\ \A i \in DOMAIN store.queue : Known(store.queue[i].id)
Exclusion == /\ \A c, d \in Clients : Holds(c) /\ Holds(d) /\ c # d => ~Conflict(cl[c].mode, cl[d].mode)
             /\ Total({[id |-> c, permits |-> cl[c].permits] : c \in {d \in Clients : Holds(d) /\ cl[d].mode = "permits"}}) <= Limit
StoreExclusion == Sound(store.holds)
(* A client that counts on a hold finds it in the document, in no weaker a mode. *)
Agreed == \A c \in Clients : Holds(c) => \E h \in store.holds : h.id = <<c, cl[c].k>> /\ Strength(h.mode) >= Strength(cl[c].mode)
(* First come, first served: see Overtakes. *)
InOrder == ~overtaken
(* At most one hold begins in each period. *)
OneInPeriod == ~early
=============================================================================
