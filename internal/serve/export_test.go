package serve

import (
	"maps"
	"slices"
)

// Patterns are those of all routes.
func (s *Server) Patterns() []string { return slices.Sorted(maps.Keys(s.guard.routes)) }

// EventTypes are those that may be asked for.
var EventTypes = eventTypes
