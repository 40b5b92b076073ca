//go:build failpoint

// Package failpoint names the durable steps of the program, so that a test can kill or stop the
// real process exactly there. Without the build tag failpoint it does nothing and costs nothing.
package failpoint

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// spec is EVALRUN_FAILPOINT: ACTION:STEP:N, where ACTION is kill or stop, and N counts the hits of
// STEP from 1. The step "any" counts the hits of all steps together.
var spec = sync.OnceValue(func() (s struct {
	action, step string
	n            int
}) {
	parts := strings.Split(os.Getenv("EVALRUN_FAILPOINT"), ":")
	if len(parts) == 3 {
		s.action, s.step = parts[0], parts[1]
		s.n, _ = strconv.Atoi(parts[2]) // 0 never comes
	}
	return s
})

var (
	mu   sync.Mutex
	hits int
	// transaction is held while a transaction is open.
	transaction sync.Mutex
)

// Transaction marks the time of a transaction, in which the process is not stopped: it would hold
// the store's lock and nobody could overtake it. The returned function ends the transaction.
func Transaction() (end func()) {
	transaction.Lock()
	return transaction.Unlock
}

// Hit marks a step. If EVALRUN_FAILPOINT names this step, the process is killed or stopped here.
func Hit(step string) {
	s := spec()
	if s.action == "" || (s.step != "any" && s.step != step) {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	if hits++; hits != s.n {
		return
	}
	if s.action == "stop" {
		defer Transaction()()
		resumed := make(chan os.Signal, 1)
		signal.Notify(resumed, syscall.SIGCONT)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // a process may signal itself
		<-resumed                                      // until then the signal may still be on its way
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}
