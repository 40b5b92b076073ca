package runner

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/redact"
)

// Latest is the name of the newest run of a store; the one before it is latest~1.
const Latest = "latest"

// errNoRun is the error of Find if no run has the name.
var errNoRun = errors.New("there is no run")

// Find finds a run by its name: its id, a beginning or an end of the id that no other run has, or
// latest, or latest~N. The ends are the random part of an id; ids that were made at about the same
// time begin alike.
func (s *Store) Find(ctx context.Context, name string) (Run, error) {
	all, err := s.Runs(ctx)
	if err != nil {
		return Run{}, err
	}
	var found []Run
	for _, r := range all {
		if r.ID == name {
			return r, nil
		}
		if name != "" && (strings.HasPrefix(r.ID, name) || strings.HasSuffix(r.ID, name)) {
			found = append(found, r)
		}
	}
	back, ok, err := stepsBack(name)
	switch {
	case err != nil:
		return Run{}, err
	case ok && back < len(all):
		return all[back], nil
	case ok && len(all) == 0:
		return Run{}, inputError("%s: there is no run in the store %s", name, s.Name())
	case ok:
		return Run{}, inputError("%s: the oldest run of the store %s is %s~%d", name, s.Name(), Latest, len(all)-1)
	case len(found) == 0:
		known := []string{Latest}
		for _, r := range all {
			known = append(known, r.ID)
		}
		return Run{}, inputError("%w %q in the store %s%s; evalrun list shows the runs", errNoRun, name, s.Name(),
			input.Suggest(name, known))
	case len(found) > 1:
		return Run{}, inputError("%d runs begin or end with %q; give more of the id:%s", len(found), name, candidates(found))
	}
	return found[0], nil
}

// stepsBack returns how many runs before the newest one a name means, if it is latest or latest~N.
func stepsBack(name string) (n int, ok bool, err error) {
	rest, ok := strings.CutPrefix(name, Latest)
	if !ok || rest == "" {
		return 0, ok, nil
	}
	number, ok := strings.CutPrefix(rest, "~")
	if !ok {
		return 0, false, nil
	}
	n, err = strconv.Atoi(number)
	if err != nil || n < 0 {
		return 0, false, inputError("%s: expected a number after the tilde, as in %s~1, the run before the newest one", name,
			Latest)
	}
	return n, true, nil
}

// candidates lists the runs that an ambiguous name may mean, a line each.
func candidates(found []Run) string {
	const most = 10
	var b strings.Builder
	for i, r := range found {
		if i == most {
			b.WriteString("\n  and " + strconv.Itoa(len(found)-most) + " more")
			break
		}
		b.WriteString(strings.TrimRight(
			"\n  "+r.ID+"  "+r.CreatedAt.Local().Format(time.DateTime)+"  "+redact.Line(r.EvaluationSetName), " "))
	}
	return b.String()
}
