-------------------------------- MODULE rules --------------------------------
(* The decisions of src/leaselock/_core/rows/rules.py, for the models of the stores    *)
(* that apply them (lease.tla, document.tla).                                     *)
(*                                                                              *)
(* A lock is a record s of holds (a set), queue (a sequence of claims) and        *)
(* lapsed_offer, the begin of the last offer that was not confirmed, and perhaps  *)
(* other fields. Holds and claims have id, mode and permits. A hold has step, the *)
(* number of its last conversion, and offered; a claim has last_seen, the moment  *)
(* of its last request. What depends on the store is an argument:                 *)
(*   Ended(h)    whether the lease of a hold is over                              *)
(*   Begun(h)    the moment of an offer                                           *)
(*   Give(e)     the hold of a claim that is granted; Offer(e): to a waiter       *)
(*   Confirm(h)  the hold for its whole lease from now on                         *)
(*   Put(h)      the hold as it is written after a change of its mode             *)
(*   Left(h)     what stays of a hold after its release: a set                    *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS Limit,  \* the permits of a semaphore
          Flaw    \* the planted flaw, or "none"

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Largest(X) == CHOOSE x \in X : \A y \in X : y <= x
Least(X) == CHOOSE x \in X : \A y \in X : x <= y

Strength(mode) == CASE mode = "shared" -> 1 [] mode \in {"update", "upgrading"} -> 2 [] mode \in {"exclusive", "permits"} -> 3
(* The modes that may hold beside each other. *)
Beside == {<<"shared", "shared">>, <<"shared", "update">>, <<"update", "shared">>}
Conflict(a, b) == <<a, b>> \notin Beside /\ {a, b} # {"permits"}
(* What the rules take for that: each flaw adds a pair of a hold and a claim. *)
Tolerated == Beside \cup (CASE Flaw = "reader_beside_writer" -> {<<"exclusive", "shared">>}
                            [] Flaw = "writer_beside_readers" -> {<<"shared", "exclusive">>}
                            [] Flaw = "two_updates" -> {<<"update", "update">>}
                            [] Flaw = "enters_upgrading" -> {<<"upgrading", "shared">>}
                            [] OTHER -> {})
RECURSIVE Total(_)
Total(X) == IF X = {} THEN 0 ELSE LET x == CHOOSE x \in X : TRUE IN x.permits + Total(X \ {x})
Compatible(others, e) ==
  IF e.mode = "permits" THEN Total(others) + e.permits <= (IF Flaw = "permits_off_by_one" THEN Limit + 1 ELSE Limit)
  ELSE \A o \in others : <<o.mode, e.mode>> \in Tolerated
(* A claim stays behind the claims that it conflicts with. All claims for permits do. *)
Behind(e, ahead) == e.mode = "permits" \/ Conflict(ahead.mode, e.mode)

Expire(s, Ended(_), Begun(_)) ==
  LET gone == {h \in s.holds : Ended(h)}
      lapsed == {Begun(h) : h \in {x \in gone : x.offered}}
  IN IF gone = {} THEN s ELSE [s EXCEPT !.holds = @ \ gone, !.lapsed_offer = Largest({@} \cup lapsed)]

(* The claims of a client that has asked are passed over no longer. *)
Touch(s, c, moment) ==
  IF s.lapsed_offer = 0 THEN s
  ELSE LET q == [i \in DOMAIN s.queue |->
                   IF s.queue[i].id[1] = c /\ s.queue[i].last_seen < s.lapsed_offer THEN [s.queue[i] EXCEPT !.last_seen = moment] ELSE s.queue[i]]
       IN [s EXCEPT !.queue = q, !.lapsed_offer = IF \A i \in DOMAIN q : q[i].last_seen >= s.lapsed_offer THEN 0 ELSE s.lapsed_offer]

Eligible(s) == {i \in DOMAIN s.queue : s.queue[i].last_seen >= s.lapsed_offer}
Without(q, ids) == SelectSeq(q, LAMBDA e : e.id \notin ids)
Queued(s, id) == \E i \in DOMAIN s.queue : s.queue[i].id = id

(* The positions of the claims that are granted: each is compatible with the holds and with the claims that stay ahead. *)
RECURSIVE Granted(_, _, _, _)
Granted(s, i, holds, stay) ==
  IF i > Len(s.queue) THEN {}
  ELSE IF s.queue[i].last_seen < s.lapsed_offer THEN Granted(s, i + 1, holds, stay)
  ELSE IF Compatible(holds \cup stay, s.queue[i]) THEN {i} \cup Granted(s, i + 1, holds \cup {s.queue[i]}, stay)
  ELSE Granted(s, i + 1, holds, stay \cup {s.queue[i]})
Promote(s, Offer(_), Put(_)) ==
  IF Cardinality(s.holds) = 1 /\ \A h \in s.holds : h.mode = "upgrading"
  THEN [s EXCEPT !.holds = {Put([h EXCEPT !.mode = "exclusive"]) : h \in @}]
  ELSE IF s.queue = <<>> THEN s
  ELSE LET next == Granted(s, 1, s.holds, {})
       IN [s EXCEPT !.holds = @ \cup {Offer(s.queue[i]) : i \in next}, !.queue = Without(@, {s.queue[i].id : i \in next})]

Join(s, e) ==
  IF Queued(s, e.id) THEN [s EXCEPT !.queue = [i \in DOMAIN @ |-> IF @[i].id = e.id THEN e ELSE @[i]]]
  ELSE [s EXCEPT !.queue = Append(@, e)]
Ahead(s, id) ==  \* the eligible claims ahead; all, if it is not queued
  LET at == {i \in DOMAIN s.queue : s.queue[i].id = id}
  IN {i \in Eligible(s) : at = {} \/ i < Least(at)}
(* The end of an acquire, after Expire, Touch and Promote. *)
Asked(s, e, wait, Confirm(_), Give(_), Enqueued(_)) ==
  LET own == {h \in s.holds : h.id = e.id}
  IN IF own # {}
     THEN [s |-> [s EXCEPT !.holds = (@ \ own) \cup {Confirm(h) : h \in own}], answer |-> "held"]
     ELSE IF Compatible(s.holds, e) /\ (Flaw = "overtakes" \/ \A i \in Ahead(s, e.id) : ~Behind(e, s.queue[i]))
     THEN [s |-> [s EXCEPT !.holds = @ \cup {Give(e)}, !.queue = Without(@, {e.id})], answer |-> "held"]
     ELSE [s |-> IF wait THEN Enqueued(s) ELSE s, answer |-> "busy"]

Renewed(s, id, Ended(_), Confirm(_)) ==
  LET own == {h \in s.holds : h.id = id /\ ~Ended(h)}
  IN IF own = {} THEN [s |-> s, answer |-> "lost"]
     ELSE [s |-> [s EXCEPT !.holds = (@ \ own) \cup {Confirm(h) : h \in own}], answer |-> "held"]

(* What a release removes. Expire and Promote follow. *)
Removed(s, id, Left(_)) ==
  [s EXCEPT !.holds = UNION {IF h.id = id \/ Flaw = "release_unchecked" THEN Left(h) ELSE {h} : h \in @}, !.queue = Without(@, {id})]

(* A conversion with a smaller number than the last one, or with the same, changes nothing. Expire and Promote follow. *)
Converted(s, id, step, mode, Ended(_), Put(_)) ==
  LET new(h) == IF mode # "exclusive" THEN mode
                ELSE IF Flaw = "upgrades_beside" THEN "exclusive" ELSE "upgrading"
      may(h) == /\ h.id = id /\ ~Ended(h) /\ (step > h.step \/ Flaw = "late_conversion")
                /\ IF mode = "exclusive" THEN Strength(h.mode) = 2 ELSE Strength(mode) <= Strength(h.mode)
  IN [s EXCEPT !.holds = {IF may(h) THEN Put([h EXCEPT !.mode = new(h), !.step = step]) ELSE h : h \in @}]
(* What the store says of the hold then. *)
ModeOf(s, id) == IF \E h \in s.holds : h.id = id THEN (CHOOSE h \in s.holds : h.id = id).mode ELSE "lost"

----------------------------------------------------------------------------
(* Invariants.                                                                *)

(* Holds that the store may have at the same time: an upgrade waits beside the readers that were there before. *)
Together(g, h) == ~Conflict(g.mode, h.mode) \/ {g.mode, h.mode} = {"shared", "upgrading"}
Sound(holds) == /\ \A g, h \in holds : g.id # h.id => Together(g, h)
                /\ Total({h \in holds : h.mode = "permits"}) <= Limit
(* One step from s to t grants a claim while a claim that came earlier and conflicts with it stays in the queue, or while an upgrade waits. *)
Overtakes(s, t) ==
  \E h \in t.holds :
    /\ \A g \in s.holds : g.id # h.id
    /\ \/ \E i \in DOMAIN s.queue, j \in DOMAIN t.queue :
            /\ s.queue[i].id = t.queue[j].id /\ t.queue[j].last_seen >= t.lapsed_offer
            /\ Behind(h, s.queue[i])
            /\ \A l \in DOMAIN s.queue : s.queue[l].id = h.id => i < l
       \/ \E g \in s.holds : g.mode = "upgrading" /\ \E u \in t.holds : u.id = g.id /\ u.mode = "upgrading"
=============================================================================
