// An election of client-go: elector KUBECONFIG NAMESPACE NAME IDENTITY HOLD. It leads for HOLD, leaves,
// and is a candidate again; each line of its output is "lead" or "leave" with the Unix time.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func report(what string) { fmt.Printf("%s %.6f\n", what, float64(time.Now().UnixNano())/1e9) }

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
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second,
			RetryPeriod: 300 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					report("lead")
					time.Sleep(hold)
					report("leave")
					cancel()
				},
				OnStoppedLeading: func() {},
			},
		})
	}
}
