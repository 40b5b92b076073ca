package serve

import (
	"net/http"
)

// healthy answers that the process is alive.
func healthy(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, health{"ok"})
}

// health is the answer of /healthz and /readyz. It tells no more, because no token is needed.
type health struct {
	Status string `json:"status"`
}

// ready reports whether the service can be used: its store is in place, it executes runs if it
// should, and it is not being ended.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	select {
	case <-s.draining:
		return problem(http.StatusServiceUnavailable, "unavailable", "the service is being stopped")
	default:
	}
	err := s.o.Service.InPlace()
	if err == nil && s.o.Ready != nil {
		err = s.o.Ready()
	}
	if err != nil {
		failed(r, err)
		return problem(http.StatusServiceUnavailable, "unavailable", "the service does not work; its log says why")
	}
	writeJSON(w, http.StatusOK, health{"ok"})
	return nil
}
