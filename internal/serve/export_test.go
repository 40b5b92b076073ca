package serve

import (
	"maps"
	"slices"
)

// Patterns are those of all routes.
func (s *Server) Patterns() []string { return slices.Sorted(maps.Keys(s.guard.routes)) }

// EventTypes are those that may be asked for.
var EventTypes = eventTypes

// OpenCalls is the number of requests whose token is looked at again and again.
func (s *Server) OpenCalls() (n int) {
	c := s.guard.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, open := range c.open {
		n += len(open)
	}
	return n
}
