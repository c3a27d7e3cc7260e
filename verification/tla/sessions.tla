------------------------------- MODULE sessions ------------------------------
(* Locks that end with a session: ZooKeeper's queue of nodes, and the session     *)
(* locks of SQL servers (`row`, `advisory`), whose queue is in the server.        *)
(*                                                                              *)
(* A session that was silent for Timeout - Lag ends, and its nodes with it (the   *)
(* server may count the silence from an earlier request: Lag). Connections are    *)
(* cut with requests, replies and watch events in flight. A client may reconnect  *)
(* to its session (ZooKeeper) or not (SQL: the old session lives on in the server *)
(* until that notices). A server that is cut off from the majority goes on to     *)
(* answer pings. Clients stop for any time.                                       *)
(*                                                                              *)
(* Left out, and why that is safe: requests that arrive after a reconnect         *)
(* (ZooKeeper refuses them: the session has moved), reads from a server that lags *)
(* (the client reads behind a barrier). Left out, and not safe to conclude about: *)
(* modes, permits, break, leases that end before the session, other programs'     *)
(* nodes, a leader that does not know that it is none.                            *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Clients, Timeout, Lag, Proven, Resumes, Terminates, MaxSessions, Flaw
VARIABLES now, sess, nodes, net, cl
vars == <<now, sess, nodes, net, cl>>
(* sess: the sessions that live in the server, and when each was heard last. nodes: the queue. *)
(* net: creations under way. asking: since when a request is under way that reads the queue    *)
(* behind a barrier; seen: what it found. event: a watch event is on its way.                  *)
Idle == [k |-> 0, n |-> 1, conn |-> TRUE, phase |-> "idle", asking |-> 0, seen |-> "", watch |-> FALSE, event |-> FALSE, valid |-> 0]
Init == /\ now = 1 /\ nodes = <<>> /\ net = {}
        /\ sess = {[c |-> c, n |-> 1, heard |-> 1] : c \in Clients}
        /\ cl = [c \in Clients |-> Idle]
Max(a, b) == IF a > b THEN a ELSE b
Lives(c, n) == \E x \in sess : x.c = c /\ x.n = n
Heard(c) == {IF x.c = c /\ x.n = cl[c].n THEN [x EXCEPT !.heard = now] ELSE x : x \in sess}
Own(c) == {i \in DOMAIN nodes : nodes[i].c = c /\ nodes[i].n = cl[c].n /\ nodes[i].k = cl[c].k}
First(c) == nodes # <<>> /\ 1 \in Own(c)
(* The watches of clients whose node before theirs is gone now fire, if the connection is there. *)
Before(c, q) == LET at == {i \in DOMAIN q : q[i].c = c /\ q[i].n = cl[c].n /\ q[i].k = cl[c].k}
                IN IF at = {} THEN {} ELSE LET i == CHOOSE x \in at : \A y \in at : x <= y IN IF i = 1 THEN {} ELSE {q[i - 1]}
Fired(new, r, c) == IF r.watch /\ Before(c, nodes) # Before(c, new) THEN [r EXCEPT !.watch = FALSE, !.event = r.conn] ELSE r
Now(new) == nodes' = new /\ UNCHANGED now

----------------------------------------------------------------------------
(* The server.                                                                 *)
End(x) ==
  /\ sess' = sess \ {x}
  /\ LET new == SelectSeq(nodes, LAMBDA e : ~(e.c = x.c /\ e.n = x.n))
     IN Now(new) /\ cl' = [c \in Clients |-> Fired(new, cl[c], c)]
  /\ net' = {m \in net : ~(m.c = x.c /\ m.n = x.n)}
Expire(x) == now - x.heard >= Timeout - Lag /\ End(x)
(* An operator, or a middlebox that only the server hears. Not survived. *)
Terminate(x) == Terminates /\ End(x)
ArriveCreate(m) ==
  /\ m \in net /\ net' = net \ {m} /\ Lives(m.c, m.n) /\ cl[m.c].conn
  /\ Now(Append(nodes, m))
  /\ sess' = Heard(m.c)
  /\ \E told \in BOOLEAN : cl' = [cl EXCEPT ![m.c].phase = IF told /\ @ = "creating" /\ cl[m.c].k = m.k THEN "check" ELSE @]
ArriveAsk(c) ==
  /\ cl[c].asking > 0 /\ cl[c].seen = "" /\ cl[c].conn /\ Lives(c, cl[c].n) /\ ~\E m \in net : m.c = c  \* in order
  /\ sess' = Heard(c)
  /\ cl' = [cl EXCEPT ![c].seen = IF Own(c) = {} THEN "absent" ELSE IF First(c) \/ Flaw = "head_unchecked" THEN "first" ELSE "behind",
                      ![c].watch = Own(c) # {} /\ ~First(c), ![c].event = FALSE]
  /\ UNCHANGED <<now, nodes, net>>

----------------------------------------------------------------------------
(* A client.                                                                   *)
Only(c, r) == cl' = [cl EXCEPT ![c] = r]
Enter(c) ==
  /\ cl[c].phase = "idle" /\ cl[c].conn /\ cl[c].asking = 0
  /\ net' = net \cup {[c |-> c, n |-> cl[c].n, k |-> cl[c].k + 1]}
  /\ Only(c, [cl[c] EXCEPT !.k = @ + 1, !.phase = "creating"]) /\ UNCHANGED <<now, sess, nodes>>
(* No answer in time: whether the node exists is not known. *)
GiveUp(c) ==
  /\ cl[c].phase = "creating" /\ Only(c, [cl[c] EXCEPT !.phase = "unknown"]) /\ UNCHANGED <<now, sess, nodes, net>>
Again(c) ==  \* the node was not found, so it is created again
  /\ cl[c].phase = (IF Flaw = "creates_unread" THEN "unknown" ELSE "absent") /\ cl[c].conn /\ cl[c].asking = 0
  /\ net' = net \cup {[c |-> c, n |-> cl[c].n, k |-> cl[c].k]}
  /\ Only(c, [cl[c] EXCEPT !.phase = "creating"]) /\ UNCHANGED <<now, sess, nodes>>
(* Read the queue behind a barrier: to look for the own node, to see whether it is the first, *)
(* to prove that the session lives.                                                          *)
Ask(c) ==
  /\ cl[c].conn /\ cl[c].asking = 0 /\ cl[c].phase \in {"check", "unknown", "held"}
  /\ Only(c, [cl[c] EXCEPT !.asking = now, !.seen = ""]) /\ UNCHANGED <<now, sess, nodes, net>>
Until(r) == (IF Flaw = "from_reply" THEN now ELSE r.asking) + (IF Flaw = "whole_timeout" THEN Timeout ELSE Proven)
Reply(c) ==
  /\ cl[c].seen # "" /\ cl[c].conn
  /\ LET r == [cl[c] EXCEPT !.asking = 0, !.seen = ""]
         s == cl[c].seen
     IN Only(c, CASE r.phase \in {"check", "unknown"} /\ s = "first" /\ Until(cl[c]) > now -> [r EXCEPT !.phase = "held", !.valid = Until(cl[c])]
                  [] r.phase \in {"check", "unknown"} /\ s = "first" -> [r EXCEPT !.phase = "check"]
                  [] r.phase \in {"check", "unknown"} /\ s = "behind" -> [r EXCEPT !.phase = "waiting"]
                  [] r.phase \in {"check", "unknown"} /\ s = "absent" -> [r EXCEPT !.phase = "absent"]
                  [] r.phase = "held" /\ s = "first" -> [r EXCEPT !.valid = Max(@, Until(cl[c]))]
                  [] r.phase = "held" /\ s # "first" -> [r EXCEPT !.phase = "lost", !.valid = 0]
                  [] OTHER -> r)
  /\ UNCHANGED <<now, sess, nodes, net>>
Event(c) ==
  /\ cl[c].phase = "waiting" /\ cl[c].event
  /\ Only(c, [cl[c] EXCEPT !.event = FALSE, !.phase = "check"]) /\ UNCHANGED <<now, sess, nodes, net>>
(* A server without a majority answers a ping. It proves nothing. *)
Ping(c) ==
  /\ Flaw = "ping_proves" /\ cl[c].phase = "held" /\ cl[c].conn
  /\ Only(c, [cl[c] EXCEPT !.valid = now + Proven]) /\ UNCHANGED <<now, sess, nodes, net>>
Release(c) ==
  /\ cl[c].phase \in {"check", "waiting", "held", "lost", "unknown", "absent", "creating"}
  /\ Only(c, [cl[c] EXCEPT !.phase = IF @ \in {"unknown", "creating"} /\ Flaw = "unknown_is_absent" THEN "idle" ELSE "leaving",
                           !.valid = 0, !.asking = 0, !.seen = "", !.watch = FALSE, !.event = FALSE])
  /\ UNCHANGED <<now, sess, nodes, net>>
(* It reads which nodes it has, behind what it sent before, and deletes them; repeated until answered. *)
Leave(c) ==
  /\ cl[c].phase = "leaving" /\ cl[c].conn /\ Lives(c, cl[c].n) /\ ~\E m \in net : m.c = c
  /\ LET new == SelectSeq(nodes, LAMBDA e : ~(e.c = c /\ e.n = cl[c].n /\ e.k = cl[c].k))
         fired == [d \in Clients |-> Fired(new, cl[d], d)]
     IN Now(new) /\ \E told \in BOOLEAN : cl' = [fired EXCEPT ![c].phase = IF told THEN "idle" ELSE "leaving"]
  /\ sess' = Heard(c) /\ UNCHANGED net
(* The connection ends; what was under way arrived before, or does not any more. *)
Cut(c) ==
  /\ cl[c].conn /\ net' = {m \in net : m.c # c}
  /\ Only(c, [cl[c] EXCEPT !.conn = FALSE, !.asking = 0, !.seen = "", !.watch = FALSE, !.event = FALSE,
                           !.phase = IF @ = "creating" THEN "unknown" ELSE @])
  /\ UNCHANGED <<now, sess, nodes>>
(* Every claim looks again after a reconnect: events of the time in between are lost. *)
Resume(c) ==
  /\ Resumes /\ ~cl[c].conn /\ Lives(c, cl[c].n) /\ sess' = Heard(c)
  /\ Only(c, [cl[c] EXCEPT !.conn = TRUE, !.phase = IF @ = "waiting" /\ Flaw # "no_recheck" THEN "check" ELSE @])
  /\ UNCHANGED <<now, nodes, net>>
(* A new session has nothing: what was held is lost, what waited enters anew. *)
Renewed(c) ==
  /\ ~cl[c].conn /\ (Resumes => ~Lives(c, cl[c].n))
  /\ sess' = sess \cup {[c |-> c, n |-> cl[c].n + 1, heard |-> now]}
  /\ Only(c, [cl[c] EXCEPT !.n = @ + 1, !.conn = TRUE,
                           !.phase = "idle", !.valid = 0])
  /\ UNCHANGED <<now, nodes, net>>
(* A living connection to a session that has ended is told so. *)
Refused(c) == cl[c].conn /\ ~Lives(c, cl[c].n) /\ Cut(c)
Tick == now' = now + 1 /\ UNCHANGED <<sess, nodes, net, cl>>

Next == \/ Tick
        \/ \E x \in sess : Expire(x) \/ Terminate(x)
        \/ \E m \in net : ArriveCreate(m)
        \/ \E c \in Clients : Enter(c) \/ GiveUp(c) \/ Again(c) \/ Ask(c) \/ ArriveAsk(c) \/ Reply(c) \/ Event(c) \/ Ping(c) \/ Release(c)
                              \/ Leave(c) \/ Cut(c) \/ Resume(c) \/ Renewed(c)
Spec == Init /\ [][Next]_vars
Bounded == \A c \in Clients : Cardinality({x \in sess : x.c = c}) <= MaxSessions

(* Two states are the same if they differ only in the names of the clients, and in times of which the same is left. *)
Age(t) == IF now - t > Timeout THEN Timeout ELSE now - t
Rank(c, n) == IF n = cl[c].n THEN 0 ELSE 1 + Cardinality({y \in sess : y.c = c /\ n < y.n /\ y.n < cl[c].n})
Renamed(r) ==
  <<{<<r[x.c], Rank(x.c, x.n), Age(x.heard)>> : x \in sess},
    [i \in DOMAIN nodes |-> <<r[nodes[i].c], Rank(nodes[i].c, nodes[i].n), cl[nodes[i].c].k = nodes[i].k>>],
    {<<r[m.c], Rank(m.c, m.n), cl[m.c].k = m.k>> : m \in net},
    {<<r[c], cl[c].conn, cl[c].phase, IF cl[c].asking = 0 THEN -1 ELSE Age(cl[c].asking), cl[c].seen, cl[c].watch, cl[c].event,
       Max(cl[c].valid - now, 0), Lives(c, cl[c].n)>> : c \in Clients}>>
Names == Permutations(Clients)
View == {Renamed(r) : r \in Names}

Holds(c) == cl[c].valid > now
Exclusion == \A c, d \in Clients : Holds(c) /\ Holds(d) => c = d
Agreed == \A c \in Clients : Holds(c) => First(c)
(* In a living session there is no node of a claim that has ended, and one at most of any. *)
Ghosts == \A i \in DOMAIN nodes :
  nodes[i].n = cl[nodes[i].c].n => nodes[i].k = cl[nodes[i].c].k /\ cl[nodes[i].c].phase # "idle"
OneNode == \A i, j \in DOMAIN nodes : i # j => nodes[i] # nodes[j]
(* The first waiter does not sleep: it is told, or looks again when it reconnects. *)
Woken == \A c \in Clients : cl[c].phase = "waiting" /\ cl[c].conn /\ First(c) => cl[c].event
=============================================================================
