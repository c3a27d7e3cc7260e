// An election of client-go: elector KUBECONFIG NAMESPACE NAME IDENTITY HOLD. It leads for HOLD, leaves,
// and is a candidate again; each line of its output is "wait", "lead" or "leave" with the Unix time.
// It leaves earlier if client-go says that it does not lead any more; "leave" has the last time at
// which it still led by what client-go said after that. If it was stopped in its term, it ends instead
// of leaving: client-go's release reads the newest Lease but decides by an older one who holds it, so
// it would clear the Lease of the next holder.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const look, stopped = 2 * time.Millisecond, time.Second

func report(what string, when time.Time) { fmt.Printf("%s %.6f\n", what, float64(when.UnixNano())/1e9) }

var leading sync.Mutex

func lead(ctx context.Context, hold time.Duration) {
	leading.Lock()
	defer leading.Unlock()
	led := time.Now()
	report("lead", led)
	until, late := led.Add(hold), false
	for led.Before(until) {
		time.Sleep(look)
		now := time.Now()
		if late = now.Sub(led) > stopped; late {
			break
		}
		if ctx.Err() != nil {
			break
		}
		led = now
	}
	report("leave", led)
	if late {
		os.Exit(0)
	}
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		panic(err)
	}
	hold, err := time.ParseDuration(os.Args[5])
	if err != nil {
		panic(err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: os.Args[2], Name: os.Args[3]},
		Client:     kubernetes.NewForConfigOrDie(config).CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: os.Args[4]},
	}
	for {
		ctx, cancel := context.WithCancel(context.Background())
		report("wait", time.Now())
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second,
			RetryPeriod: 300 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(term context.Context) {
					lead(term, hold)
					cancel()
				},
				OnStoppedLeading: func() {},
			},
		})
		leading.Lock() // until its term has ended
		leading.Unlock()
	}
}
