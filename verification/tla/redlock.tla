------------------------------- MODULE redlock -------------------------------
(* Redlock: a claim holds with the votes of a majority of independent servers    *)
(* (src/leaselock/_backends/redlock/protocol.py).                                 *)
(*                                                                              *)
(* Each server carries out a request as one step, at any time after it was sent, *)
(* also after its sender has given up; replies are lost; clients stop for any    *)
(* time; servers restart with their data (which changes nothing here) or without *)
(* it, and then stay away for a lease or come back at once. A server's clock may *)
(* end a lease earlier than the client counts, by Drift.                         *)
(*                                                                              *)
(* Left out, and why that is safe: the queue of waiters (it decides when a       *)
(* client asks, and a client asks at any time here), a reply that is late (a     *)
(* reply that is lost, and a client that was stopped, have the same effects).    *)
(* Left out, and not safe to conclude about: five servers, waiting in the queue, *)
(* break, clocks that jump.                                                      *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS Clients, Servers, Lease, Drift, MaxTries, MaxLate, Losses, Delayed, ClockTokens, Flaw
VARIABLES now, srv, cl, late, undo, losses, best, wrong, overtaken
vars == <<now, srv, cl, late, undo, losses, best, wrong, overtaken>>

Nobody == <<"nobody", 0>>
None == [id |-> Nobody, token |-> 0, ends |-> 0]
Free == [vote |-> None, top |-> 0, up |-> 0, tombs |-> {}]
(* token: what the claim was granted. yes: the tokens of the votes of this try. given: the votes  *)
(* that were given back. said: the servers that answered the present raise or renewal.            *)
Idle == [k |-> 0, tries |-> 0, phase |-> "idle", start |-> 0, began |-> 0, asked |-> {}, yes |-> [s \in Servers |-> 0],
         given |-> {}, said |-> {}, renewing |-> 0, valid |-> 0]
Init == /\ now = 1 /\ srv = [s \in Servers |-> Free] /\ cl = [c \in Clients |-> Idle] /\ late = {} /\ undo = {}
        /\ losses = 0 /\ best = 0 /\ wrong = FALSE /\ overtaken = FALSE
Max(a, b) == IF a > b THEN a ELSE b
Quorum == Cardinality(Servers) \div 2 + 1
Many(X) == Cardinality(X) >= (IF Flaw = "minority" THEN Quorum - 1 ELSE Quorum)
Largest(X) == CHOOSE x \in X : \A y \in X : y <= x
Least(X) == CHOOSE x \in X : \A y \in X : x <= y
Up(s) == srv[s].up <= now
Has(s, id) == srv[s].vote.id = id /\ srv[s].vote.ends > now

----------------------------------------------------------------------------
(* A server.                                                                   *)
Acquired(s, id, d) ==
  LET v == srv[s].vote
  IN IF id \in srv[s].tombs /\ Flaw # "no_tombstone" THEN srv[s]
     ELSE IF Has(s, id) THEN [srv[s] EXCEPT !.vote.ends = Max(@, now + Lease - d)]
     ELSE IF v.ends > now THEN srv[s]
     ELSE [srv[s] EXCEPT !.vote = [id |-> id, token |-> srv[s].top + 1, ends |-> now + Lease - d], !.top = @ + 1]

(* A client asks all servers at once, at `start`. *)
Ask(c) ==
  /\ cl[c].phase = "idle" /\ cl[c].tries < MaxTries
  /\ \E again \in BOOLEAN :  \* the same claim, after a try without a majority
       /\ again => cl[c].began > 0
       /\ cl' = [cl EXCEPT ![c] = [@ EXCEPT !.k = IF again THEN @ ELSE @ + 1, !.tries = @ + 1, !.phase = "asking", !.start = now,
                                            !.began = IF again THEN @ ELSE now, !.asked = {}, !.yes = [s \in Servers |-> 0],
                                            !.given = IF again THEN @ ELSE {}, !.said = {}, !.renewing = 0, !.valid = 0]]
  /\ UNCHANGED <<now, srv, late, undo, losses, best, wrong, overtaken>>
AskAt(c, s) ==
  /\ cl[c].phase = "asking" /\ s \notin cl[c].asked /\ Up(s)
  /\ \E d \in {0, Drift} :
       LET id == <<c, cl[c].k>>
           new == Acquired(s, id, d)
           token == IF new.vote.id = id /\ new.vote.ends > now /\ (<<s, new.vote.token>> \notin cl[c].given \/ Flaw = "counts_undone")
                    THEN new.vote.token ELSE 0
       IN /\ srv' = [srv EXCEPT ![s] = new]
          /\ \E t \in {token, 0} : cl' = [cl EXCEPT ![c].asked = @ \cup {s}, ![c].yes[s] = t]
  /\ UNCHANGED <<now, late, undo, losses, best, wrong, overtaken>>
(* A request that was not answered when the try ended may still arrive. *)
LateAt(m) ==
  /\ m \in late /\ Up(m.s) /\ late' = late \ {m}
  /\ \/ srv' = [srv EXCEPT ![m.s] = Acquired(m.s, m.id, 0)] \/ srv' = srv
  /\ UNCHANGED <<now, cl, undo, losses, best, wrong, overtaken>>

Yes(c) == {s \in Servers : cl[c].yes[s] > 0}
Token(c) == LET tokens == {cl[c].yes[s] : s \in Yes(c)} IN IF Flaw = "least_token" THEN Least(tokens) ELSE Largest(tokens)
Agree(c) == Many({s \in Yes(c) : cl[c].yes[s] = Token(c)})
Until(c, start) == (IF Flaw = "from_reply" THEN now ELSE start) + Lease - (IF Flaw = "no_drift" THEN 0 ELSE Drift)
(* Where a majority has not the greatest token, it is written to one first. *)
Raise(c) ==
  /\ cl[c].phase = "asking" /\ Many(Yes(c)) /\ ~Agree(c) /\ Flaw # "least_token"
  /\ cl' = [cl EXCEPT ![c].phase = "raising", ![c].said = {}]
  /\ UNCHANGED <<now, srv, late, undo, losses, best, wrong, overtaken>>
RaiseAt(c, s) ==
  /\ cl[c].phase = "raising" /\ s \in Yes(c) \ cl[c].said /\ Up(s)
  /\ Has(s, <<c, cl[c].k>>)
  /\ srv' = [srv EXCEPT ![s].top = Max(@, Token(c)), ![s].vote.token = Token(c)]
  /\ cl' = [cl EXCEPT ![c].said = @ \cup {s}]
  /\ UNCHANGED <<now, late, undo, losses, best, wrong, overtaken>>
Hold(c) ==
  /\ \/ cl[c].phase = "asking" /\ Many(Yes(c)) /\ (Agree(c) \/ Flaw = "least_token")
     \/ cl[c].phase = "raising" /\ Many(cl[c].said)
  /\ Until(c, cl[c].start) > now
  /\ cl' = [cl EXCEPT ![c].phase = "held", ![c].valid = Until(c, cl[c].start), ![c].said = {}, ![c].renewing = 0]
  /\ best' = Max(best, Token(c)) /\ wrong' = (wrong \/ Token(c) <= best)
  /\ overtaken' = (overtaken \/ \E d \in Clients \ {c} : cl[d].phase = "asking" /\ cl[d].began < cl[c].began)
  /\ UNCHANGED <<now, srv, late, undo, losses>>
(* Votes without a majority are given back, each with its token. *)
Unsent(c) == {[id |-> <<c, cl[c].k>>, s |-> s] : s \in Servers \ cl[c].asked}
GiveBack(c) ==
  /\ cl[c].phase \in {"asking", "raising"}
  /\ LET back == {<<s, cl[c].yes[s]>> : s \in Yes(c)}
     IN /\ undo' = undo \cup {[id |-> <<c, cl[c].k>>, s |-> x[1], token |-> x[2]] : x \in back}
        /\ cl' = [cl EXCEPT ![c].phase = "idle", ![c].given = @ \cup back]
  /\ \E sent \in SUBSET Unsent(c) : late' = late \cup sent
  /\ UNCHANGED <<now, srv, losses, best, wrong, overtaken>>
(* At the end of the body, or when the caller gives up: a release for good, with a tombstone. *)
Release(c) ==
  /\ cl[c].phase # "idle" \/ cl[c].began > 0
  /\ undo' = undo \cup {[id |-> <<c, cl[c].k>>, s |-> s, token |-> 0] : s \in Servers}
  /\ cl' = [cl EXCEPT ![c].phase = "idle", ![c].began = 0, ![c].valid = 0]
  /\ \E sent \in (IF cl[c].phase = "asking" THEN SUBSET Unsent(c) ELSE {{}}) : late' = late \cup sent
  /\ UNCHANGED <<now, srv, losses, best, wrong, overtaken>>
UndoAt(m) ==
  /\ m \in undo /\ Up(m.s) /\ undo' = undo \ {m}
  /\ LET v == srv[m.s].vote
         ours == (v.id = m.id /\ (m.token = 0 \/ m.token = v.token)) \/ Flaw = "release_unchecked"
         freed == IF ours THEN [srv[m.s] EXCEPT !.vote = None] ELSE srv[m.s]
     IN srv' = [srv EXCEPT ![m.s] = IF m.token = 0 THEN [freed EXCEPT !.tombs = @ \cup {m.id}] ELSE freed]
  /\ UNCHANGED <<now, cl, late, losses, best, wrong, overtaken>>

Renew(c) ==
  /\ cl[c].phase = "held" /\ cl[c].valid > now
  /\ cl' = [cl EXCEPT ![c].renewing = now, ![c].said = {}]
  /\ UNCHANGED <<now, srv, late, undo, losses, best, wrong, overtaken>>
RenewAt(c, s) ==
  /\ cl[c].phase = "held" /\ cl[c].renewing > 0 /\ s \notin cl[c].said /\ Up(s) /\ Has(s, <<c, cl[c].k>>)
  /\ <<s, srv[s].vote.token>> \notin cl[c].given \/ Flaw = "counts_undone"
  /\ \E d \in {0, Drift} : srv' = [srv EXCEPT ![s].vote.ends = Max(@, now + Lease - d)]
  /\ \E got \in BOOLEAN : cl' = [cl EXCEPT ![c].said = IF got THEN @ \cup {s} ELSE @]
  /\ UNCHANGED <<now, late, undo, losses, best, wrong, overtaken>>
Renewed(c) ==
  /\ cl[c].phase = "held" /\ cl[c].renewing > 0 /\ Many(cl[c].said) /\ cl[c].valid > now
  /\ cl' = [cl EXCEPT ![c].valid = Max(@, Until(c, cl[c].renewing)), ![c].renewing = 0, ![c].said = {}]
  /\ UNCHANGED <<now, srv, late, undo, losses, best, wrong, overtaken>>

(* A server restarts without its data. Its clock stays, and so does the part of a token that is one. *)
Lose(s) ==
  /\ losses < Losses /\ losses' = losses + 1
  /\ srv' = [srv EXCEPT ![s] = [Free EXCEPT !.up = IF Delayed THEN now + Lease ELSE now, !.top = IF ClockTokens THEN best ELSE 0]]
  /\ UNCHANGED <<now, cl, late, undo, best, wrong, overtaken>>
Tick == now' = now + 1 /\ UNCHANGED <<srv, cl, late, undo, losses, best, wrong, overtaken>>

Next == \/ Tick
        \/ \E c \in Clients : Ask(c) \/ Raise(c) \/ Hold(c) \/ GiveBack(c) \/ Release(c) \/ Renew(c) \/ Renewed(c)
        \/ \E c \in Clients, s \in Servers : AskAt(c, s) \/ RaiseAt(c, s) \/ RenewAt(c, s)
        \/ \E m \in late : LateAt(m)
        \/ \E m \in undo : UndoAt(m)
        \/ \E s \in Servers : Lose(s)
Spec == Init /\ [][Next]_vars
Bounded == Cardinality(late) <= MaxLate

(* Two states are the same if they differ only in the names of clients and servers, and in times  *)
(* of which the same is left. A vote that has ended counts as none. Claims are numbered up to     *)
(* MaxTries, and tokens with them, so that these need no normal form. What clients know of        *)
(* servers they know of each by itself, so the servers are a bag of columns.                      *)
Left(t) == Max(t - now, 0)
Rest(t) == IF t = 0 THEN -1 ELSE Left(t + Lease)
(* The views with the names r[c] of clients. *)
Name(r, id) == <<r[id[1]], id[2]>>
Column(r, s) ==
  <<IF srv[s].vote.ends > now THEN <<Name(r, srv[s].vote.id), srv[s].vote.token, Left(srv[s].vote.ends)>> ELSE <<>>,
    srv[s].top, Left(srv[s].up), {Name(r, id) : id \in srv[s].tombs},
    {<<r[c], s \in cl[c].asked, cl[c].yes[s], {x[2] : x \in {y \in cl[c].given : y[1] = s}}, s \in cl[c].said>> : c \in Clients},
    {Name(r, m.id) : m \in {x \in late : x.s = s}}, {<<Name(r, m.id), m.token>> : m \in {x \in undo : x.s = s}}>>
Renamed(r) ==
  LET columns == {<<s, Column(r, s)>> : s \in Servers}
  IN <<{<<x[2], Cardinality({y \in columns : y[2] = x[2]})>> : x \in columns},
       {<<r[c], cl[c].k, cl[c].tries, cl[c].phase, IF cl[c].phase \in {"asking", "raising"} THEN Rest(cl[c].start) ELSE 0,
          cl[c].began > 0, {r[d] : d \in {x \in Clients : cl[c].began > 0 /\ cl[x].began > 0 /\ cl[c].began < cl[x].began}},
          IF cl[c].phase = "held" THEN Rest(cl[c].renewing) ELSE 0, Left(cl[c].valid)>> : c \in Clients},
       losses, best, wrong, overtaken>>
Names == Permutations(Clients)
View == {Renamed(r) : r \in Names}

Holds(c) == cl[c].valid > now
Exclusion == \A c, d \in Clients : Holds(c) /\ Holds(d) => c = d
(* A client that counts on its lock has a majority of votes for at least as long. *)
Agreed == \A c \in Clients : Holds(c) => Many({s \in Servers : srv[s].vote.id = <<c, cl[c].k>> /\ srv[s].vote.ends >= cl[c].valid})
(* A server at which a claim was released has no vote for it. *)
Ghosts == \A s \in Servers : srv[s].vote.ends > now => srv[s].vote.id \notin srv[s].tombs
(* The order that is promised: tokens rise. *)
TokensRise == ~wrong
(* The order that is not promised: first come, first served. *)
InOrder == ~overtaken
=============================================================================
