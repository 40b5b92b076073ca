// Package fault says why a rollout, a segment of it or a job failed: one Fault with one Category.
//
// Sources of triggers, agents, the engine, the store and the reports all use it. It imports none of
// them and reads no configuration. An eval set may give a category another owner (see
// [Category.Owner]); this package does not know who does that.
package fault

import "fmt"

// Fault says why something failed. It is stored and reported in this form. As an error it can be
// the cause of a context that ends an agent.
type Fault struct {
	Category Category `json:"category"`
	// Message is for the person who reads the results.
	Message string `json:"message"`
}

// New returns a fault.
func New(c Category, message string) *Fault { return &Fault{c, message} }

// Newf returns a fault whose message is formatted as by [fmt.Sprintf].
func Newf(c Category, format string, args ...any) *Fault {
	return &Fault{c, fmt.Sprintf(format, args...)}
}

func (f *Fault) Error() string { return string(f.Category) + ": " + f.Message }
