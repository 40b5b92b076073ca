package judge

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/eval"
)

// calmDown is how long a provider gets fewer requests after it has reported too many.
const calmDown = time.Minute

// provider is an endpoint with what this process has learned about it.
type provider struct {
	name   string
	config Provider
	o      *Options

	mu sync.Mutex
	// busy counts the calls in flight. waiting holds the calls that wait for a slot.
	busy    int
	waiting []chan struct{}
	// halvedUntil is when the provider may be asked as before. nextStart is when the next call may
	// begin, if their number a minute is limited.
	halvedUntil, nextStart time.Time
	// refused is the error for which the provider is not asked any more. refusedModels has such
	// errors by model.
	refused       *eval.JudgeError
	refusedModels map[string]*eval.JudgeError
	// learned has the parameters that a model does not take, by model.
	learned map[string]dropped
}

// dropped are the parameters that a model does not take.
type dropped struct {
	// names lists the parameters that are left out. tool_choice means that the answer is requested
	// as JSON of a schema, and no tool is offered.
	names []string
	// oldLimit means that the limit of the answer is called max_tokens.
	oldLimit bool
}

func (d dropped) has(name string) bool { return slices.Contains(d.names, name) }

func newProvider(name string, config Provider, o *Options) *provider {
	return &provider{name: name, config: config, o: o, refusedModels: map[string]*eval.JudgeError{},
		learned: map[string]dropped{}}
}

// enter waits for a slot and for the time at which the next call may begin.
func (p *provider) enter(ctx context.Context) error {
	for {
		p.mu.Lock()
		if p.busy < p.limit() {
			p.busy++
			wait := p.reserve()
			p.mu.Unlock()
			if wait == 0 {
				return nil
			}
			err := p.o.Pause(ctx, wait)
			if err != nil {
				p.leave()
			}
			return err
		}
		free := make(chan struct{})
		p.waiting = append(p.waiting, free)
		p.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			p.mu.Lock()
			if i := slices.Index(p.waiting, free); i >= 0 {
				p.waiting = slices.Delete(p.waiting, i, i+1)
			} else {
				p.wakeNext() // another call can have the slot that it was given
			}
			p.mu.Unlock()
			return ctx.Err()
		}
	}
}

// limit returns how many calls may be in flight now. p.mu is held.
func (p *provider) limit() int {
	if p.o.Now().Before(p.halvedUntil) {
		return max(1, p.config.Concurrency/2)
	}
	return p.config.Concurrency
}

// reserve takes the next time at which a call may begin, and returns how long that is from now.
// p.mu is held.
func (p *provider) reserve() time.Duration {
	if p.config.RequestsPerMinute == 0 {
		return 0
	}
	now := p.o.Now()
	if p.nextStart.Before(now) {
		p.nextStart = now
	}
	wait := p.nextStart.Sub(now)
	p.nextStart = p.nextStart.Add(time.Minute / time.Duration(p.config.RequestsPerMinute))
	return wait
}

func (p *provider) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	for range max(1, p.limit()-p.busy) {
		p.wakeNext()
	}
}

// wakeNext lets the next call try for a slot. p.mu is held.
func (p *provider) wakeNext() {
	if len(p.waiting) > 0 {
		close(p.waiting[0])
		p.waiting = p.waiting[1:]
	}
}

// overloaded reduces the calls of the provider for a while.
func (p *provider) overloaded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halvedUntil = p.o.Now().Add(calmDown)
}

// known returns the error for which the provider is not asked for a model any more; nil if it may
// be asked.
func (p *provider) known(model string) *eval.JudgeError {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused != nil {
		return p.refused
	}
	return p.refusedModels[model]
}

// remember keeps errors that every further call would meet too.
func (p *provider) remember(model string, err *eval.JudgeError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch err.Category {
	case eval.JudgeAuth:
		p.refused = err
	case eval.JudgeModel:
		p.refusedModels[model] = err
	}
}

// refuse records the error for which the provider is not asked any more.
func (p *provider) refuse(err *eval.JudgeError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = err
}

func (p *provider) dropped(model string) dropped {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.learned[model]
}

// learn records a parameter that a model does not take.
func (p *provider) learn(model string, d dropped) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learned[model] = d
}
