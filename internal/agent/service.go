package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
)

// MaxTries is how often a request to an agent that is a service is tried.
const MaxTries = 5

// BeforeTry is the pause after a number of tries of a request. asked is what the service has asked for.
func BeforeTry(tries int, asked time.Duration) time.Duration {
	return max(asked, retry.Backoff(time.Second, 30*time.Second, tries-1))
}

// Tried makes a request that may be made twice, again if that may help.
func Tried[T any](ctx context.Context, pause func(context.Context, time.Duration), request func() (T, error)) (T, error) {
	for tries := 1; ; tries++ {
		got, err := request()
		var failed *httpcall.Error
		if !errors.As(err, &failed) || !failed.Temporary || tries == MaxTries || ctx.Err() != nil {
			return got, err
		}
		pause(ctx, BeforeTry(tries, failed.After))
	}
}

// Lookup gives the value of a ${VAR}.
func (o Options) Lookup(name string) (string, bool) {
	value, unknown := o.Expand("${" + name + "}")
	return value, unknown == ""
}

// The pauses between two looks at work within a segment.
const (
	firstLook = 100 * time.Millisecond
	lastLook  = 2 * time.Second
)

// Watched looks at the work of a service until it has ended, or until softWait is over. It returns what the
// work has come to, and whether it still goes on.
func Watched[T any](ctx context.Context, pause func(context.Context, time.Duration), softWait wait.Duration,
	work T, goesOn func(T) bool, look func() (T, error)) (now T, unfinished bool, err error) {
	for waited, looks := time.Duration(0), 0; goesOn(work); looks++ {
		if waited >= time.Duration(softWait) {
			return work, true, nil
		}
		d := retry.Backoff(firstLook, lastLook, looks)
		pause(ctx, d)
		waited += d
		if work, err = look(); err != nil {
			return work, false, err
		}
	}
	return work, false, nil
}

// AtWork is the outcome of a segment whose work goes on at a service. watch says how its source finds it,
// and shown what people see of it.
func AtWork(id, key, source string, watch any, shown map[string]string) (Outcome, error) {
	w, err := jsonobj.Marshal(watch)
	if err != nil {
		return Outcome{}, err
	}
	payload, err := jsonobj.Marshal(shown)
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Interrupts: []wait.Interrupt{{ID: id, Specs: []wait.Spec{{Type: wait.TypeJob,
		Name: string(wait.TypeJob), ItemKey: key, Payload: payload, Source: source, Watch: w}}}}}, nil
}

// Caller sends requests to an agent that is a service; client may be nil.
func (o Options) Caller(client *http.Client) httpcall.Caller {
	now := o.Now
	if now == nil {
		now = time.Now
	}
	return httpcall.Caller{Env: wait.Env{HTTP: httpcall.Client(client), Now: now, Rand: rand.Float64, Resolve: o.Lookup}}
}

// cancelTime is how long a service has to take that its work is not wanted any more.
const cancelTime = 10 * time.Second

// Ended is the outcome of a segment of an agent that is a service. An error of a request is the fault that it is.
// giveUp tells the service that its work is not wanted any more.
func (o Options) Ended(ctx context.Context, agent string, out Outcome, err error, giveUp func(context.Context)) (Outcome, error) {
	var f *fault.Fault
	var failed *httpcall.Error
	switch {
	case ctx.Err() != nil:
		f = CauseFault(ctx)
		if f.Category != fault.Interrupted { // else another attempt goes on with the work
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
			defer cancel()
			giveUp(ctx)
		}
	case errors.As(err, &f):
		f = fault.New(f.Category, f.Message)
	case errors.As(err, &failed):
		f = fault.New(failed.Category, failed.Error())
	case err != nil:
		return Outcome{}, fmt.Errorf("agent %q: %w", agent, err)
	}
	if f != nil {
		out = Outcome{Fault: f}
	}
	if out.Fault != nil {
		out.Fault.Message = o.RedactText(out.Fault.Message)
	}
	return out, nil
}
