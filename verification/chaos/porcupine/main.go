// Judges histories of locks with porcupine, a linearizability checker that others wrote.
//
// Usage: porcupine MODEL < operations. Standard input has one operation per line, as JSON. Each lock
// is a register of its own. Printed is one line per lock that is not linearizable ("illegal NAME") or
// was not decided in time ("unknown NAME"). The exit code is 0 if there is none, and 1 if there is.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const timeout = 120 * time.Second

// Operation is one call of a client, from its invocation to its return. Hold is the same for an
// acquire and for what ends it; an owner may have several holds of a lock at once if it is
// reentrant. An expiry is internal: the lease ends between the two instants. A "refuse" is an
// acquire that got nothing, at once.
type Operation struct {
	Lock   string
	Client int
	Kind   string
	Hold   string
	Owner  string
	Token  int64
	Call   int64
	Return int64
	// "exclusive", "shared", or "permits" of a semaphore with this many.
	Mode    string
	Permits int
	Limit   int
	// The numbers of the permits, in order, of a semaphore that numbers them.
	Slots []int
}

// state of one lock: Depth counts the acquires of its owner, Hold is the outermost of them. If it
// is shared, Depth counts the readers or permits, and Hold lists their holds in order, each with the
// numbers of its permits.
type state struct {
	Owner string
	Hold  string
	Depth int
	Token int64
}

type rules struct{ reentrant, fenced, shared, numbered, lowest bool }

var models = map[string]rules{
	"mutex":            {},
	"reentrant":        {reentrant: true},
	"fenced":           {fenced: true},
	"reentrant-fenced": {reentrant: true, fenced: true},
	"shared":           {shared: true},
	"shared-fenced":    {shared: true, fenced: true},
	"numbered":         {shared: true, numbered: true},
	"numbered-fenced":  {shared: true, numbered: true, fenced: true},
	"numbered-lowest":  {shared: true, numbered: true, fenced: true, lowest: true},
}

// entry is a hold as the state lists it.
func entry(op Operation) string {
	if len(op.Slots) == 0 {
		return op.Hold
	}
	return op.Hold + "=" + strings.Trim(strings.ReplaceAll(fmt.Sprint(op.Slots), " ", ","), "[]")
}

// numbersFit tells whether the permits of an acquire have numbers that no present hold has.
func (r rules) numbersFit(holds []string, op Operation) bool {
	taken := map[int]bool{}
	for _, hold := range holds {
		_, numbers, _ := strings.Cut(hold, "=")
		for _, number := range strings.Split(numbers, ",") {
			slot, err := strconv.Atoi(number)
			if err != nil {
				fail(err)
			}
			taken[slot] = true
		}
	}
	next := 0
	for _, slot := range op.Slots {
		for r.lowest && taken[next] {
			next++
		}
		if taken[slot] || slot < 0 || slot >= op.Limit || r.lowest && slot != next {
			return false
		}
		taken[slot] = true
	}
	return len(op.Slots) == op.Permits
}

// share is the step of a lock that has readers, or permits. Its Owner is the mode of its holds.
func (r rules) share(now state, op Operation) (bool, state) {
	holds := strings.Fields(now.Hold)
	if op.Kind == "acquire" {
		legal := !r.fenced || op.Token > now.Token
		if now.Depth > 0 {
			legal = legal && op.Mode != "exclusive" && op.Mode == now.Owner
		}
		if op.Mode == "permits" {
			legal = legal && now.Depth+op.Permits <= op.Limit
		}
		if r.numbered {
			legal = legal && r.numbersFit(holds, op)
		}
		holds = append(holds, entry(op))
		sort.Strings(holds)
		return legal, state{op.Mode, strings.Join(holds, " "), now.Depth + size(op), op.Token}
	}
	if op.Kind == "refuse" {
		return !r.lowest || now.Depth+op.Permits > op.Limit, now
	}
	place := sort.SearchStrings(holds, entry(op))
	if place == len(holds) || holds[place] != entry(op) {
		return false, now
	}
	holds = append(holds[:place], holds[place+1:]...)
	return true, state{now.Owner, strings.Join(holds, " "), now.Depth - size(op), now.Token}
}

func size(op Operation) int {
	if op.Mode == "permits" {
		return op.Permits
	}
	return 1
}

func (r rules) step(now state, op Operation) (bool, state) {
	if r.shared {
		return r.share(now, op)
	}
	switch op.Kind {
	case "acquire":
		if now.Depth == 0 {
			legal := !r.fenced || op.Token > now.Token
			return legal, state{op.Owner, op.Hold, 1, op.Token}
		}
		legal := r.reentrant && now.Owner == op.Owner && (!r.fenced || op.Token == now.Token)
		now.Depth++
		return legal, now
	case "release":
		if r.reentrant && now.Depth > 1 && now.Owner == op.Owner {
			now.Depth--
			return true, now
		}
		return now.Depth == 1 && now.Hold == op.Hold, state{Token: now.Token}
	case "expire":
		return now.Depth > 0 && now.Hold == op.Hold, state{Token: now.Token}
	}
	return false, now
}

func (r rules) model() porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return state{} },
		Step: func(now, input, _ interface{}) (bool, interface{}) {
			legal, next := r.step(now.(state), input.(Operation))
			return legal, next
		},
	}
}

func read() map[string][]porcupine.Operation {
	found := map[string][]porcupine.Operation{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var op Operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			fail(err)
		}
		found[op.Lock] = append(found[op.Lock], porcupine.Operation{
			ClientId: op.Client, Input: op, Call: op.Call, Return: op.Return,
		})
	}
	if err := lines.Err(); err != nil {
		fail(err)
	}
	return found
}

func fail(err interface{}) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

func main() {
	if len(os.Args) != 2 {
		fail("usage: porcupine MODEL < operations")
	}
	r, known := models[os.Args[1]]
	if !known {
		fail("no such model: " + os.Args[1])
	}
	histories := read()
	names := make([]string, 0, len(histories))
	for name := range histories {
		names = append(names, name)
	}
	sort.Strings(names)
	code := 0
	for _, name := range names {
		switch porcupine.CheckOperationsTimeout(r.model(), histories[name], timeout) {
		case porcupine.Illegal:
			fmt.Println("illegal", name)
			code = 1
		case porcupine.Unknown:
			fmt.Println("unknown", name)
			code = 1
		}
	}
	os.Exit(code)
}
