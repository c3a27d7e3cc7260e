----------------------------- MODULE trace_lease -----------------------------
(* Is a recorded run of the code a behaviour of `lease`? The module `traces`     *)
(* has the runs; each is a sequence of events, with the state of the store after *)
(* each that changes it, and with what each client believes. Every step here is  *)
(* an action of `lease`; an event only selects which one. Time that passed       *)
(* between two events is a number of Ticks.                                      *)
EXTENDS lease, traces

VARIABLES run, at
Event == Traces[run][at]
Matching(e) == {m \in net : m.c = e.c /\ m.id = <<e.c, e.k>> /\ m.op = e.op /\ (m.sticky \/ m.start = e.start)}

SameStore(e) ==
  /\ holds' = {[id |-> <<h[1], h[2]>>, mode |-> "exclusive", permits |-> 1, step |-> 0, ends |-> h[3], offered |-> h[4]] : h \in e.holds}
  /\ Len(queue') = Len(e.queue)
  /\ \A i \in DOMAIN queue' :
       LET mine == queue'[i] theirs == e.queue[i]
       IN mine.id = <<theirs[1], theirs[2]>> /\ mine.last_seen = theirs[3] /\ mine.lease = theirs[4] /\ (mine.last_seen >= lapsed_offer') = theirs[5]
SameAnswer(m, e) == m.live => \E told \in net' : told.id = m.id /\ told.op = m.op /\ told.start = m.start /\ told.answer = e.answer
Kept(m) == m.answer = "" => \E x \in net' : x.id = m.id /\ x.op = m.op /\ x.start = m.start

Action(e) ==
  CASE e.kind = "claim" -> NewClaim(e.c, e.wait, "exclusive", 1, e.lease)
    [] e.kind = "ask" -> AskAgain(e.c)
    [] e.kind = "renew" -> RenewFor(e.c, e.lease)
    [] e.kind = "release" -> ReleaseWith(e.c, e.tomb)
    [] e.kind = "later" -> ReleaseLater(e.c)
    [] e.kind = "arrive" -> \E m \in Matching(e) : Arrive(m) /\ SameStore(e) /\ SameAnswer(m, e)
    [] e.kind = "reply" -> \E m \in Matching(e) : Reply(m)
    [] e.kind = "unanswered" -> \E m \in Matching(e) : GiveUp(m) /\ Kept(m)
(* A client believes to hold no longer than the model's client does. *)
Believed(e) == \A b \in e.believed : cl'[b[1]].k = b[2] /\ cl'[b[1]].valid >= b[3]

Pass == now < Event.at /\ now' = Event.at /\ UNCHANGED <<store, net, cl, dropped, run, at>>
Act == now = Event.at /\ Action(Event) /\ Believed(Event) /\ at' = at + 1 /\ UNCHANGED run
       /\ (at' > Len(Traces[run]) => PrintT(<<"accepted", run>>))
TraceNext == at <= Len(Traces[run]) /\ (Pass \/ Act)
TraceSpec == Init /\ run \in DOMAIN Traces /\ at = 1 /\ [][TraceNext]_<<vars, run, at>>
=============================================================================
