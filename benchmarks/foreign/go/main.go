// A process in Go: arguments NAME FOLDER, then commands on its standard input, each answered by
// one line of JSON, as in benchmarks/workers/contender.py.
//
// redsync on go-redis: a lease of 30 s without renewal, and a wait without limit, with the default
// pauses (50 to 250 ms). etcd-mutex: concurrency.Mutex of etcd's client, in a session of 60 s. Times
// are of CLOCK_MONOTONIC, as those of Python's time.monotonic_ns().
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sys/unix"
)

const (
	lease  = 30 * time.Second
	warmUp = 300 * time.Millisecond
)

// quiet discards the log messages about failed connections to a server that is down.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// lock is one lock of one library.
type lock interface {
	acquire()
	release()
}

type redisLock struct{ *redsync.Mutex }

func (l redisLock) acquire() { check(l.Lock()) }

func (l redisLock) release() {
	_, err := l.Unlock()
	check(err)
}

type etcdLock struct{ *concurrency.Mutex }

func (l etcdLock) acquire() { check(l.Lock(context.Background())) }

func (l etcdLock) release() { check(l.Unlock(context.Background())) }

type contender struct {
	lock    func(name string) lock
	mutex   lock
	counter *os.File
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func now() int64 {
	var clock unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock))
	return clock.Nano()
}

func cpu() float64 {
	var used unix.Rusage
	check(unix.Getrusage(unix.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func report(value any) {
	line, err := json.Marshal(value)
	check(err)
	fmt.Println(string(line))
}

func open(name, folder string) *contender {
	urls, err := os.ReadFile(filepath.Join(folder, "url"))
	check(err)
	counter, err := os.OpenFile(filepath.Join(folder, "counter"), os.O_RDWR|os.O_CREATE, 0o600)
	check(err)
	made := &contender{counter: counter}
	if text := strings.TrimSpace(string(urls)); strings.HasPrefix(text, "etcd://") {
		made.lock = onEtcd(text)
	} else {
		made.lock = onRedis(text)
	}
	made.mutex = made.lock(name)
	return made
}

func onRedis(urls string) func(string) lock {
	var pools []redis.Pool
	for _, url := range strings.Split(urls, ",") {
		options, err := goredislib.ParseURL(url)
		check(err)
		pools = append(pools, goredis.NewPool(goredislib.NewClient(options)))
	}
	sync := redsync.New(pools...)
	return func(name string) lock {
		return redisLock{
			sync.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt32)),
		}
	}
}

func onEtcd(url string) func(string) lock {
	hosts, _, _ := strings.Cut(strings.TrimPrefix(url, "etcd://"), "/")
	client, err := etcd.New(etcd.Config{Endpoints: strings.Split(hosts, ",")})
	check(err)
	session, err := concurrency.NewSession(client)
	check(err)
	return func(name string) lock {
		return etcdLock{concurrency.NewMutex(session, "mutex/"+name)}
	}
}

func (c *contender) pairs(count int) {
	began, used := now(), cpu()
	for i := 0; i < count; i++ {
		c.mutex.acquire()
		c.mutex.release()
	}
	each := float64(count)
	report(map[string]float64{"wall": float64(now()-began) / 1e9 / each, "cpu": (cpu() - used) / each})
}

// Increment the counter non-atomically: concurrent holders would lose updates.
func (c *contender) countUp() {
	number := make([]byte, 8)
	c.counter.ReadAt(number, 0) // an empty file counts as 0
	binary.LittleEndian.PutUint64(number, binary.LittleEndian.Uint64(number)+1)
	_, err := c.counter.WriteAt(number, 0)
	check(err)
}

func (c *contender) contend(hold, seconds float64) {
	holds, used := [][3]int64{}, cpu()
	until := now() + int64(seconds*1e9)
	for requested := now(); requested < until; requested = now() {
		c.mutex.acquire()
		granted := now()
		c.countUp()
		if hold > 0 {
			time.Sleep(time.Duration(hold * 1e9))
		}
		released := now()
		c.mutex.release()
		holds = append(holds, [3]int64{requested, granted, released})
	}
	report(map[string]any{"holds": holds, "cpu": cpu() - used})
}

// Acquire and release that often, for verification/interop: the file appears before the first acquire, and
// gets a line "granted released 0" for each hold.
func (c *contender) turns(count int, hold float64, name string) {
	file, err := os.Create(name)
	check(err)
	holds := bufio.NewWriter(file)
	for i := 0; i < count; i++ {
		c.mutex.acquire()
		granted := now()
		time.Sleep(time.Duration(hold * 1e9))
		released := now()
		c.mutex.release()
		fmt.Fprintln(holds, granted, released, 0)
	}
	check(holds.Flush())
	check(file.Close())
	report(true)
}

func (c *contender) count(workers int, seconds float64) int {
	until := now() + int64(seconds*1e9)
	counts := make([]int, workers)
	var all sync.WaitGroup
	for i := range counts {
		mutex := c.lock("each " + strconv.Itoa(i))
		all.Add(1)
		go func() {
			defer all.Done()
			for now() < until {
				mutex.acquire()
				mutex.release()
				counts[i]++
			}
		}()
	}
	all.Wait()
	sum := 0
	for _, one := range counts {
		sum += one
	}
	return sum
}

func (c *contender) each(workers int, seconds float64) {
	c.count(workers, seconds/2)
	began, used := now(), cpu()
	done := float64(c.count(workers, seconds))
	wall := float64(now()-began) / 1e9
	report(map[string]float64{"rate": done / wall, "cpu": (cpu() - used) / done})
}

func number(word string) float64 {
	value, err := strconv.ParseFloat(word, 64)
	check(err)
	return value
}

func (c *contender) obey(words []string) {
	switch words[0] {
	case "acquire":
		c.mutex.acquire()
		report(true)
	case "release":
		c.mutex.release()
		report(true)
	case "pairs":
		c.pairs(int(number(words[1])))
	case "contend":
		c.contend(number(words[1]), number(words[2]))
	case "turns":
		c.turns(int(number(words[1])), number(words[2]), words[3])
	case "each":
		c.each(int(number(words[1])), number(words[2]))
	default:
		check(fmt.Errorf("an unknown command: %v", words))
	}
}

func main() {
	goredislib.SetLogger(quiet{})
	contender := open(os.Args[1], os.Args[2])
	own := contender.lock(fmt.Sprint(os.Args[1], " ", os.Getpid()))
	until := now() + warmUp.Nanoseconds()
	for i := 0; i < 300 && now() < until; i++ {
		own.acquire()
		own.release()
	}
	report(true)
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		contender.obey(strings.Fields(commands.Text()))
	}
	check(commands.Err())
}
