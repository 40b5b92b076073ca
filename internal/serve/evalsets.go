package serve

import (
	"net/http"

	"github.com/evalrun/evalrun/internal/service"
)

// evalSetsAPI serves /v1/eval-sets.
type evalSetsAPI struct{ service *service.Service }

// evalSetList lists the eval sets that a run may name.
type evalSetList struct {
	EvalSets []evalSetDocument `json:"evalSets"`
}

type evalSetDocument struct {
	Name string `json:"name"`
}

// list lists all sets by name. Their number is bounded by the files that somebody has put into a
// folder.
func (a *evalSetsAPI) list(w http.ResponseWriter, r *http.Request) error {
	if q := newQuery(r); q.err != nil {
		return q.err
	}
	names, err := a.service.Config().EvalSets.Names()
	if err != nil {
		return err
	}
	out := evalSetList{EvalSets: make([]evalSetDocument, 0, len(names))}
	for _, name := range names {
		out.EvalSets = append(out.EvalSets, evalSetDocument{name})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}
