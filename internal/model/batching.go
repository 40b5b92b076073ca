package model

import (
	"time"

	"github.com/evalrun/evalrun/internal/input"
)

// Batching says whether requests go to the provider's batches, which cost less and take longer.
type Batching struct {
	Enabled bool `json:"enabled,omitempty"`
	// MaxWait is how long a batch waits for more requests while the run goes on.
	MaxWait time.Duration `json:"maxWaitNs,omitempty"`
	// Interval is the first pause between two checks of a batch, and MaxInterval the longest.
	Interval    time.Duration `json:"intervalNs,omitempty"`
	MaxInterval time.Duration `json:"maxIntervalNs,omitempty"`
	// PriceFactor is the price of a token in a batch, as a fraction of its usual price.
	PriceFactor float64 `json:"priceFactor,omitempty"`
}

// DefaultBatching has the values of sets that name no others. The providers charge half the price.
var DefaultBatching = Batching{MaxWait: 2 * time.Minute, Interval: 30 * time.Second, MaxInterval: 5 * time.Minute,
	PriceFactor: 0.5}

// ParseBatching reads the settings of batches, but for Enabled. otherwise has what is not given.
func ParseBatching(r *input.Reader, f *input.Fields, otherwise Batching) Batching {
	b := otherwise
	b.MaxWait = f.Duration("maxWait", b.MaxWait)
	b.Interval = f.Duration("interval", b.Interval)
	b.MaxInterval = f.Duration("maxInterval", max(b.Interval, b.MaxInterval))
	if at := f.Get("interval"); at != nil && b.Interval <= 0 {
		r.Errorf(at, "expected a duration above 0")
	}
	if at := f.Get("maxInterval"); at != nil && b.MaxInterval < b.Interval {
		r.Errorf(at, "expected at least the interval, %s", b.Interval)
	}
	b.PriceFactor = f.Float("priceFactor", b.PriceFactor, 0, 1)
	return b
}

// PauseBefore returns how long to wait before the next check. The pause doubles each time, up to the
// longest one.
func (b Batching) PauseBefore(checks int) time.Duration {
	pause := b.Interval
	for i := 0; i < checks && pause < b.MaxInterval; i++ {
		pause *= 2
	}
	return max(min(pause, b.MaxInterval), time.Millisecond)
}
