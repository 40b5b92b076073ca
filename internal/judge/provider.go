package judge

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/eval"
)

// calmDown is how long a provider is asked less after it has said that it is asked too much.
const calmDown = time.Minute

// provider is an endpoint with what has been learned of it in this process.
type provider struct {
	name   string
	config Provider
	o      *Options

	mu sync.Mutex
	// busy counts the calls under way, waiting are those that wait for a place.
	busy    int
	waiting []chan struct{}
	// halvedUntil is when the provider may be asked as before. nextStart is when the next call may
	// begin, if their number a minute is limited.
	halvedUntil, nextStart time.Time
	// refused is why nothing is asked any more, refusedModels the same by model.
	refused       *eval.JudgeError
	refusedModels map[string]*eval.JudgeError
	// learned is by model what it does not take.
	learned map[string]dropped
}

// dropped are the parameters that a model does not take.
type dropped struct {
	// names are those that are left out. tool_choice means that the answer is asked for as JSON by
	// its schema, and no tool is offered.
	names []string
	// oldLimit means that the limit of the answer is called max_tokens.
	oldLimit bool
}

func (d dropped) has(name string) bool { return slices.Contains(d.names, name) }

func newProvider(name string, config Provider, o *Options) *provider {
	return &provider{name: name, config: config, o: o, refusedModels: map[string]*eval.JudgeError{},
		learned: map[string]dropped{}}
}

// enter waits for a place and for the time at which the next call may begin.
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
				p.wakeNext() // the place that it was told of is for another
			}
			p.mu.Unlock()
			return ctx.Err()
		}
	}
}

// limit is how many calls may be under way now. p.mu is held.
func (p *provider) limit() int {
	if p.o.Now().Before(p.halvedUntil) {
		return max(1, p.config.Concurrency/2)
	}
	return p.config.Concurrency
}

// reserve takes the next time at which a call may begin, and says how long that is from now. p.mu
// is held.
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

// wakeNext lets the next call try for a place. p.mu is held.
func (p *provider) wakeNext() {
	if len(p.waiting) > 0 {
		close(p.waiting[0])
		p.waiting = p.waiting[1:]
	}
}

// overloaded makes the provider be asked less for a while.
func (p *provider) overloaded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halvedUntil = p.o.Now().Add(calmDown)
}

// known is why the provider is not asked for a model any more, nil if it is.
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

// refuse says why nothing is asked any more.
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

// learn keeps what a model does not take.
func (p *provider) learn(model string, d dropped) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learned[model] = d
}
