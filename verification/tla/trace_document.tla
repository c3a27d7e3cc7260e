---------------------------- MODULE trace_document ----------------------------
(* Is a recorded run of the code a behaviour of `document`? The module `traces`  *)
(* has the runs; each is a sequence of events, with the document of each write,  *)
(* and with what each client believes. Every step here is an action of           *)
(* `document`; an event only selects which one. Where time passed between two    *)
(* events, it becomes Ticks.                                                     *)
EXTENDS document, traces

CONSTANTS Early,  \* how much sooner the clock of a client may say that a hold is over
          Apart,  \* how much later than another one a server of the store may say that it is
          Ever    \* later than any run

VARIABLES run, at
Event == Traces[run][at]

(* The choices that the model leaves open, as the event has them. Only "see" and "refused" read. *)
TraceSaid == IF Event.kind \in {"see", "refused"} THEN {Event.said} ELSE {}
TraceStamps == CASE Event.kind = "put" -> {Event.stamp} [] Event.kind = "answer" -> {Ever} [] OTHER -> {}
(* Waiters that were silent for long are dropped by the next write. Of each the code dropped all or none. *)
Silent == IF Event.kind # "put" THEN {}
          ELSE {store.queue[i].id : i \in DOMAIN store.queue}
               \ ({<<Event.c, Event.k>>} \cup {h.id : h \in Event.doc.holds} \cup {Event.doc.queue[i].id : i \in DOMAIN Event.doc.queue})
TraceChoices == [late : {-Early, Ever}, alive : BOOLEAN, fence : {Event.kind = "put" /\ Event.op = "release"}, gone : {{}, Silent}]

Sent(e) ==
  /\ CASE e.op = "acquire" -> StartAcquire(e.c)
       [] e.op = "renew" -> StartRenew(e.c)
       [] e.op = "release" -> StartRelease(e.c) \/ ReleaseAgain(e.c)
  /\ cl[e.c].k = e.k \/ (e.op = "release" /\ cl[e.c].k = -e.k)
(* The store's clock may show no more than that: it was the latest when the write was sent. *)
Stamped(e) == e.stamp >= now + Apart

Action(e) ==
  CASE e.kind = "claim" -> Begin(e.c, e.wait, "exclusive", 1) /\ cl'[e.c].k = e.k
    [] e.kind = "finish" -> Finish(e.c)
    [] e.kind = "see" -> See(e.c)
    [] e.kind = "answer" -> Sent(e) /\ puts' = puts
    [] e.kind = "outrun" -> Outrun(e.c) /\ cl[e.c].k = e.k
    [] e.kind = "put" -> Sent(e) /\ Stamped(e) /\ \E p \in puts' \ puts : p.c = e.c /\ p.live /\ p.doc = e.doc
    [] e.kind = "stored" -> \E p \in {q \in puts : q.c = e.c /\ q.good} :
                               p.doc.n = e.n /\ (IF p.live THEN Store(p) ELSE Arrive(p))
    [] e.kind = "heard" -> \E p \in {q \in puts : q.c = e.c} : Heard(p)
    [] e.kind = "refused" -> \E p \in {q \in puts : q.c = e.c} : Refused(p)
    [] e.kind = "foreign" -> FALSE
    [] e.kind = "unheard" -> \E p \in {q \in puts : q.c = e.c} : Unheard(p) \/ GiveUp(p)
(* A client believes to hold no longer than the model's client does. *)
Believed(e) == \A b \in e.believed : cl'[b[1]].k = b[2] /\ cl'[b[1]].valid >= b[3]

Pass == now < Event.at /\ now' = Event.at /\ UNCHANGED <<store, puts, cl, overtaken, last, early, run, at>>
Act == now = Event.at /\ Action(Event) /\ Recorded /\ Believed(Event) /\ at' = at + 1 /\ UNCHANGED run
       /\ (at' > Len(Traces[run]) => PrintT(<<"accepted", run>>))
TraceNext == at <= Len(Traces[run]) /\ (Pass \/ Act)
TraceSpec == Init /\ run \in DOMAIN Traces /\ at = 1 /\ [][TraceNext]_<<vars, run, at>>
=============================================================================
