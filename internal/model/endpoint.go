package model

import (
	"context"
	"slices"
	"sync"
	"time"
)

// calmDown is how long a provider gets fewer requests after it has reported too many.
const calmDown = time.Minute

// Endpoint is a provider with what this process has learned about it. It is safe for concurrent
// use.
type Endpoint struct {
	Name   string
	Config Provider
	o      Options

	mu sync.Mutex
	// busy counts the calls in flight. waiting holds the calls that wait for a slot.
	busy    int
	waiting []chan struct{}
	// halvedUntil is when the provider may be asked as before. nextStart is when the next call may
	// begin, if their number a minute is limited.
	halvedUntil, nextStart time.Time
	// refused is the error for which the provider is not asked any more. refusedModels has such
	// errors by model.
	refused       *Error
	refusedModels map[string]*Error
	// learned has the parameters that a model does not take, by model.
	learned map[string]Dropped
}

// Dropped are the parameters that a model does not take.
type Dropped struct {
	// Names lists the parameters that are left out. tool_choice means that the answer is requested
	// as JSON of a schema, and no tool is offered.
	Names []string
	// OldLimit means that the limit of the answer is called max_tokens.
	OldLimit bool
}

// Has reports whether a parameter is left out.
func (d Dropped) Has(name string) bool { return slices.Contains(d.Names, name) }

// NewEndpoint makes an endpoint of a provider. Nothing is sent.
func NewEndpoint(name string, config Provider, o Options) *Endpoint {
	return &Endpoint{Name: name, Config: config, o: o.withDefaults(), refusedModels: map[string]*Error{},
		learned: map[string]Dropped{}}
}

// enter waits for a slot and for the time at which the next call may begin.
func (e *Endpoint) enter(ctx context.Context) error {
	for {
		e.mu.Lock()
		if e.busy < e.limit() {
			e.busy++
			wait := e.reserve()
			e.mu.Unlock()
			if wait == 0 {
				return nil
			}
			err := e.o.Pause(ctx, wait)
			if err != nil {
				e.leave()
			}
			return err
		}
		free := make(chan struct{})
		e.waiting = append(e.waiting, free)
		e.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			e.mu.Lock()
			if i := slices.Index(e.waiting, free); i >= 0 {
				e.waiting = slices.Delete(e.waiting, i, i+1)
			} else {
				e.wakeNext() // another call can have the slot that it was given
			}
			e.mu.Unlock()
			return ctx.Err()
		}
	}
}

// limit returns how many calls may be in flight now. e.mu is held.
func (e *Endpoint) limit() int {
	if e.o.Now().Before(e.halvedUntil) {
		return max(1, e.Config.Concurrency/2)
	}
	return e.Config.Concurrency
}

// reserve takes the next time at which a call may begin, and returns how long that is from now.
// e.mu is held.
func (e *Endpoint) reserve() time.Duration {
	if e.Config.RequestsPerMinute == 0 {
		return 0
	}
	now := e.o.Now()
	if e.nextStart.Before(now) {
		e.nextStart = now
	}
	wait := e.nextStart.Sub(now)
	e.nextStart = e.nextStart.Add(time.Minute / time.Duration(e.Config.RequestsPerMinute))
	return wait
}

func (e *Endpoint) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy--
	for range max(1, e.limit()-e.busy) {
		e.wakeNext()
	}
}

// wakeNext lets the next call try for a slot. e.mu is held.
func (e *Endpoint) wakeNext() {
	if len(e.waiting) > 0 {
		close(e.waiting[0])
		e.waiting = e.waiting[1:]
	}
}

// overloaded reduces the calls of the provider for a while.
func (e *Endpoint) overloaded() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.halvedUntil = e.o.Now().Add(calmDown)
}

// Known returns the error for which the provider is not asked for a model any more; nil if it may
// be asked.
func (e *Endpoint) Known(model string) *Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refused != nil {
		return e.refused
	}
	return e.refusedModels[model]
}

// remember keeps errors that every further call would meet too.
func (e *Endpoint) remember(model string, err *Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch err.Kind {
	case Auth:
		e.refused = err
	case NoModel:
		e.refusedModels[model] = err
	}
}

// refuse records the error for which the provider is not asked any more.
func (e *Endpoint) refuse(err *Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused = err
}

// Dropped returns the parameters that a model does not take, as far as this is known.
func (e *Endpoint) Dropped(model string) Dropped {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.learned[model]
}

// learn records a parameter that a model does not take.
func (e *Endpoint) learn(model string, d Dropped) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.learned[model] = d
}
